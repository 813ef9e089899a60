"""Paths of a broker: `/mcp/SERVER` with one server's own names, `/mcp/PROFILE` with a choice of servers and tools.

Each has an offer of its own over the same backends: lists, names, capabilities and subscriptions are those of a broker
with these servers alone. Rules go by the names that clients see at `/mcp`. Offers are made when they are asked for.
"""

from collections.abc import Iterable, Mapping, Set
from functools import partial

import attrs
from msgspec import Raw

from callboard.actors.broker.audience import BrokerAudience
from callboard.actors.broker.backend import Backend
from callboard.actors.broker.catalogue import Catalogue
from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.custom import MAX_NOTICE
from callboard.actors.broker.custom_told import custom_of, may_cross, tell_exchange, told, under_way_in
from callboard.actors.broker.leases import SHARED, are_of_one_client
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.broker.policy import Profile, ServerChoice
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.extensions import has_declared_any
from callboard.actors.server.host import Host
from callboard.actors.server.open_session import OpenSession
from callboard.actors.terms import Terms
from callboard.codecs.caller import ANONYMOUS, Caller
from callboard.codecs.envelope import Notification
from callboard.codecs.members import write_members


@attrs.define(eq=False)
class BrokerPaths:
    """The hosts of all paths, by their names: there are as many as servers and profiles at most."""

    host: Host
    offer: BrokerOffer
    audience: BrokerAudience
    profiles: dict[str, Profile] = attrs.field(factory=dict, init=False)
    _hosts: dict[str, Host] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.offer.on_custom = self.tell_clients
        self.host.hear = partial(self._hear, self.offer)

    def configure(self, profiles: Iterable[Profile]) -> None:
        """These are the profiles from now on."""
        self.profiles = {one.name: one for one in profiles}
        for name, offer in self.offer.narrowed.items():
            choice = self._choice(name)
            if choice is not None and choice != offer.choice:
                offer.choice = choice
                offer.follow(self.offer)

    def names(self) -> list[str]:
        """All paths that there are."""
        return list(dict.fromkeys([*self.profiles, *self.offer.backends]))

    def find(self, name: str, caller: Caller) -> Host | None:
        """See `PathFinder`. A profile is known to a caller that knows one of its servers."""
        choice = self._choice(name)
        if choice is None:
            return None
        rules = self.host.rules
        if rules is not None and not any(rules.sees_server(caller, server) for server in choice.servers):
            return None
        return self._hosts.get(name) or self._open(name, choice)

    def _choice(self, name: str) -> ServerChoice | None:
        profile = self.profiles.get(name)
        if profile is not None:
            return ServerChoice(profile.servers, profile.tools)
        return ServerChoice((name,), is_own=True) if name in self.offer.backends else None

    def _open(self, name: str, choice: ServerChoice) -> Host:
        main = self.offer
        whole = main.catalogue
        offer = BrokerOffer(
            main.info,
            Catalogue(whole.approve, whole.seal, whole.wall),
            main.revisions,
            transparent=main.transparent,
            tasks=main.tasks,
            choice=choice,
        )
        offer.adopt(main.own)
        main.narrow(name, offer)
        audience = BrokerAudience(offer.find_resource, self.audience.fan_out, main.transparent)
        offer.on_lists = audience.lists_changed
        found = self._hosts[name] = self.host.at(name, offer, audience)
        found.hear = partial(self._hear, offer)
        return found

    # Notifications of extensions.

    def _hear(self, offer: BrokerOffer, notification: Notification, terms: Terms | None, session: SessionKey) -> bool:
        """A notification of a client that the specification does not have: for an extension of the broker, or for each
        backend that it may be for."""
        if offer.own is not None and offer.own.hear(notification, terms):
            return True
        rules, caller = self.host.rules, ANONYMOUS if terms is None else terms.caller
        frame = write_members({"jsonrpc": "2.0", "method": notification.method, "params": notification.members})
        if not may_cross(notification.method) or len(frame) > MAX_NOTICE:
            return False
        is_taken = False
        for backend in offer.added.owners(notification.method, rules, caller):
            key = SHARED if terms is None else backend.keys.of_session(terms, session)
            is_taken |= offer.added.tell(backend, key, caller.key, notification.method, frame)
        return is_taken

    def tell_clients(
        self, backend: Backend, connection: BackendConnection, method: str, params: Mapping[str, Raw]
    ) -> None:
        """A notification of a backend that the specification does not have, for clients that have declared an extension
        of the backend's that crosses: the sessions on the connection that it came by, and a request that is alone
        there. What a modern backend says is about a request: it is for the client of all that are under way, and lost
        if another client gave one up a moment ago. What comes later than that, or after the answer, cannot be told from
        what is about a request of another client."""
        extensions = custom_of(backend)
        if not extensions or not may_cross(method):
            return
        asking = [use for use in connection.uses if use.exchange is not None]
        is_clear = bool(asking) and not connection.given_up.is_of_others(asking[-1])
        latest = asking[-1].exchange if is_clear else None
        if connection.speaks_for_all:
            if latest is not None and are_of_one_client(asking):
                tell_exchange(backend, latest, method, params)
            return
        news = told(method, params)
        under_way = under_way_in(asking)
        for session in list(self.host.clients.values()):
            if not self._hears(session, backend, connection, extensions):
                continue
            if (exchange := under_way.get(session.key)) is not None:  # it may have no other stream
                tell_exchange(backend, exchange, method, params)
            elif (slot := session.key.home) is not None:
                slot.outlet.send_nowait(news)
        if latest is not None and latest.session is None and are_of_one_client(connection.uses):
            tell_exchange(backend, latest, method, params)

    def _hears(
        self, session: OpenSession, backend: Backend, connection: BackendConnection, extensions: Set[str]
    ) -> bool:
        terms, offer, rules = session.terms, session.host.offer, self.host.rules
        if terms is None or not isinstance(offer, BrokerOffer) or offer.backends.get(backend.name) is not backend:
            return False
        if not has_declared_any(terms.capabilities, extensions):
            return False
        if rules is not None and not rules.sees_server(session.caller, backend.name):
            return False
        return backend.keys.of_session(terms, session.key) == connection.key
