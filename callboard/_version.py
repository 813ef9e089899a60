"""The version of this package, as it is named on the wire and on a terminal."""

__version__ = "0.1.0"
