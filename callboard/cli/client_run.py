"""One command at a server: from connecting to the exit code."""

import json
import logging
import math
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Final, TypeAlias

import attrs
import structlog
import trio
from cyclopts import Parameter
from msgspec import Raw

from callboard.actors.client.conversation import CAP, PATIENT, Patience
from callboard.cli.arguments import BadArgument, read_headers
from callboard.cli.codes import Exit
from callboard.cli.forms import FormPrompt
from callboard.cli.login import Login, auth_of
from callboard.cli.output import ResultPrinter
from callboard.cli.screen import Screen
from callboard.cli.streams import CannotWrite, prepare_streams
from callboard.cli.terminal import Terminal
from callboard.client.client import Client, connect
from callboard.client.routes import Target
from callboard.codecs.revisions import (
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    Revision,
)
from callboard.config.entry import Remote, is_entry, read_entry
from callboard.errors import (
    URL_ELICITATION_REQUIRED,
    CallboardError,
    CannotConnect,
    ConnectionLost,
    RequestTimedOut,
    ServerRefused,
)
from callboard.supervisor.printable import clean
from callboard.transports.signals import heed_signals

MOST_LINES: Final = 10
"""Lines of a server's standard error that are shown when it cannot be spoken to."""

LINES_KEPT: Final = 100
"""Lines of it that are kept, for each time that the server is started: one that dies at once is started twice."""

_FLAG: Final = Parameter(negative="", show_default=False)


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ClientOptions(Login):
    """Options of every command that connects to a server."""

    json: Annotated[bool, _FLAG, Parameter(help="Print JSON instead of text.")] = False
    revision: Annotated[
        str | None,
        Parameter(
            help=f"Require this protocol revision: {', '.join(sorted(Revision))}. Default: the newest "
            "that both sides support."
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        Parameter(negative="", help="HTTP header to send with every request: 'Name: value'. May be repeated."),
    ] = None
    timeout: Annotated[
        float | None,
        Parameter(help="Timeout in seconds, restarted by progress notifications. Default: 60."),
    ] = None


@attrs.frozen
class Talk:
    """The objects that a command works with."""

    client: Client
    output: ResultPrinter
    screen: Screen


Action: TypeAlias = Callable[[Talk], Awaitable[Exit]]

_CODES: Final[tuple[tuple[type[Exception], Exit], ...]] = (
    (BadArgument, Exit.USAGE),
    (CannotWrite, Exit.CANNOT_WRITE),
    (CannotConnect, Exit.CANNOT_CONNECT),
    (RequestTimedOut, Exit.LOST),
    (ConnectionLost, Exit.LOST),
    (CallboardError, Exit.REFUSED),
)
"""The first that fits."""


def speak(target: str, options: ClientOptions, action: Action) -> int:
    """Connect to *target*, run the action, and return the exit code. An error is one line on standard error."""
    prepare_streams()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING), processors=[_plain_line])
    screen = Screen(is_quiet=options.json)
    said = deque[str](maxlen=2 * LINES_KEPT)
    try:
        with screen:
            return trio.run(_speak, target, options, action, screen, said.append)
    except (CallboardError, BadArgument) as error:
        return complain(screen, error, said)


def _plain_line(_: object, __: str, event: structlog.typing.EventDict) -> str:
    """A log line for the terminal. Names and reasons come from a server, so control characters are removed."""
    what = str(event.pop("event")).replace("_", " ")
    traceback = event.pop("exception", None)  # a server in this process failed, and its author is here
    facts = ", ".join(f"{name}: {fact}" for name, fact in event.items())
    line = clean(" ".join(f"callboard: {what} ({facts})".split()))
    return line if traceback is None else f"{line}\n{clean(str(traceback))}"


def code_of(error: Exception) -> Exit:
    """The exit code for what went wrong."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def complain(screen: Screen, error: Exception, said: Iterable[str] = ()) -> Exit:
    """Say what went wrong, in one line, and return its code. What a server *said* last stands above it, if it helps."""
    code = code_of(error)
    for line in _last_words(list(said)) if code in (Exit.CANNOT_CONNECT, Exit.LOST) else ():
        screen.say(f"  server: {line}", style="dim")
    screen.say(f"callboard: {told(error)}")
    return code


def _last_words(said: list[str]) -> list[str]:
    """The last lines on stderr, without the duplicates of a second attempt."""
    half = len(said) // 2
    return (said[half:] if said[:half] == said[half:] else said)[-MOST_LINES:]


async def _speak(
    target: str, options: ClientOptions, action: Action, screen: Screen, on_stderr: Callable[[str], None]
) -> Exit:
    """Ctrl-C, or the end of the terminal, cancels everything: calls are taken back, sessions closed, processes ended.
    A second one does not wait."""
    code: Exit = Exit.INTERRUPTED
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:

        async def wait_asked(asked: trio.Event) -> None:
            await asked.wait()
            nursery.cancel_scope.cancel()

        with heed_signals(nursery.cancel_scope.cancel, ends_with_terminal=True) as asked:
            nursery.start_soon(wait_asked, asked)
            try:
                code = await _run(target, options, action, screen, on_stderr)
            except (CallboardError, BadArgument) as error:
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return code


async def _run(
    target: str, options: ClientOptions, action: Action, screen: Screen, on_stderr: Callable[[str], None]
) -> Exit:
    within = math.inf if options.timeout is None else options.timeout
    met: list[Client] = []
    asker = _Elicitation(screen, met)
    there, headers = target_of(target), read_headers(options.header or ())
    has_header = has_authorization(headers) or (isinstance(there, Remote) and has_authorization(there.headers))
    with trio.CancelScope(deadline=trio.current_time() + within) as connecting:
        async with connect(
            there,
            elicitation=asker,
            revision=revision_of(options.revision),
            patience=patience_of(options.timeout),
            headers=headers,
            auth=auth_of(options, screen, connecting, has_header=has_header),
            on_log=screen.log,
            on_stderr=on_stderr,
        ) as client:
            connecting.deadline = math.inf
            met.append(client)
            return await _written(action(Talk(client, ResultPrinter(client.revision, options.json), screen)))
    raise CannotConnect(f"timed out: no response within {within:g} s")


def has_authorization(headers: Mapping[str, str]) -> bool:
    return any(name.lower() == "authorization" for name in headers)


async def _written(action: Awaitable[Exit]) -> Exit:
    """Run the command, then write its output. Raises `CannotWrite`."""
    try:
        code = await action
        sys.stdout.flush()
    except OSError as error:  # of our output: all else that can fail has a name of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in buffers is not tried again
        if isinstance(error, BrokenPipeError):
            return Exit.FINE  # the reader has seen enough
        raise CannotWrite(f"standard output: {error.strerror or error}") from None
    return code


@attrs.frozen(eq=False)
class _Elicitation:
    """Answers the server's questions by the person at the terminal; without one, by no."""

    screen: Screen
    met: list[Client]
    turn: trio.Lock = attrs.field(factory=trio.Lock)
    """One question after the other, however many are asked at once."""

    async def __call__(self, params: ElicitRequestFormParams | ElicitRequestURLParams) -> ElicitResult:
        if not Terminal.is_there():
            await trio.lowlevel.checkpoint()
            self.screen.say(f"callboard: declined, since there is no terminal to ask at: {params.message[:200]!r}")
            return ElicitResult(action="decline")
        async with self.turn:
            with self.screen.person() as person:
                return await FormPrompt(person, self._server)(params)

    def _server(self) -> str:
        info = self.met[0].server_info if self.met else None
        return "The server" if info is None else info.name


def target_of(text: str) -> Target:
    """The target. A command is a JSON list: main() passes the words after `--` that way."""
    if not text.startswith("["):
        return read_entry(text) if is_entry(text) else text
    try:
        command = json.loads(text)
    except ValueError as error:
        raise BadArgument(f"invalid JSON for a command: {error}") from None
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise BadArgument("invalid command: expected a list of strings")
    return command


def revision_of(named: str | None) -> Revision | None:
    try:
        return None if named is None else Revision(named)
    except ValueError:
        raise BadArgument(f"--revision {named}: unknown revision; supported: {', '.join(sorted(Revision))}") from None


def patience_of(timeout: float | None) -> Patience:
    if timeout is not None and not 0 < timeout < math.inf:
        raise BadArgument("--timeout must be greater than 0")
    return PATIENT if timeout is None else Patience(timeout=timeout, cap=max(timeout, CAP))


def told(error: Exception) -> str:
    """One line. Where the server wants a page to be visited first, which."""
    text = str(error) or type(error).__name__
    if isinstance(error, ServerRefused) and error.error_code == URL_ELICITATION_REQUIRED:
        text += "; open: " + ", ".join(_pages(error.data))
    text = "; ".join([text, *getattr(error, "__notes__", ())])
    return " ".join(text.split()) if isinstance(error, ServerRefused) else text.rstrip()


def _pages(data: object) -> list[str]:
    try:
        told = json.loads(bytes(data)) if isinstance(data, Raw) else {}
        return [str(one["url"]) for one in told["elicitations"]]
    except (ValueError, TypeError, LookupError):
        return ["(no URL given)"]
