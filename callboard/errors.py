"""Every exception that callboard raises.

The class names the fault. `PeerError`: the peer broke the protocol, and gets an error response. `RequestFailed`: a
request ended without a result, and its sender gets an error response. `ActorError`: an actor failed, and its supervisor
restarts it or gives up.

Facts are keyword attributes; the message is built from them once. `code` is the JSON-RPC error code.
"""

import math
from collections.abc import Iterable
from typing import ClassVar, Final

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002
HEADER_MISMATCH: Final = -32020
MISSING_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
URL_ELICITATION_REQUIRED: Final = -32042

# callboard's own codes lie outside -32768..-32000, which belongs to JSON-RPC and to the specification.
BACKEND_GONE: Final = -31001
TIMED_OUT: Final = -31002
OVERLOADED: Final = -31003
DRAINING: Final = -31004
DEFINITION_CHANGED: Final = -31005
INSUFFICIENT_SCOPE: Final = -31006
NOT_APPROVED: Final = -31007

CODES: Final = frozenset(value for name, value in tuple(globals().items()) if name.isupper() and isinstance(value, int))
"""All of these. A backend may answer with any other."""


class CallboardError(Exception):
    """Base class of all exceptions of callboard."""

    brief: str | None = None
    """Text for peers, if the message contains text of third parties or local paths."""
    for_operator: str | None = None
    """Text for the log and the terminal instead of the message."""


class CannotServe(CallboardError):
    """The server cannot start: invalid address, address in use, invalid certificate. The message is one line."""


class CannotRead(CannotServe):
    """A file could not be read. Its contents may be valid, and a later attempt may succeed."""


class PeerError(CallboardError):
    """The peer broke the protocol. It gets an error response; no actor restarts."""

    code: ClassVar[int] = INVALID_REQUEST
    request_id: int | str | None = None
    """Id of the request that the error answers, if the message could be read so far."""
    is_answer: bool = False
    """Whether the message was a response. An error with its id would end a request of the peer with the same id."""
    data: object = None
    """Contents of `error.data`: a JSON value, or a model of the revision."""


class ParseError(PeerError):
    """The message is not valid JSON, or not JSON that the protocol allows."""

    code = PARSE_ERROR


class InvalidRequest(PeerError):
    """The message is JSON, but not a valid JSON-RPC message in this place."""

    code = INVALID_REQUEST


class FrameTooLarge(InvalidRequest):
    """A message exceeds a size limit: HTTP status 413, WebSocket close code 1009."""

    def __init__(self, what: str, *, limit: int) -> None:
        super().__init__(f"{what} exceeds {limit}")
        self.limit = limit


class MethodNotFound(PeerError):
    """The method does not exist in this revision, or its capability was not declared."""

    code = METHOD_NOT_FOUND


class InvalidParams(PeerError):
    """The params of a known method are invalid."""

    code = INVALID_PARAMS


class InvalidState(InvalidParams):
    """The `requestState` was not sealed for this request, or has expired.

    All causes have the same message, so that a client cannot use it as an oracle.
    """

    def __init__(self) -> None:
        super().__init__("Invalid or expired requestState")


class HeaderMismatch(PeerError):
    """A mirrored HTTP header is missing, malformed, or differs from the body."""

    code = HEADER_MISMATCH


class ResourceNotFound(PeerError):
    """No resource has this URI. Legacy revisions have a code for it; the modern one uses invalid params."""

    code = RESOURCE_NOT_FOUND

    def __init__(self, uri: str) -> None:
        super().__init__("Resource not found")
        self.data = {"uri": uri}


class MissingCapability(PeerError):
    """The request needs a capability that the client did not declare: *required*."""

    code = MISSING_CLIENT_CAPABILITY

    def __init__(self, what: str, required: object) -> None:
        super().__init__(f"the client did not declare {what}")
        self.data = {"requiredCapabilities": required}


class UnsupportedVersion(PeerError):
    """The peer requests a protocol revision that is not supported."""

    code = UNSUPPORTED_PROTOCOL_VERSION

    def __init__(self, requested: str, supported: list[str]) -> None:
        super().__init__("Unsupported protocol version")
        self.data = {"supported": supported, "requested": requested[:64]}


class InvalidDefinition(PeerError):
    """The definition of a tool or template violates the specification. It is omitted, and the reason is logged."""


class RequestFailed(CallboardError):
    """A request ended without a result. Its sender gets an error response."""

    code: ClassVar[int] = INTERNAL_ERROR
    data: object = None
    """As that of a `PeerError`."""


class UrlRequired(RequestFailed):
    """The user has to open web pages before the request can be served: *data* names them (2025-11-25)."""

    code = URL_ELICITATION_REQUIRED

    def __init__(self, message: str, data: object) -> None:
        super().__init__(message)
        self.data = data


class HandlerFailed(RequestFailed):
    """A handler raised an exception that is not for the client. The log has its text."""


class RequestTimedOut(RequestFailed):
    """No response arrived in time."""

    code = TIMED_OUT

    def __init__(self, *, after: float, hint: str = "") -> None:
        super().__init__(f"timed out: no response within {after:g} s{hint}")
        self.after = after


class BackendTimedOut(RequestTimedOut):
    """A backend did not respond in time: in that of its setting *limit*."""

    def __init__(self, *, after: float, backend: str, limit: str) -> None:
        super().__init__(after=after, hint=f" from {backend}: `{limit}` in the broker's configuration")
        self.data = {"origin": "broker", "reason": "deadline", "backend": backend}


class Overloaded(RequestFailed):
    """A limit is reached: one of this peer, or, with *for_all*, one that all clients share."""

    code = OVERLOADED

    def __init__(self, message: str, *, for_all: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.for_all = for_all
        self.retry_after = retry_after
        """Seconds after which the same may be tried again, if that is known."""
        if retry_after is not None:
            self.data = {"retryAfter": math.ceil(retry_after)}


class Draining(RequestFailed):
    """The server is shutting down and accepts no new requests."""

    code = DRAINING

    def __init__(self) -> None:
        super().__init__("the server is shutting down")


class InsufficientScope(RequestFailed):
    """The caller's token lacks scopes, and these are all that it lacks. A new token with them would do."""

    code = INSUFFICIENT_SCOPE

    def __init__(self, scopes: Iterable[str]) -> None:
        self.scopes = tuple(sorted(set(scopes)))
        super().__init__(f"the token needs these scopes: {' '.join(self.scopes)}")
        self.data = {"requiredScopes": list(self.scopes)}


class NotApproved(RequestFailed):
    """A call that a person must approve was not approved."""

    code = NOT_APPROVED


class BadToken(CallboardError):
    """A token or a proof is no good. Clients hear *description* alone, which is one text for all causes but a few."""

    def __init__(self, description: str = "the token is invalid", *, reason: str = "", scheme: str = "Bearer") -> None:
        super().__init__(description)
        self.description = description
        self.reason = reason
        """The cause, for the log and the audit log. Never a part of the token."""
        self.scheme = scheme
        """The scheme that the client is to use: `Bearer` or `DPoP`."""
        self.error = "invalid_token"
        self.nonce: str | None = None


class IssuerUnavailable(CallboardError):
    """Whether a token is good cannot be told now: its issuer does not answer. Clients are to come again."""


class PeerRefused(RequestFailed):
    """The client answered a request of the server with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"the client returned an error: {message} ({code})")
        self.peer_code = code


class CannotConnect(CallboardError):
    """No connection to the server: unreachable, refused, no MCP server, or no revision in common."""

    is_refused: bool = False
    """Whether the connection was refused. Unlike a network outage, that seldom ends by itself."""


class InvalidTarget(CannotConnect):
    """What was named is no server: a malformed URL, or a file, module, name or entry that is not there."""


class ServerRefused(RequestFailed):
    """The server answered a request with a JSON-RPC error: its code, message and data."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(f"{message} ({code})")
        self.error_code = code
        self.error_message = message
        self.data = data


class BackendRefused(RequestFailed):
    """A backend answered with an error, forwarded to the client, translated to its revision if that differs."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error_code = code
        self.data = data


class BackendGone(RequestFailed):
    """A backend is unreachable, or was lost before it answered. Other backends are not affected."""

    code = BACKEND_GONE

    def __init__(
        self, message: str, *, backend: str, reason: str = "server lost", exit_code: int | None = None
    ) -> None:
        super().__init__(message)
        self.data: dict[str, object] = {"origin": "broker", "reason": reason, "backend": backend}
        if exit_code is not None:
            self.data["exitCode"] = exit_code


class HomeGone(RequestFailed):
    """The worker that had the session ended before it answered."""

    code = BACKEND_GONE

    def __init__(self) -> None:
        super().__init__("the worker that had this request ended; whether it was done is not known")
        self.data = {"origin": "server", "reason": "home lost"}


class DefinitionChanged(RequestFailed):
    """The definition of a pinned tool or skill has changed since the operator approved it."""

    code = DEFINITION_CHANGED

    def __init__(self, name: str, *, pinned: str, found: str) -> None:
        super().__init__(f"the definition of {name[:128]} has changed and is not approved")
        self.data: dict[str, str] = {"origin": "broker", "pinned": pinned, "found": found}


class ConnectionLost(RequestFailed):
    """The connection was lost before the server answered. The request may or may not have been executed."""

    code = BACKEND_GONE
    is_unread: bool = False
    """Whether the server ended without having read the request."""


class SessionGone(ConnectionLost):
    """The server has ended the session. A new one can be opened; requests in flight are not repeated."""


class HttpRefused(RequestFailed):
    """The server answered with an HTTP error status. *text* is from the body, *error* the JSON-RPC error in it."""

    def __init__(self, status: int, text: str, *, error: object = None) -> None:
        text = " ".join(text.split())  # the body may be an HTML page
        super().__init__(f"HTTP {status}: {text}" if text else f"HTTP {status}")
        self.brief = f"HTTP {status}"
        self.status = status
        self.error = error


class TaskCancelled(RequestFailed):
    """A task was cancelled before it had a result."""

    def __init__(self) -> None:
        super().__init__("the task was cancelled")


class BadAnswer(RequestFailed):
    """The response is invalid, or not for this request."""


class TooManyRounds(RequestFailed):
    """The server asked for input more often than allowed, without a result."""

    def __init__(self, *, rounds: int) -> None:
        super().__init__(f"no result after {rounds} rounds of input")
        self.rounds = rounds


class NotAuthorized(RequestFailed):
    """Authorization failed. The message is one line, and never contains a secret."""


class UnsafeUrl(NotAuthorized):
    """A server named a URL that is not fetched: not https, or in a private network. No request was sent."""


class FetchFailed(NotAuthorized):
    """A document needed for authorization could not be fetched, or is invalid."""


class ActorError(CallboardError):
    """An error of an actor or supervisor."""


class AskFailed(ActorError):
    """An ask ended without an answer."""


class AskTimedOut(AskFailed):
    """The actor did not answer in time."""

    def __init__(self, path: str, *, within: float) -> None:
        super().__init__(f"{path} did not answer within {within:g} s")
        self.path = path
        self.within = within


class ActorGone(AskFailed):
    """The actor ended before it answered, or crashed while it handled the question."""

    def __init__(self, path: str, *, why: str) -> None:
        super().__init__(f"{path} has ended: {why}")
        self.path = path
        self.why = why


class AskDropped(ActorGone):
    """The question was dropped from a full mailbox."""


class NameTaken(ActorError):
    """A running sibling has the same name."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} already exists")
        self.path = path


class SupervisorClosed(ActorError):
    """The supervisor accepts no children: it has not started, is stopping, or has ended."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} accepts no children: not running")
        self.path = path


class StartFailed(ActorError):
    """A child failed to start, and so did its supervisor. The cause is chained."""

    def __init__(self, path: str, *, why: str) -> None:
        super().__init__(f"{path} failed to start: {why}")
        self.path = path
        self.why = why


class TooManyRestarts(ActorError):
    """A supervisor exceeded its restart intensity and ended. Its own supervisor handles that."""

    def __init__(self, path: str, *, restarts: int, per: float, child: str, why: str) -> None:
        super().__init__(f"{path}: more than {restarts} restarts in {per:g} s; last {child}: {why}")
        self.path = path
        self.restarts = restarts
        self.per = per
        self.child = child
        self.why = why


class MessageTooHeavy(ActorError):
    """A message is heavier than an empty mailbox allows."""

    def __init__(self, *, weight: int, limit: int) -> None:
        super().__init__(f"message of weight {weight} exceeds the mailbox limit of {limit}")
        self.weight = weight
        self.limit = limit
