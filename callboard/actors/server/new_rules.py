"""Rules that change while clients are connected: what they hide is gone at once, and clients that saw it are told."""

from collections.abc import Iterable, Mapping, Sequence

import trio

from callboard import tree
from callboard.actors.changes import ListName, wanted_lists
from callboard.actors.rules import NO_RULES, AccessRules, Gate
from callboard.actors.server.host import Host
from callboard.actors.server.rule_check import check_soon
from callboard.actors.server.session import Session
from callboard.actors.server.subscription import Subscription
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import UNSET
from callboard.supervisor import Supervisor


async def apply(host: Host, rules: AccessRules | None) -> int:
    """Go by these rules from now on, in sessions that are open, too. Returns how many clients were told that a list of
    theirs has changed.

    A call that is parked is looked at when it is retried, and one that waits for an operator at once; what runs already
    goes on to its end.
    """
    before, host.rules = host.rules, rules
    if before is rules:
        return 0
    host.approvals.look_again()
    check_soon(host)
    changes = _changes(host.offer.gates(before or NO_RULES), host.offer.gates(rules or NO_RULES))
    told = 0
    for _, place in host.root.supervisor_of(tree.SESSIONS).actors():
        for session in _sessions(place):
            told += _tell_session(session, changes)
        await trio.lowlevel.checkpoint()
    for _, actor in host.requests.actors():
        if isinstance(actor, Subscription):
            told += _tell_subscription(actor, changes)
            await trio.lowlevel.checkpoint()
    return told


Changes = Mapping[ListName, frozenset[tuple[Gate, Gate]]]


def _changes(before: Mapping[ListName, Sequence[Gate]], after: Mapping[ListName, Sequence[Gate]]) -> Changes:
    """What guarded an entry of each list, and what guards it now. Many entries share few such pairs."""
    return {name: frozenset(zip(before[name], after[name], strict=True)) for name in after}


def _changed_for(caller: Caller, changes: Changes) -> set[ListName]:
    return {
        name
        for name, pairs in changes.items()
        if any(old.decide(caller).is_listed is not new.decide(caller).is_listed for old, new in pairs)
    }


def _sessions(place: object) -> Iterable[Session]:
    return [actor for _, actor in place.actors() if isinstance(actor, Session)] if isinstance(place, Supervisor) else ()


def _tell_session(session: Session, changes: Changes) -> bool:
    hearing = session.hearing
    if hearing is None or session.is_over:
        return False
    for uri in [uri for uri in hearing.followed if session.host.hides_resource(session.caller, uri)]:
        hearing.unfollow(uri)
    changed = _changed_for(session.caller, changes)
    news = [one for one in hearing.lists if one.name in changed]
    for one in news:
        hearing.hear(one)
    return bool(news)


def _tell_subscription(subscription: Subscription, changes: Changes) -> bool:
    caller, granted = subscription.exchange.terms.caller, subscription.granted
    followed = () if granted.resource_subscriptions is UNSET else granted.resource_subscriptions
    if not subscription.audience.follows_unknown and any(subscription.hides(caller, uri) for uri in followed):
        subscription.address.begin_stop()  # what the client is told it follows would not be true any more
        return False
    changed = _changed_for(caller, changes)
    news = [one for one in wanted_lists(granted) if one.name in changed]
    for one in news:
        subscription.hear(one)
    return bool(news)
