"""Log lines that never end up on standard output, which belongs to the stdio protocol.

An application that configures structlog with a logger factory of its own gets callboard's lines there. structlog's
own default prints to standard output; callboard's lines then go to standard error instead.
"""

import sys
from contextlib import suppress
from typing import Any, Final

import structlog


class _StandardError:
    """Where lines go if nobody says otherwise. Its terminal may be closed: who reads nothing misses nothing."""

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


_STANDARD_ERROR: Final[Any] = _StandardError()


class _Sink:
    """The logger at the end of the chain, looked up for each line: configuration may come late."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._logger(), attribute)

    def _logger(self) -> Any:
        factory = structlog.get_config()["logger_factory"]
        # structlog's factories keep the file they were given here; given none, they mean standard output.
        if getattr(factory, "_file", self) is None:
            binary = isinstance(factory, structlog.BytesLoggerFactory)
            factory = type(factory)(sys.stderr.buffer if binary else _STANDARD_ERROR)
        return factory(self._name)


def get_logger(name: str) -> Any:
    """A logger as `structlog.get_logger` gives it. Nothing is decided before the first line."""
    return structlog.wrap_logger(_Sink(name))


log = get_logger("callboard.supervisor")


def report(event: str, **facts: object) -> None:
    """Log what went wrong. A line that cannot be written (standard error is closed) must not cost the tree."""
    with suppress(Exception):
        log.error(event, **facts)
