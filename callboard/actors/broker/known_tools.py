"""The tools that rules of a broker can be about, and the servers that may have others."""

from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.unused_rules import KnownTools
from callboard.codecs.bridge.askable import NOTHING
from callboard.codecs.bridge.definitions import TOOLS


def known_tools(offer: BrokerOffer) -> KnownTools:
    """Those of all servers, withheld ones and those that only some clients see among them."""
    catalogue = offer.catalogue
    signatures = dict.fromkeys((NOTHING, *(one for name in offer.backends for one in catalogue.apart(name))))
    tools = dict.fromkeys((key[0], shown) for one in signatures for key, shown in catalogue.names(TOOLS, one).items())
    down = [one.name for one in offer.backends.values() if not (one.is_available and one.listings.has_read(TOOLS))]
    return KnownTools(tools.keys(), down)
