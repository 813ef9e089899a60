"""Calls that a person must approve of before they begin: their caller, or an operator."""

import secrets
from collections.abc import Callable, Set
from typing import Final, Protocol, runtime_checkable

import attrs
import trio
from msgspec import Raw

from callboard.actors.rules import APPROVALS, Approval
from callboard.actors.server.client_requests import ClientRequest
from callboard.actors.server.exchange import Exchange
from callboard.actors.shares import Shares
from callboard.codecs.approval import DIGITS, ShownCall, shown_call
from callboard.codecs.caller import caller_of_key
from callboard.codecs.revisions import (
    BooleanSchema,
    ElicitRequestFormParams,
    ElicitResult,
    Model,
    RequestedSchema,
    declares,
)
from callboard.errors import MissingCapability, NotApproved, PeerRefused, RequestTimedOut
from callboard.supervisor import get_logger
from callboard.supervisor.audit import note

log = get_logger("callboard.approvals")

MAX_WAITING: Final = 64
"""Most calls of all callers that wait for an operator: more than a person can look at in the time they wait."""

MAX_WAITING_EACH: Final = 4
"""Most of them of one caller, so that one cannot keep the others out."""

APPROVAL_TIME: Final = 600.0
"""Seconds that a call waits for an operator, unless the configuration says otherwise."""

DIGESTED_HERE: Final = 32 * 1024
"""Bytes of arguments up to which they are digested at once; a thread does it for more."""

_FORM: Final = RequestedSchema(
    properties={"approve": BooleanSchema(title="Approve", description="Whether the call may be made, this once.")},
    required=["approve"],
)


@runtime_checkable
class HoldsOpen(Protocol):
    """A way to a client that would fall silent, and be taken for dead: the response to an HTTP request."""

    def hold_open(self) -> None:
        """Begin the stream, so that it is kept alive."""


@attrs.define(eq=False)
class WaitingCall:
    """A call that waits for an operator."""

    id: str
    """Random: what the operator names it by."""
    call: ShownCall
    principal: str
    since: float
    is_approved: bool | None = attrs.field(default=None, init=False)
    why: str = attrs.field(default="", init=False)
    """Why not, if it is not."""
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def look_again(self) -> None:
        """The rules are others now, or the operator has said something."""
        self._changed.set()

    async def wait_change(self) -> bool | None:
        """What the operator said, if that is what has changed."""
        await self._changed.wait()
        self._changed = trio.Event()
        return self.is_approved


@attrs.define(eq=False)
class Approvals:
    """The calls of this process that wait for an operator."""

    time: float = APPROVAL_TIME
    """Seconds that a call waits."""
    waiting: dict[str, WaitingCall] = attrs.field(factory=dict, init=False)
    """By their ids, the oldest first."""
    _shares: Shares = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        most, each = MAX_WAITING, MAX_WAITING_EACH
        self._shares = Shares("calls wait for approval", most, each, each_address=each)

    def settle(self, id_: str, *, is_approved: bool, why: str = "the operator has declined") -> bool:
        """The operator says yes, or no and *why*. False if no such call waits: any more, or in this process."""
        found = self.waiting.pop(id_, None)
        if found is None:
            return False
        found.is_approved, found.why = is_approved, why
        found.look_again()
        return True

    def end_all_of(self, principals: Set[str], why: str) -> None:
        """Refuse the calls of *principals*: their time does not pass, so a session that ends would wait for them."""
        for one in [one for one in self.waiting.values() if one.principal in principals]:
            self.settle(one.id, is_approved=False, why=why)

    def look_again(self) -> None:
        """The rules are others now: what they hide waits no longer."""
        for one in self.waiting.values():
            one.look_again()

    async def wait(self, exchange: Exchange, call: ShownCall, decide: Callable[[], Approval | None]) -> bool:
        """Wait for the operator's yes. False if rules have changed so that none is needed.

        The time of the call does not pass meanwhile. Raises `Overloaded`, `NotApproved` for a no and for one that comes
        too late, and what *decide* does.
        """
        account = exchange.slot.account
        self._shares.take(account)
        one = WaitingCall(secrets.token_hex(6), call, exchange.terms.principal, trio.current_time())
        self.waiting[one.id] = one
        exchange.waits_for_operator = one.id
        try:
            await trio.lowlevel.checkpoint()  # it is an actor after that: in the tree, and with a clock
            exchange.pause()
            if isinstance(way := exchange.slot.outlet, HoldsOpen):
                way.hold_open()
            with trio.move_on_after(self.time):
                while (is_approved := await one.wait_change()) is None:
                    if decide() != "operator":
                        return False
                if not is_approved:
                    raise NotApproved(f"not approved: {one.why}")
                return True
            raise NotApproved(f"not approved: no operator has answered within {self.time:g} s")
        finally:
            exchange.go_on()
            exchange.waits_for_operator = None
            self.waiting.pop(one.id, None)
            self._shares.give_back(account)


async def approved(
    exchange: Exchange, server: str, tool: str, arguments: Raw | None, decide: Callable[[], Approval | None]
) -> None:
    """Go on when the person that *decide* names has approved of this call.

    The yes is for these arguments: what is called afterwards must be what was shown. Where rules change meanwhile, they
    count as they are in the end. Raises `NotApproved`, `Overloaded`, and what *decide* does.
    """
    by = decide()
    if by is None or exchange.carried is not None:  # the state of an earlier run of the same call: it was approved
        return
    if arguments is not None and len(arguments) > DIGESTED_HERE:
        call = await trio.to_thread.run_sync(shown_call, server, tool, arguments)
    else:
        call = shown_call(server, tool, arguments)
    had = -1
    while by is not None and APPROVALS.index(by) > had:
        is_approved = True
        try:
            if by == "caller":
                await _ask_caller(exchange, call)
            else:
                is_approved = await exchange.engine.approvals.wait(exchange, call, decide)
        except NotApproved:
            _tell(exchange, call, by, is_approved=False)
            raise
        if is_approved:
            _tell(exchange, call, by, is_approved=True)
            had = APPROVALS.index(by)
        by = decide()


def _tell(exchange: Exchange, call: ShownCall, by: Approval, *, is_approved: bool) -> None:
    event, caller = "call_approved" if is_approved else "call_denied", caller_of_key(exchange.terms.principal)
    log.info(event, server=call.server, tool=call.tool, by=by, digest=call.digest[:DIGITS])
    about = {"method": exchange.request.method, "server": call.server, "name": call.tool}
    note(event, caller=caller, **about, outcome="ok" if is_approved else "refused", by=by, digest=call.digest)


async def _ask_caller(exchange: Exchange, call: ShownCall) -> None:
    """Raises `NotApproved`, and `Overloaded` where too many wait."""
    terms, asks_in_results = exchange.terms, exchange.terms.revision.dialect.asks_in_results
    if not declares(terms.capabilities, "elicitation.form") or (exchange.session is None and not asks_in_results):
        raise NotApproved("not approved: the caller must approve of this call, and its client cannot ask (elicitation)")
    question = ClientRequest("elicitation/create", ElicitRequestFormParams(message=call.text(), requested_schema=_FORM))
    try:
        (answer,) = await (exchange.ask([question], at_once=True) if asks_in_results else _in_time(exchange, question))
    except (MissingCapability, PeerRefused):
        raise NotApproved("not approved: the client did not ask the caller") from None
    except RequestTimedOut:
        raise NotApproved("not approved: the caller has not answered in time") from None
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        raise NotApproved("not approved: the caller has declined")
    if not isinstance(answer.content, dict) or answer.content.get("approve") is not True:
        raise NotApproved("not approved: the caller has not said yes")


async def _in_time(exchange: Exchange, question: ClientRequest) -> list[Model]:
    """Ask while the request waits. Its own time does not pass meanwhile."""
    await trio.lowlevel.checkpoint()
    exchange.pause()
    try:
        return await exchange.ask([question])
    finally:
        exchange.go_on()
