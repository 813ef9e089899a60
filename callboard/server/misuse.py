"""Decorators that are used in another way than they are meant: what to write instead."""

from typing import Any


def check_decorated(function: Any, kind: str) -> None:
    """Raises TypeError if `@server.tool("name")` was written: what is decorated is no function then."""
    if function is not None and not callable(function):
        shown = repr(function)[:60]
        raise TypeError(f"@server.{kind}({shown}): expected a function; for a name write @server.{kind}(name={shown})")


def check_uri(uri: Any) -> None:
    """Raises TypeError for a bare `@server.resource`, and for what is no text."""
    if callable(uri):
        name = getattr(uri, "__name__", "name")
        raise TypeError(f'@server.resource needs the URI: write @server.resource("notes://{name}") before {name}()')
    if not isinstance(uri, str):
        raise TypeError(f"@server.resource: the URI must be a string, not {type(uri).__name__}")


def check_loop(loop: Any) -> None:
    """Raises ValueError for an event loop that there is not."""
    if loop not in ("trio", "asyncio"):
        raise ValueError(f"invalid loop={loop!r}: expected 'trio' or 'asyncio'")
