"""Many servers behind one endpoint: `Broker`."""

from callboard.broker.broker import Broker

__all__ = ["Broker"]
