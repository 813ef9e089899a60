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
    HEADER_MISMATCH,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    BadAnswer,
    CannotConnect,
    HttpRefused,
    RequestTimedOut,
    ServerRefused,
)

PROBE_TIME: Final = 5.0
"""Seconds for a server on a pipe to answer whether it is modern. Legacy ones may keep silent."""

HANDSHAKE: Final = Patience(timeout=30.0, cap=30.0)

_MODERN_CODES: Final = frozenset((HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION))
_SNAPSHOT_CODES: Final = frozenset((-32004,))  # what -32022 was called before it was published
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
    if wanted is None or not wanted.dialect.has_sessions:
        agreed = await _discover(conversation, wanted)
        if agreed is not None:
            return agreed
        if wanted is not None:
            raise CannotConnect(f"the server does not support {wanted}")
    try:
        return await _initialize(conversation, wanted or max(LEGACY))
    except ServerRefused as refused:
        # A modern server that took long to start was silent, too, and knows no handshake. Now it is awake.
        agreed = None if wanted is not None or conversation.link.is_http else await _discover(conversation, None)
        if agreed is None:
            raise CannotConnect(f"the server refused the handshake: {refused}") from None
        return agreed


async def _discover(conversation: Conversation, wanted: Revision | None) -> Agreed | None:
    """Ask a modern server about itself; None if it is a legacy one."""
    conversation.revision = wanted or LATEST
    patience = HANDSHAKE if conversation.link.is_http else Patience(timeout=PROBE_TIME, cap=PROBE_TIME)
    for _ in range(2):
        try:
            result = await conversation.once("server/discover", RequestParams(), patience=patience)
        except (ServerRefused, HttpRefused) as refused:
            code, data = refusal(refused)
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
            if conversation.link.is_http:
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


async def _initialize(conversation: Conversation, wanted: Revision) -> Agreed:
    """Raises `ServerRefused` if the server wants no handshake."""
    conversation.revision = wanted
    params = InitializeRequestParams(
        protocol_version=wanted.value, capabilities=_answered(conversation), client_info=conversation.info
    )
    result = await conversation.once("initialize", params, patience=HANDSHAKE)
    if not isinstance(result, InitializeResult):
        raise BadAnswer("invalid response to initialize")
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
