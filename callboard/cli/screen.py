"""Standard error while a command waits: a progress bar for people, plain lines for pipes, and questions in between."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import attrs
from msgspec import UNSET

from callboard.cli.streams import console_of, forgiving_stderr
from callboard.cli.terminal import Terminal
from callboard.codecs.revisions import LoggingMessageNotificationParams, ProgressNotificationParams
from callboard.supervisor.printable import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


@attrs.define(eq=False)
class Screen:
    """Messages on stderr, beside the result. A *quiet* screen shows only errors."""

    is_quiet: bool = False
    _console: "Console | None" = None
    _bar: "Progress | None" = attrs.field(default=None, init=False)
    _task: "TaskID | None" = attrs.field(default=None, init=False)

    @property
    def console(self) -> "Console":
        """Standard error: a command that has nothing to say does without it."""
        if self._console is None:
            self._console = console_of(forgiving_stderr())
        return self._console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.clear()

    def progress(self, report: ProgressNotificationParams, what: str) -> None:
        """How far it has come."""
        total = None if report.total is UNSET else report.total
        message = "" if report.message is UNSET else clean(report.message).replace("\n", " ")
        if self.is_quiet:
            return
        if not self.console.is_terminal or self.console.is_dumb_terminal:  # nothing moves on those
            of = "" if total is None else f"/{total:g}"
            self.say(f"{what}: {report.progress:g}{of} {message}".rstrip())
            return
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # few commands show a bar

            name, said = (TextColumn(f"{{task.fields[{field}]}}", markup=False) for field in ("what", "said"))
            columns = (name, BarColumn(), said, TimeElapsedColumn())
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._task = self._bar.add_task("", total=total, what=clean(what), said="")
            self._bar.start()
        if self._task is not None:
            self._bar.update(self._task, total=total, completed=report.progress, said=message)

    def log(self, said: LoggingMessageNotificationParams) -> None:
        """A log message of the server."""
        if not self.is_quiet:
            text = said.data if isinstance(said.data, str) else _as_json(said.data)
            self.say(f"{said.level}: {text}", style="dim")

    def ready(self, text: str) -> None:
        """News for a waiting user; a pipe gets none."""
        if not self.is_quiet and self.console.is_terminal:
            self.say(text, style="dim")

    def stand(self, text: str) -> None:
        """Where a task stands: one line for each change."""
        if not self.is_quiet:
            self.say(text, style="dim")

    def say(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self.console.print(Text(clean(text)), style=style, soft_wrap=True)

    @contextmanager
    def person(self) -> Iterator[Terminal]:
        """A user to ask: the bar is out of the way meanwhile."""
        self.clear()
        yield Terminal(self.console)

    def clear(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None


def _as_json(data: object) -> str:
    from callboard.server.content.problems import shown  # with a validator, which takes time to load

    return shown(data)
