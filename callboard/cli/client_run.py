"""One command at a server: from connecting to the exit code."""

import gc
import json
import logging
import math
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import nullcontext
from typing import Annotated, Any, Final, TypeAlias

import attrs
import trio
from cyclopts import Group, Parameter

from callboard.actors.client.conversation import CAP, PATIENT, Patience
from callboard.cli.arguments import BadArgument, read_headers
from callboard.cli.client_answers import TerminalElicitation, roots_of, sampling_of
from callboard.cli.codes import Exit
from callboard.cli.complaints import complain
from callboard.cli.login import Login, auth_of
from callboard.cli.output import ResultPrinter
from callboard.cli.screen import Screen
from callboard.cli.streams import CannotWrite, claim_stdout, own_stdout, prepare_streams
from callboard.client.client import Client, connect
from callboard.client.routes import Target
from callboard.codecs.revisions import Revision
from callboard.config.entry import Remote, is_entry, read_entry
from callboard.errors import CallboardError, CannotConnect, ServerRefused
from callboard.supervisor.colours import coloured, shows_colours
from callboard.supervisor.logs import before_first_line
from callboard.supervisor.printable import clean
from callboard.transports.client.process import Command
from callboard.transports.signals import heed_signals

LINES_KEPT: Final = 100
"""Lines of a server's standard error that are kept, for each time that it is started: one that dies at once is started
twice."""

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


_ANSWERS: Final = Parameter(group=Group("Answers to the server", sort_key=3), negative="", show_default=False)


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class TalkOptions(ClientOptions):
    """Options of every command that has one conversation with a server."""

    verbose: Annotated[
        bool, _FLAG, Parameter(name=("--verbose", "-v"), help="Show the server's log messages and standard error.")
    ] = False
    sampling: Annotated[
        str | None,
        _ANSWERS,
        Parameter(
            help="Answer of the model, if the server asks for sampling: a text, @FILE, or @SCRIPT.py[:FUNCTION], which "
            "gets the parameters and returns the text. Default: sampling is not offered."
        ),
    ] = None
    root: Annotated[
        list[str] | None,
        _ANSWERS,
        Parameter(help="Directory, or file:// URI, to name if the server asks for roots. May be repeated."),
    ] = None


@attrs.frozen
class Talk:
    """The objects that a command works with."""

    client: Client
    output: ResultPrinter
    screen: Screen
    elicitation: TerminalElicitation


Action: TypeAlias = Callable[[Talk], Awaitable[Exit]]


def speak(target: str, options: TalkOptions, action: Action, *, is_endless: bool = False) -> int:
    """Connect to *target*, run the action, and return the exit code. An error is one line on standard error.

    Ctrl-C is the way to end an action that *is_endless*, and else is said to have cancelled it.
    """
    prepare_streams()
    before_first_line(_configure_log)
    screen = Screen(is_quiet=options.json and not options.verbose)
    said = deque[str](maxlen=2 * LINES_KEPT)

    def hear(line: str) -> None:
        if options.verbose:
            screen.say(f"  server: {line}", style="dim")
        else:
            said.append(line)

    gc.enable()  # everything is loaded
    try:
        with screen:
            code = trio.run(_speak, target, options, action, screen, hear)
    except (CallboardError, BadArgument) as error:
        _name_flags(error)
        return complain(screen, error, said, is_json=options.json)
    if code is Exit.INTERRUPTED and not is_endless:
        screen.say("callboard: cancelled")
    return code


_FLAGS: Final = {"sampling": "--sampling TEXT", "roots": "--root DIR"}
"""The flag that answers a request of the server, by the capability that it stands for."""


def _name_flags(error: Exception) -> None:
    """Say how a question of the server is answered."""
    if isinstance(error, ServerRefused):
        for capability, flag in _FLAGS.items():
            if f"did not declare {capability}" in error.error_message:
                error.add_note(f"answer it with {flag}")


def _configure_log() -> None:
    import structlog  # it takes time to load, and most commands log nothing

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING), processors=[_plain_line])


def _plain_line(_: object, __: str, event: MutableMapping[str, Any]) -> str:
    """A log line for the terminal. Names and reasons come from a server, so control characters are removed."""
    what = str(event.pop("event")).replace("_", " ")
    traceback = event.pop("exception", None)  # a server in this process failed, and its author is here
    facts = ", ".join(f"{name}: {fact}" for name, fact in event.items())
    line = clean(" ".join(f"callboard: {what} ({facts})".split()))
    shown = clean(str(traceback))
    return line if traceback is None else f"{line}\n{coloured(shown) if shows_colours() else shown}"


async def _speak(
    target: str, options: TalkOptions, action: Action, screen: Screen, on_stderr: Callable[[str], None]
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
    target: str, options: TalkOptions, action: Action, screen: Screen, on_stderr: Callable[[str], None]
) -> Exit:
    within = math.inf if options.timeout is None else options.timeout
    met: list[Client] = []
    asker = TerminalElicitation(screen, met)
    sampling, roots, tls = sampling_of(options.sampling), roots_of(options.root or ()), options.context()
    there, headers = target_of(target), read_headers(options.header or ())
    has_header = has_authorization(headers) or (isinstance(there, Remote) and has_authorization(there.headers))
    ours = own_stdout() if _is_in_process(there) else nullcontext()
    with ours, trio.CancelScope(deadline=trio.current_time() + within) as connecting:
        async with connect(
            there,
            elicitation=asker,
            sampling=sampling,
            roots=roots,
            revision=revision_of(options.revision),
            patience=patience_of(options.timeout),
            headers=headers,
            tls=tls,
            auth=auth_of(options, screen, connecting, has_header=has_header),
            log_level="debug" if options.verbose else None,
            on_log=screen.log if options.verbose else None,  # legacy servers send them unasked
            on_stderr=on_stderr,
        ) as client:
            connecting.deadline = math.inf
            claim_stdout()
            met.append(client)
            talk = Talk(client, ResultPrinter(client.revision, options.json), screen, asker)
            return await _written(action(talk))
    raise CannotConnect(f"timed out: no response within {within:g} s")


def _is_in_process(there: Target) -> bool:
    """Whether the server's handlers may print to our standard output."""
    if isinstance(there, str):
        return "://" not in there
    return not isinstance(there, (Sequence, Command, Remote))  # a `Server`, which takes time to load


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
