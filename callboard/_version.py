"""The version of this package, for whatever names it on the wire or on a terminal."""

__version__ = "0.1.0.dev0"
