"""Log lines that never end up on standard output, which belongs to the stdio protocol.

An application that configures structlog with a logger factory of its own gets callboard's lines there. structlog's
own default prints to standard output; callboard's lines then go to standard error instead, from level info on, or from
the level that the environment names in CALLBOARD_LOG_LEVEL; as text, or as JSON with CALLBOARD_LOG_FORMAT=json.
"""

import atexit
import os
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from callboard.supervisor.colours import colour_exception, shows_colours
from callboard.supervisor.lines import LogLines, tidy
from callboard.supervisor.printable import clean
from callboard.supervisor.standard_error import STANDARD_ERROR

LEVELS: Final = ("debug", "info", "warning", "error")

LEVEL_VARIABLE: Final = "CALLBOARD_LOG_LEVEL"
"""The environment variable that names the lowest level which is written, where the application does not decide."""

FORMAT_VARIABLE: Final = "CALLBOARD_LOG_FORMAT"
"""The environment variable that names the format of lines, where the application does not decide: text or json."""

LINES: Final = LogLines()
"""The processor of all log lines."""

_FILE: Final[Any] = STANDARD_ERROR

_facts_now: Callable[[], Mapping[str, str]] | None = None


def add_to_lines(facts_now: Callable[[], Mapping[str, str]] | None) -> None:
    """Add to each line what *facts_now* says when it is written: the ids of a trace. None: nothing any more."""
    global _facts_now
    _facts_now = facts_now


_configure: Callable[[], None] | None = None


def before_first_line(configure: Callable[[], None]) -> None:
    """Have structlog configured by *configure*, once there is a line to write. It takes time to load: a command that
    logs nothing does without it."""
    global _configure
    _configure = configure


def load_structlog() -> Any:
    """structlog, loaded and configured. A server loads it at its start: the first line may come under load."""
    global _configure
    import structlog

    if _configure is not None:
        configure, _configure = _configure, None
        configure()
    return structlog


class _Sink:
    """The logger at the end of the chain, looked up for each line: configuration may come late."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._logger(), attribute)

    def _logger(self) -> Any:
        factory = load_structlog().get_config()["logger_factory"]
        # structlog's factories keep the file they were given here; given none, they mean standard output.
        if getattr(factory, "_file", self) is None:
            factory = type(factory)(_FILE)
        return factory(self.name)


def _name(logger: Any, _: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    facts["logger"] = logger.name
    return facts


def _styled(style: str) -> Mapping[str, Any]:
    """The processors of lines in one *style*; of text, those that structlog is configured with."""
    structlog = load_structlog()
    if style == "coloured":
        usual = structlog.get_config()["processors"][:-1]
        return {"processors": (*usual, colour_exception, structlog.dev.ConsoleRenderer())}
    if style == "json":
        stamp = structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")
        renderer = structlog.processors.JSONRenderer(default=str)
        return {"processors": (stamp, structlog.processors.add_log_level, _name, renderer)}
    return {}


class Logger:
    """Logs one event with its facts. Nothing is decided before the first line."""

    __slots__ = ("_made", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._made: dict[str, Any] = {}

    def debug(self, event: str, /, **facts: object) -> None:
        self._log("debug", event, facts)

    def info(self, event: str, /, **facts: object) -> None:
        self._log("info", event, facts)

    def warning(self, event: str, /, **facts: object) -> None:
        self._log("warning", event, facts)

    def error(self, event: str, /, **facts: object) -> None:
        self._log("error", event, facts)

    def always(self, event: str, /, **facts: object) -> None:
        """As `info`, for lines that were asked for one by one: none is merged or left out."""
        if load_structlog().is_configured() or _is_wanted("info"):
            more = {} if _facts_now is None else _facts_now()
            self._logger.info(clean(event), **{name: tidy(value) for name, value in facts.items()}, **more)

    def _log(self, level: str, event: str, facts: dict[str, object]) -> None:
        if load_structlog().is_configured() or _is_wanted(level):
            write = getattr(self._logger, level)
            # Not among the facts: lines that differ by them alone are merged.
            LINES.write(write if _facts_now is None else partial(write, **_facts_now()), event, facts)

    @property
    def _logger(self) -> Any:
        structlog = load_structlog()
        style = "text"
        if not structlog.is_configured():
            is_json = os.environ.get(FORMAT_VARIABLE, "").lower() == "json"
            style = "json" if is_json else "coloured" if shows_colours() else "text"
        if style not in self._made:
            self._made[style] = structlog.wrap_logger(_Sink(self._name), **_styled(style))
        return self._made[style]


def _is_wanted(level: str) -> bool:
    lowest = os.environ.get(LEVEL_VARIABLE, "info").lower()
    return LEVELS.index(level) >= (LEVELS.index(lowest) if lowest in LEVELS else LEVELS.index("info"))


def get_logger(name: str) -> Logger:
    """The logger of one part of callboard."""
    return Logger(name)


log = get_logger("callboard.supervisor")


def report(event: str, **facts: object) -> None:
    """Log what went wrong. A line that cannot be written (standard error is closed) must not cost the tree."""
    with suppress(Exception):
        log.error(event, **facts)


@atexit.register
def _end() -> None:
    with suppress(Exception):
        LINES.flush()
    STANDARD_ERROR.drain()
