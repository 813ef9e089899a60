"""Methods and notifications of extensions that cross: they go to the server that declares the extension."""

from collections.abc import Sequence
from itertools import count
from typing import Any, Final, Never

import attrs

from callboard import tree
from callboard.actors.broker.backend import Backend
from callboard.actors.broker.custom_told import custom_of, may_cross
from callboard.actors.broker.forward import Forward, ForwardTarget
from callboard.actors.broker.leases import SHARED, ConnectionKey, Lease
from callboard.actors.broker.routes import BrokerRoutes
from callboard.actors.rules import AccessRules
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.extensions import AddedMethod, added_row
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import Model
from callboard.errors import CallboardError, InvalidParams, MethodNotFound, SupervisorClosed
from callboard.supervisor import Actor

MAX_NOTICE: Final = 64 * 1024
"""Largest notification of a client that goes to a backend, in bytes."""

_NAMES: Final = count(1)


class CustomMethods(dict[str, AddedMethod]):
    """The methods that extensions add to the offer of a broker. Those that are in it, it serves itself; `get` finds any
    other that the specification does not have, for a backend that declares an extension which crosses.

    Those are not in it: a client may name as many as it likes. Each call looks whether its method is in it, so it is a
    dictionary.
    """

    def __init__(self, routes: BrokerRoutes) -> None:
        super().__init__()
        self.routes = routes
        self.handler: Handler = self.forward
        """What serves a method that crosses: `forward`, with interceptors around it if there are any."""

    def get(self, name: str, default: Any = None, /) -> Any:
        known = super().get(name)
        if known is not None:
            return known
        if not may_cross(name) or not any(map(self.has_custom, self.routes.backends.values())):
            return default
        return AddedMethod(row=added_row(name), handler=self.handler)

    def has_custom(self, backend: Backend) -> bool:
        """Whether a backend declares an extension that crosses, and may have methods of its own."""
        return bool(custom_of(backend))

    def owners(self, method: str, rules: AccessRules | None, caller: Caller) -> Sequence[Backend]:
        """The backends that a method may belong to, as far as *caller* may know of them: of several, those with an
        extension of the method's own domain, if there are any."""
        found = [
            backend
            for name, backend in self.routes.backends.items()
            if self.has_custom(backend) and (rules is None or rules.sees_server(caller, name))
        ]
        domain = method.removeprefix("notifications/").partition("/")[0]
        same = [one for one in found if any(name.partition("/")[0] == domain for name in custom_of(one))]
        return same or found

    async def forward(self, exchange: Exchange) -> Model | Forwarded:
        request, terms = exchange.request, exchange.terms
        owners = self.owners(request.method, exchange.engine.rules, terms.caller)
        if not owners:
            raise MethodNotFound(f"{request.method} is not supported by this server")
        if len(owners) > 1:
            error = InvalidParams(f"several servers may have {request.method}: ask one of them at /mcp/SERVER")
            error.data = {"origin": "broker", "candidates": [one.name for one in owners]}
            raise error
        target = ForwardTarget(backend=owners[0], find_headers=None)
        return await CustomForward(request, terms, exchange.route, target, exchange).run()

    # Notifications of clients.

    def tell(self, backend: Backend, key: ConnectionKey, account: str, method: str, frame: bytes) -> bool:
        """Have a notification sent to a backend, on a connection of *key*. False if it is not taken."""
        try:
            backend.notices.take(account)
        except CallboardError:
            return False
        answers = backend.group.supervisor_of(tree.ANSWERS)
        try:
            answers.spawn(CustomNotice(backend, key, account, method, frame), name=f"notice-{next(_NAMES)}", shutdown=0)
        except SupervisorClosed:
            backend.notices.give_back(account)
            return False
        return True


class CustomForward(Forward):
    """A request of an extension: all of its params are its own."""

    __slots__ = ()

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = {key: value for key, value in self.request.members.items() if key != "_meta"}
        if meta := self.traced(self.connection.metas.of(self.terms, self.route)):
            body["_meta"] = meta
        return body


@attrs.define(eq=False)
class CustomNotice(Actor[Never]):
    """Sends one notification of a client to a backend."""

    mailbox = None

    backend: Backend
    key: ConnectionKey
    account: str
    method: str
    frame: bytes

    async def run(self) -> None:
        backend, use = self.backend, Lease()
        try:
            primary = await backend.wait_up()
            if self.key == SHARED or primary.revision.dialect.terms_per_request:
                connection = primary
                primary.begin(use)
            else:
                connection = await backend.pool.take(self.key, use, self.account, alone=False)
            try:
                await connection.conversation.tell(self.method, self.frame)
            finally:
                backend.give_back(connection, use)
        except CallboardError:
            return  # the server is not there: as a notification that is lost on its way
        finally:
            backend.notices.give_back(self.account)
