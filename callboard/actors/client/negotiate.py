"""How a client finds out which era a server belongs to, and agrees with it on a revision."""

from typing import Final

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.client.conversation import Conversation, Patience
from callboard.codecs.envelope import ErrorResponse
from callboard.codecs.revisions import (
    LATEST,
    LEGACY,
    MODERN,
    ClientCapabilities,
    DiscoverResult,
    Implementation,
    InitializeRequestParams,
    InitializeResult,
    RequestParams,
    Revision,
    Revisions,
    ServerCapabilities,
)
from callboard.errors import (
    DRAINING,
    HEADER_MISMATCH,
    MISSING_CLIENT_CAPABILITY,
    OVERLOADED,
    UNSUPPORTED_PROTOCOL_VERSION,
    BadAnswer,
    CannotConnect,
    HttpRefused,
    RequestTimedOut,
    ServerRefused,
)
from callboard.supervisor.groups import own_nursery

PROBE_TIME: Final = 5.0
"""Seconds for a server on a pipe to answer whether it is modern, before the handshake of legacy ones begins as well."""

HANDSHAKE: Final = Patience(timeout=30.0, cap=30.0)

_MODERN_CODES: Final = frozenset((HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION))
_SNAPSHOT_CODES: Final = frozenset((-32004,))  # what -32022 was called before it was published
_BUSY_CODES: Final = frozenset((OVERLOADED, DRAINING))
_BUSY_STATUSES: Final = frozenset((429, 502, 503, 504))
"""What a server, or a proxy in front of it, says of the moment, and not of the revisions that it knows."""
_READ_SUPPORTED = msgspec.json.Decoder(dict[str, Raw])
_READ_NAMES = msgspec.json.Decoder(list[str])


@attrs.frozen(kw_only=True)
class Agreed:
    """The agreed revision, and the server's information and capabilities."""

    revision: Revision
    capabilities: ServerCapabilities
    info: Implementation | None
    instructions: str | None


async def agree(conversation: Conversation, wanted: Revision | None = None) -> Agreed:
    """Find the newest revision that both speak, or insist on *wanted*.

    Raises `CannotConnect`, and what the link raises.
    """
    if wanted is None and not conversation.link.is_http:
        return await _agree_on_pipe(conversation)
    if wanted is None or not wanted.dialect.has_sessions:
        agreed = await _discover(conversation, wanted)
        if agreed is not None:
            return agreed
        if wanted is not None:
            raise CannotConnect(f"the server does not support {wanted}")
    try:
        return await _begin(conversation, await _initialize(conversation, wanted or max(LEGACY)))
    except ServerRefused as refused:
        raise _refused(refused) from None


@attrs.define(eq=False)
class _Probe:
    """The question on a pipe whether a server is modern. The answer may come after the handshake was begun."""

    conversation: Conversation
    found: Agreed | None = attrs.field(default=None, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self) -> None:
        self.found = await _discover(self.conversation, None)
        self.ended.set()

    async def wait(self) -> Agreed | None:
        """What came of it so far, or comes of it before long."""
        with trio.move_on_after(PROBE_TIME):
            await self.ended.wait()
        return self.found


async def _agree_on_pipe(conversation: Conversation) -> Agreed:
    """Ask whether the server is modern, and begin the handshake as well if it keeps silent.

    A legacy server may not answer a method that it does not know, and a modern one may take long to start. A server
    that accepts the handshake has begun a legacy session, whatever it answers to the probe; of one that refuses it,
    the probe decides.
    """
    async with own_nursery(takes_first=True) as nursery:
        probe = _Probe(conversation)
        nursery.start_soon(probe.run)
        found, refused = await probe.wait(), None
        if found is None:
            try:
                result = await _initialize(conversation, max(LEGACY))
            except ServerRefused as error:
                found, refused = await probe.wait(), error
        nursery.cancel_scope.cancel()
    if found is not None:
        conversation.revision = found.revision
        return found
    if refused is not None:
        raise _refused(refused)
    return await _begin(conversation, result)


def _refused(refused: ServerRefused) -> CannotConnect:
    return CannotConnect(f"the server refused the handshake: {refused}")


async def _discover(conversation: Conversation, wanted: Revision | None) -> Agreed | None:
    """Ask a modern server about itself; None if it is a legacy one.

    Raises `CannotConnect`, what the link raises, and the refusal of a server that is too busy to say.
    """
    conversation.revision = wanted or LATEST
    for _ in range(2):
        try:
            asked = conversation.revision  # a handshake may be begun meanwhile, in another
            result = await conversation.once("server/discover", RequestParams(), patience=HANDSHAKE, revision=asked)
        except (ServerRefused, HttpRefused) as refused:
            code, data = refusal(refused)
            if code in _BUSY_CODES or getattr(refused, "status", 0) in _BUSY_STATUSES:
                raise
            named = _supported(code, data)
            better = max(MODERN & named, default=None)
            if better is None or wanted is not None:
                if code in _MODERN_CODES and not LEGACY & named:
                    raise CannotConnect(f"no revision in common: {refused}") from None
                return None
            conversation.revision = better
            continue
        except BadAnswer:
            return None  # some old ones answer any unknown method, and mean nothing by it
        except RequestTimedOut:
            if conversation.link.is_http or wanted is not None:
                raise
            return None
        return _discovered(conversation, result) if isinstance(result, DiscoverResult) else None
    return None


def _discovered(conversation: Conversation, result: DiscoverResult) -> Agreed | None:
    spoken = [revision for revision in MODERN if revision.value in result.supported_versions]
    if not spoken:
        return None
    conversation.revision = max(spoken)
    info = UNSET if result.meta is UNSET else result.meta.server_info
    return Agreed(
        revision=conversation.revision,
        capabilities=result.capabilities,
        info=None if info is UNSET else info,
        instructions=None if result.instructions is UNSET else result.instructions,
    )


def refusal(refused: ServerRefused | HttpRefused) -> tuple[int, object]:
    """Code and data of a refusal. One that HTTP carries may have no id, and so be no answer to anything."""
    if isinstance(refused, ServerRefused):
        return refused.error_code, refused.data
    error = refused.error
    return (error.code, error.data) if isinstance(error, ErrorResponse) else (0, None)


def _supported(code: int, data: object) -> Revisions:
    """The revisions that a refusal names, as far as they are known."""
    if code not in _MODERN_CODES | _SNAPSHOT_CODES or not isinstance(data, Raw):
        return frozenset()
    try:
        named = _READ_NAMES.decode(_READ_SUPPORTED.decode(data)["supported"])
    except (msgspec.MsgspecError, KeyError):
        return frozenset()
    return frozenset(revision for revision in Revision if revision.value in named)


def _answered(conversation: Conversation) -> ClientCapabilities:
    """The capabilities for a legacy server: it asks by requests, so each needs a callback."""
    declared, answers = conversation.capabilities, conversation.answering.can_answer
    return attrs.evolve(
        declared,
        sampling=declared.sampling if answers("sampling/createMessage") else UNSET,
        elicitation=declared.elicitation if answers("elicitation/create") else UNSET,
        roots=declared.roots if answers("roots/list") else UNSET,
    )


async def _initialize(conversation: Conversation, wanted: Revision) -> InitializeResult:
    """Raises `ServerRefused` if the server wants no handshake."""
    conversation.revision = wanted
    params = InitializeRequestParams(
        protocol_version=wanted.value, capabilities=_answered(conversation), client_info=conversation.info
    )
    result = await conversation.once("initialize", params, patience=HANDSHAKE, revision=wanted)
    if not isinstance(result, InitializeResult):
        raise BadAnswer("invalid response to initialize")
    return result


async def _begin(conversation: Conversation, result: InitializeResult) -> Agreed:
    """Use the revision of *result*, and tell the server that the session has begun."""
    revision = next((known for known in LEGACY if known.value == result.protocol_version), None)
    if revision is None:
        raise CannotConnect(f"the server uses the revision {result.protocol_version[:64]!r}, which is not supported")
    conversation.revision = revision
    conversation.link.agree(revision)
    await conversation.notify("notifications/initialized")
    await trio.lowlevel.checkpoint()
    return Agreed(
        revision=revision,
        capabilities=result.capabilities,
        info=result.server_info,
        instructions=None if result.instructions is UNSET else result.instructions,
    )
