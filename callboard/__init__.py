"""callboard: an actor-based message broker for the Model Context Protocol, built on Trio."""

__version__ = "0.1.0.dev0"
