"""Every exception, named for whose fault it is.

Three questions decide the class. Did the peer break the protocol? Answer it (`PeerError`). Did a request end
without a result? Tell its sender (`RequestFailed`). Did something here break? Let it crash: the supervisor
decides (`ActorError` says what it decided).

Facts are keyword attributes; the message is built from them once. `code` is what stands on the wire.
"""

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


class CallboardError(Exception):
    """Root of everything callboard raises on purpose."""

    brief: str | None = None
    """What strangers may be told, where the message has words of others or paths of ours in it."""
    for_operator: str | None = None
    """What the operator is told instead, in the log and in what is printed."""


class CannotServe(CallboardError):
    """What was asked for cannot be served: a wrong or taken address, a bad certificate. One line says which and why."""


class CannotRead(CannotServe):
    """A file could not be read. That says nothing about its contents: it may be readable a moment later."""


class PeerError(CallboardError):
    """The peer broke the protocol. It is answered; nothing here restarts."""

    code: ClassVar[int] = INVALID_REQUEST
    request_id: int | str | None = None
    """Whose answer this is, where the message was whole enough to tell."""
    is_answer: bool = False
    """Whether the message was meant to answer: an error with its id would end a request of the peer's with the same."""
    data: object = None
    """What goes into `error.data`: a JSON value or a model of the revision's."""


class ParseError(PeerError):
    """The bytes are not the JSON that the protocol allows."""

    code = PARSE_ERROR


class InvalidRequest(PeerError):
    """JSON, but not a JSON-RPC message that may stand here."""

    code = INVALID_REQUEST


class FrameTooLarge(InvalidRequest):
    """A frame passed one of the limits on its size. HTTP says 413, WebSocket 1009."""

    def __init__(self, what: str, *, limit: int) -> None:
        super().__init__(f"{what} exceeds {limit}")
        self.limit = limit


class MethodNotFound(PeerError):
    """No such method in this revision, or its capability is off."""

    code = METHOD_NOT_FOUND


class InvalidParams(PeerError):
    """The method is known, its params are wrong."""

    code = INVALID_PARAMS


class InvalidState(InvalidParams):
    """A `requestState` that we did not seal for this request. One text for every cause: no oracle."""

    def __init__(self) -> None:
        super().__init__("Invalid or expired requestState")


class HeaderMismatch(PeerError):
    """A mirrored HTTP header is missing, malformed, or differs from the body."""

    code = HEADER_MISMATCH


class ResourceNotFound(PeerError):
    """No resource has this URI. Legacy revisions have a code for it, the modern one calls it invalid params."""

    code = RESOURCE_NOT_FOUND

    def __init__(self, uri: str) -> None:
        super().__init__("Resource not found")
        self.data = {"uri": uri}


class MissingCapability(PeerError):
    """The request needs something that the client did not declare. *required* are the capabilities that would do."""

    code = MISSING_CLIENT_CAPABILITY

    def __init__(self, what: str, required: object) -> None:
        super().__init__(f"the client does not declare {what}")
        self.data = {"requiredCapabilities": required}


class UnsupportedVersion(PeerError):
    """The peer wants a revision that is not spoken here."""

    code = UNSUPPORTED_PROTOCOL_VERSION

    def __init__(self, requested: str, supported: list[str]) -> None:
        super().__init__("Unsupported protocol version")
        self.data = {"supported": supported, "requested": requested[:64]}


class InvalidDefinition(PeerError):
    """A tool or template is defined in a way the specification forbids. It is left out, and the reason logged."""


class RequestFailed(CallboardError):
    """A request ended without a result. Its sender gets an error response."""

    code: ClassVar[int] = INTERNAL_ERROR
    data: object = None
    """As that of a `PeerError`."""


class HandlerFailed(RequestFailed):
    """A handler of the server's raised an exception that was not meant for the client. The log has its text."""


class RequestTimedOut(RequestFailed):
    """There was no answer in time."""

    code = TIMED_OUT

    def __init__(self, *, after: float) -> None:
        super().__init__(f"no answer within {after:g} s")
        self.after = after


class BackendTimedOut(RequestTimedOut):
    """A backend did not answer in time."""

    def __init__(self, *, after: float, backend: str) -> None:
        super().__init__(after=after)
        self.data = {"origin": "broker", "reason": "deadline", "backend": backend}


class Overloaded(RequestFailed):
    """One more would be too many: of this peer's, or *for_all* of all clients' together."""

    code = OVERLOADED

    def __init__(self, message: str, *, for_all: bool = False) -> None:
        super().__init__(message)
        self.for_all = for_all


class Draining(RequestFailed):
    """This server is about to end, and takes no new work."""

    code = DRAINING

    def __init__(self) -> None:
        super().__init__("the server is shutting down")


class PeerRefused(RequestFailed):
    """A peer that was asked something answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"the client refused: {message} ({code})")
        self.peer_code = code


class CannotConnect(CallboardError):
    """There is no server that can be spoken to at the other end. One line says which and why."""

    is_refused: bool = False
    """Whether the connection was refused. Unlike a network that is down, that seldom mends itself."""


class ServerRefused(RequestFailed):
    """The server answered a request with an error: its code, its message, and what it said about it."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(f"{message} ({code})")
        self.error_code = code
        self.error_message = message
        self.data = data


class BackendRefused(RequestFailed):
    """A backend answered with an error, which goes on to the client: as it is, or as the client's revision has it."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error_code = code
        self.data = data


class BackendGone(RequestFailed):
    """A backend cannot answer any more, or cannot be reached at all. Other backends are not affected."""

    code = BACKEND_GONE

    def __init__(
        self, message: str, *, backend: str, reason: str = "server lost", exit_code: int | None = None
    ) -> None:
        super().__init__(message)
        self.data: dict[str, object] = {"origin": "broker", "reason": reason, "backend": backend}
        if exit_code is not None:
            self.data["exitCode"] = exit_code


class DefinitionChanged(RequestFailed):
    """A tool is not what it was when the operator approved of it."""

    code = DEFINITION_CHANGED

    def __init__(self, name: str, *, pinned: str, found: str) -> None:
        super().__init__(f"the definition of {name[:128]} has changed, and nobody has approved of it yet")
        self.data: dict[str, str] = {"origin": "broker", "pinned": pinned, "found": found}


class ConnectionLost(RequestFailed):
    """The way to the server broke before it answered. Whether it did what it was asked to do is not known."""

    code = BACKEND_GONE
    is_unread: bool = False
    """Whether the server ended without having read what was said to it."""


class SessionGone(ConnectionLost):
    """The server has ended the session. A new one can be opened; what was in flight is not asked again."""


class HttpRefused(RequestFailed):
    """The server refused a request by HTTP: its status, and what the body says. *error* is the JSON-RPC error in it."""

    def __init__(self, status: int, text: str, *, error: object = None) -> None:
        text = " ".join(text.split())  # it may be a whole page of the web
        super().__init__(f"HTTP {status}: {text}" if text else f"HTTP {status}")
        self.brief = f"HTTP {status}"
        self.status = status
        self.error = error


class BadAnswer(RequestFailed):
    """The server answered with what is no answer to that request."""


class TooManyRounds(RequestFailed):
    """The server asks again and again, and never answers."""

    def __init__(self, *, rounds: int) -> None:
        super().__init__(f"no answer after {rounds} rounds of questions")
        self.rounds = rounds


class NotAuthorized(RequestFailed):
    """Leave to use the server could not be had. One line says why, and never with a secret in it."""


class UnsafeUrl(NotAuthorized):
    """A server names an address where strangers must not send us. Nothing was asked of it."""


class FetchFailed(NotAuthorized):
    """What was needed for authorization could not be fetched, or is not what it should be."""


class ActorError(CallboardError):
    """What the supervision tree has to say about one of its actors."""


class AskFailed(ActorError):
    """A question to an actor ended without an answer."""


class AskTimedOut(AskFailed):
    """The actor did not answer in time."""

    def __init__(self, path: str, *, within: float) -> None:
        super().__init__(f"{path} did not answer within {within:g} s")
        self.path = path
        self.within = within


class ActorGone(AskFailed):
    """The actor cannot answer any more: it ended, or crashed over the question."""

    def __init__(self, path: str, *, why: str) -> None:
        super().__init__(f"{path} is gone: {why}")
        self.path = path
        self.why = why


class AskDropped(ActorGone):
    """A full mailbox gave the question up."""


class NameTaken(ActorError):
    """A living sibling has this name."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is already a {path}")
        self.path = path


class SupervisorClosed(ActorError):
    """The supervisor takes no children: it has not started, is stopping, or has ended."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} takes no children now")
        self.path = path


class StartFailed(ActorError):
    """A child could not be started, so its supervisor could not start either. The cause is chained."""

    def __init__(self, path: str, *, why: str) -> None:
        super().__init__(f"{path} did not start: {why}")
        self.path = path
        self.why = why


class TooManyRestarts(ActorError):
    """A supervisor passed its intensity and gave up. Its own supervisor decides what that means."""

    def __init__(self, path: str, *, restarts: int, per: float, child: str, why: str) -> None:
        super().__init__(f"{path} passed {restarts} restarts in {per:g} s; last was {child}: {why}")
        self.path = path
        self.restarts = restarts
        self.per = per
        self.child = child
        self.why = why


class MessageTooHeavy(ActorError):
    """A message that would not fit into an empty mailbox."""

    def __init__(self, *, weight: int, limit: int) -> None:
        super().__init__(f"a message of {weight} exceeds the mailbox's {limit}")
        self.weight = weight
        self.limit = limit
