"""Decorators, and `run`, that are used in another way than they are meant: what to write instead."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints, is_typeddict

import trio

_LOADING: Final = ContextVar("loading", default=False)
"""Whether a command loads an author's file, to run the server in it by itself."""


class RunsTooEarly(RuntimeError):
    """`run()` is called where the server cannot run: the message says what to write."""


@contextmanager
def loading() -> Iterator[None]:
    """While a command loads an author's file."""
    token = _LOADING.set(True)
    try:
        yield
    finally:
        _LOADING.reset(token)


def check_may_run() -> None:
    """Raises `RunsTooEarly` in a file that a command loads, and in a Trio program."""
    if _LOADING.get():
        raise RunsTooEarly('the file calls run() when it is loaded: put that under `if __name__ == "__main__":`')
    if trio.lowlevel.in_trio_run():
        raise RunsTooEarly(
            "run() starts an event loop, and one runs already: in a Trio program write `await serve(server, ...)`, with"
            " `from callboard.serve import serve`"
        )


def check_may_await(name: str) -> None:
    """Raises RuntimeError in the thread of a plain function: there `ctx.report(1)` makes what is never awaited."""
    if not trio.lowlevel.in_trio_run():
        raise RuntimeError(f"ctx.{name}() in a plain function: write trio.from_thread.run(ctx.{name}, ...)")


def check_decorated(function: Any, kind: str) -> None:
    """Raises TypeError if `@server.tool("name")` was written: what is decorated is no function then."""
    if function is not None and not callable(function):
        shown = repr(function)[:60]
        raise TypeError(f"@server.{kind}({shown}): expected a function; for a name write @server.{kind}(name={shown})")


def check_returns(function: Any, kind: str) -> None:
    """Raises TypeError for a generator: a request has one result."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        name = getattr(function, "__name__", "")
        raise TypeError(
            f"{name}(): it is a generator, but a {kind} has one result: return a list; what is known earlier goes out"
            " by ctx.report or ctx.log"
        )


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


def check_takes_params(function: Callable[..., Any], name: str) -> None:
    """Raises TypeError for a function of a notification that does not take its params, as one dict."""
    try:
        taken = inspect.signature(function)
        hints = get_type_hints(function)
    except (ValueError, TypeError, NameError, AttributeError):  # of C, an object, or a name for type checkers alone
        return
    try:
        first = next(iter(taken.bind({}).arguments))
    except TypeError:
        first = None
    if first is None or not _may_be_dict(hints.get(first, object)):
        shown = getattr(function, "__name__", "function")
        text = f"its params come as one dict: write `def {shown}(params: dict[str, Any]) -> None`"
        raise TypeError(f"notification {name!r}: {text}")


def _may_be_dict(kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return any(_may_be_dict(one) for one in get_args(kind))
    kind = get_origin(kind) or kind
    return kind is Any or not isinstance(kind, type) or is_typeddict(kind) or issubclass(dict, kind)
