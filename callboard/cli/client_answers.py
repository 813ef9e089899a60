"""What a command answers when the server asks: forms at the terminal, sampling and roots from flags."""

import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.cli.input_files import BadArgument, InputFiles, is_file
from callboard.cli.screen import Screen
from callboard.cli.terminal import Terminal
from callboard.codecs.revisions import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

if TYPE_CHECKING:
    from callboard.client.callbacks import Sampling
    from callboard.client.client import Client

FUNCTION: Final = "sampling"
"""The function of a script of `--sampling` that is called if none is named."""


@attrs.define(eq=False)
class TerminalElicitation:
    """Answers the server's questions by the person at the terminal; without one, by no."""

    screen: Screen
    met: "list[Client]"
    turn: trio.Lock = attrs.field(factory=trio.Lock)
    """One question after the other, however many are asked at once."""
    behind: str | None = None
    """The server behind a broker that the command has called: it asks, and not the broker."""

    async def __call__(self, params: ElicitRequestFormParams | ElicitRequestURLParams) -> ElicitResult:
        if not Terminal.is_there():
            await trio.lowlevel.checkpoint()
            self.screen.say(f"callboard: declined, since there is no terminal to ask at: {params.message[:200]!r}")
            return ElicitResult(action="decline")
        from callboard.cli.forms import FormPrompt  # with a validator and a browser, which few commands need

        async with self.turn:
            with self.screen.person() as person:
                return await FormPrompt(person, self._server)(params)

    def _server(self) -> str:
        info = self.met[0].server_info if self.met else None
        name = "The server" if info is None else info.name
        return name if self.behind is None else f"{self.behind} (behind {name})"


def sampling_of(given: str | None) -> "Sampling | None":
    """The answer of `--sampling`: a text, `@FILE` with one, or `@SCRIPT.py[:FUNCTION]`. Raises `BadArgument`."""
    if given is None:
        return None
    file, _, name = given.removeprefix("@").partition(".py:")
    if is_file(given) and (name or file.endswith(".py")):
        return _function(Path(f"{file}.py" if name else file).expanduser(), name or FUNCTION)
    text = InputFiles().text(given, "--sampling")
    return lambda _: text


def _function(script: Path, name: str) -> "Callable[[Any], Any]":
    """Raises `BadArgument`."""
    if not script.is_file():
        raise BadArgument(f"--sampling: {script}: no such file")
    try:
        found = runpy.run_path(str(script), run_name=script.stem).get(name)
    except (Exception, SystemExit) as error:  # any exception of the user's script is for the user to read
        raise BadArgument(f"--sampling: {script}: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise BadArgument(f"--sampling: {script} has no function {name!r}: it takes the parameters and returns text")
    answer: Callable[[Any], Any] = found
    return answer


def roots_of(given: Sequence[str]) -> Sequence[str] | None:
    """`--root`: file URIs, or paths of directories. None if there are none. Raises `BadArgument`."""
    roots = []
    for one in given:
        if one.startswith("file://"):
            roots.append(one)
        elif "://" in one:
            raise BadArgument(f"--root {one[:200]!r}: expected a directory or a file:// URI")
        else:
            path = Path(one).expanduser().absolute()
            if not path.is_dir():
                raise BadArgument(f"--root {one[:200]!r}: no such directory")
            roots.append(path.as_uri())
    return roots or None
