"""Which connections to a backend a request may use."""

import attrs

from callboard.actors.broker.leases import EVERYBODY, SHARED, ConnectionKey, sharer
from callboard.actors.broker.personal import CallerReach
from callboard.actors.broker.policy import Share
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.exchange import Exchange
from callboard.actors.terms import Terms
from callboard.codecs.bridge.askable import NOTHING, Signature, askable
from callboard.codecs.bridge.transparent import Transparent
from callboard.codecs.caller import Caller


@attrs.frozen(eq=False)
class BackendKeys:
    """The keys of the connections to one backend: by who shares one, and by what clients can be asked."""

    share: Share
    transparent: Transparent

    def of_request(self, terms: Terms, exchange: Exchange | None) -> ConnectionKey:
        """The connections that a request may use."""
        signature = NOTHING if exchange is None else self.transparent.signature_of(terms.capabilities)
        return self._key(terms, signature, None if exchange is None else exchange.session)

    def of_session(self, terms: Terms, session: SessionKey) -> ConnectionKey:
        """The connections that requests of a session may use."""
        is_lasting = terms.revision.dialect.has_sessions
        return self._key(terms, self.transparent.signature_of(terms.capabilities), session if is_lasting else None)

    def _key(self, terms: Terms, signature: Signature, session: SessionKey | None) -> ConnectionKey:
        who = sharer(self.share, terms.principal)
        if session is not None and (askable(signature) or self.share == "session"):
            return ConnectionKey(session, signature, who)  # what it is asked, only this session can answer
        return ConnectionKey(who, signature) if who != EVERYBODY or signature else SHARED


def personal_key(caller: Caller, personal: CallerReach, key: ConnectionKey) -> ConnectionKey:
    """The same connections, but only those of *caller*. Raises `NotAuthorized`."""
    mark = personal.mark(caller)
    who = key.who if isinstance(key.who, SessionKey) else caller.key
    return ConnectionKey(who, key.signature, caller.key, mark, caller)
