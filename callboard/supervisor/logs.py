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

import structlog

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


class _Sink:
    """The logger at the end of the chain, looked up for each line: configuration may come late."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._logger(), attribute)

    def _logger(self) -> Any:
        factory = structlog.get_config()["logger_factory"]
        # structlog's factories keep the file they were given here; given none, they mean standard output.
        if getattr(factory, "_file", self) is None:
            factory = type(factory)(_FILE)
        return factory(self.name)


def _name(logger: Any, _: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    facts["logger"] = logger.name
    return facts


_JSON: Final = (
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    structlog.processors.add_log_level,
    _name,
    structlog.processors.JSONRenderer(default=str),
)


class Logger:
    """Logs one event with its facts. Nothing is decided before the first line."""

    __slots__ = ("_json", "_text")

    def __init__(self, name: str) -> None:
        self._text = structlog.wrap_logger(_Sink(name))
        self._json = structlog.wrap_logger(_Sink(name), processors=_JSON)

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
        if structlog.is_configured() or _is_wanted("info"):
            more = {} if _facts_now is None else _facts_now()
            self._logger.info(clean(event), **{name: tidy(value) for name, value in facts.items()}, **more)

    def _log(self, level: str, event: str, facts: dict[str, object]) -> None:
        if structlog.is_configured() or _is_wanted(level):
            write = getattr(self._logger, level)
            # Not among the facts: lines that differ by them alone are merged.
            LINES.write(write if _facts_now is None else partial(write, **_facts_now()), event, facts)

    @property
    def _logger(self) -> Any:
        as_json = os.environ.get(FORMAT_VARIABLE, "").lower() == "json" and not structlog.is_configured()
        return self._json if as_json else self._text


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
