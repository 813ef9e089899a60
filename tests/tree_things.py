"""The supervision tree as a multiset of things, to be compared with what clients did.

Every name of a node or fact that the comparison knows is in this module. When the tree shows more, four tables change:
`TOLD` (facts that are compared), `MISSING` (things that are not shown), `_thing` (kinds of nodes) and `FURNITURE`. A
thing that shows up although `MISSING` has it, or a node of a kind that no table has, fails the comparison.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import attrs

from callboard.supervisor import Snapshot


@attrs.frozen(order=True)
class Thing:
    """A session, a request in flight, one that is parked, a progress token, a subscription, a question of a backend, or
    an outbound request: one of a link to a backend, or a question to a legacy client."""

    kind: str
    method: str = ""
    target: str = ""
    client: str = ""
    revision: str = ""


Things: TypeAlias = "Counter[Thing]"


@attrs.frozen
class Claim:
    """A thing that should be in the tree, by what a client did; and what decides whether it is there today."""

    thing: Thing
    transport: str
    is_brokered: bool
    is_inline: bool = False
    """Whether it is a call of a tool that takes no context."""
    has_reported: bool = True
    """Whether a report was made for its progress token."""


# What the tree tells of each kind. The rest of a thing is not compared.
TOLD: Final[Mapping[str, tuple[str, ...]]] = {
    "session": ("revision",),
    "request": ("method", "target", "revision"),
    "parked": ("method", "target", "revision"),
    "progress": (),
    "subscription": ("method",),
    "question": (),
    "outbound": ("method",),
}

# What the tree does not show, and why. A thing of these that does show up is one too many: then its line goes.
MISSING: Final[Mapping[str, Callable[[Claim], bool]]] = {}

SESSIONS: Final = frozenset({"Session", "HttpSession", "SocketSession"})

FURNITURE: Final = frozenset(
    {
        *("Supervisor", "Parking", "Stdio", "Reader", "ProgressTimer", "Pings", "FanOutRelay"),
        *("KeepAlive", "WriteBatch", "SlowRequests", "HttpConnection", "HttpListener", "Unsent"),
        *("BrokerActor", "BrokeredTasks", "Backend", "BackendConnection", "UpstreamStream", "ViewReader"),
    }
)
"""Kinds of nodes that are there whatever clients do, or as many as there are connections."""

PASSING: Final = frozenset({"", "SubscriptionEnd", "ProgressRelay", "Unfollow", "Unsubscribe", "Check"})
"""Kinds of nodes that are there for a moment; one that is about to start has none. When all is quiet there are none."""


SHARED: Final = frozenset({"subscriptions/listen"})
"""Methods by which a broker follows what its clients do: one request for all of them, as long as there are any."""

HOUSEKEEPING: Final = frozenset({"resources/subscribe", "resources/unsubscribe", "ping", "logging/setLevel"})
"""Methods of a broker's own requests, each of which is there for a moment."""


def found(root: Snapshot) -> Things:
    """All things in a tree."""
    return Counter(thing for node in root.walk() if (thing := _thing(node)) is not None)


def _thing(node: Snapshot) -> Thing | None:
    facts = {name: str(value) for name, value in node.facts.items()}
    if node.kind in SESSIONS:
        return Thing("session", revision=facts.get("revision", ""))
    if node.kind == "RequestActor":
        kind = "parked" if node.state == "parked" else "request"
        target = facts.get("tool", facts.get("target", ""))
        return _told(Thing(kind, facts.get("method", ""), target, facts.get("client", ""), facts.get("revision", "")))
    if node.kind == "Subscription":
        return Thing("subscription", "subscriptions/listen")
    if node.kind == "ResourceSubscription":
        return Thing("subscription", "resources/subscribe")
    if node.kind == "OutgoingRequest":
        method = facts.get("method", "")
        return None if method in SHARED else Thing("outbound", method)
    if node.kind == "Progress":
        return Thing("progress")
    if node.kind == "RelayedQuestion":
        return Thing("question")
    return None if node.kind in FURNITURE else Thing(node.kind)


def expected(claims: Iterable[Claim]) -> Things:
    """The claims that today's tree can meet, with as much of each as it tells."""
    return Counter(_told(claim.thing) for claim in claims if not any(test(claim) for test in MISSING.values()))


def _told(thing: Thing) -> Thing:
    return Thing(thing.kind, **{name: getattr(thing, name) for name in TOLD[thing.kind]})


def without_passing(things: Things) -> Things:
    """The things without those that are there for a moment: for a comparison while clients come and go."""
    return Counter(
        {
            thing: count
            for thing, count in things.items()
            if thing.kind not in PASSING and not (thing.kind == "outbound" and thing.method in HOUSEKEEPING)
        }
    )


@attrs.frozen
class Difference:
    """What a tree lacks, and what it has too much of."""

    lacks: Things
    has_besides: Things

    def __bool__(self) -> bool:
        return bool(self.lacks or self.has_besides)


def difference(of: Things, at_least: Things, at_most: Things) -> Difference:
    """Compare with bounds: they are one where nothing is on its way."""
    return Difference(at_least - of, of - at_most)
