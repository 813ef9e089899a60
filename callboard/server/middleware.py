"""Middleware: functions of an author's around every call, read, prompt, completion, list and method of an extension.

Each is given the context of the request and a function that goes on: to the next middleware, and at last to the
handler. What the function returns is the result, and what the middleware returns is the answer. The first one added is
outermost. A server without any has none of this on the way of a call.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import attrs

from callboard.actors.frames import Outcome
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.extensions import AddedMethod
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.bridge.tasks import ABOUT_TASKS
from callboard.codecs.members import raw, write_members
from callboard.codecs.revisions import METHODS, CallToolResult, Model, Result, Revision, TextContent, read, write
from callboard.codecs.revisions.calls import Structured
from callboard.errors import HandlerFailed, InvalidParams, ResourceNotFound
from callboard.server.content.errors import ToolError
from callboard.server.content.failures import error_result, failure_text, is_unexpected
from callboard.server.context import Context
from callboard.supervisor.groups import sole

GoOn: TypeAlias = Callable[[], Awaitable[Model]]
"""Serves the request, and returns its result. It may be called again, and need not be called at all."""

Middleware: TypeAlias = Callable[[Context, GoOn], Awaitable[Model]]
"""Stands around every handler: does what it wants before and after, and calls the second argument in between."""

Serve: TypeAlias = Callable[[Exchange], Awaitable[Any]]
"""A handler, as a server or a broker has it."""

Report: TypeAlias = Callable[[Exception, Exchange], None]
"""Logs what a middleware or a handler raised, and did not mean for the client."""


def through(middlewares: Sequence[Middleware], handler: Serve, context: Callable[[Exchange], Context]) -> Serve:
    """Put *middlewares* around a *handler* whose results are models, the first one outermost."""
    for middleware in reversed(middlewares):
        handler = partial(_pass, middleware, handler, context)
    return handler


async def _pass(
    middleware: Middleware, handler: Serve, context: Callable[[Exchange], Context], exchange: Exchange
) -> Model:
    result: object = await middleware(context(exchange), partial(handler, exchange))
    if not isinstance(result, Model):
        name = getattr(middleware, "__name__", type(middleware).__name__)
        raise TypeError(f"the middleware {name} returned {type(result).__name__} and no result: return await go_on()")
    return result


def guarded(serve: Serve, report: Report, *, show_errors: bool, passes: tuple[type[Exception], ...] = ()) -> Serve:
    """*serve*, and what it raises as the client gets it: a `ToolError` of a middleware before a tool is the result of
    the call; what *passes* is raised as it is; all else that was not meant for the client is reported, and
    `HandlerFailed` raised in its place."""

    async def serve_guarded(exchange: Exchange) -> Outcome:
        try:
            return await serve(exchange)  # type: ignore[no-any-return]  # of a method, or a middleware
        except Exception as error:
            if isinstance(sole(error), passes):
                raise sole(error) from None
            if is_unexpected(error):
                report(sole(error), exchange)
            elif not isinstance(sole(error), ToolError):
                raise
            elif exchange.request.method == "tools/call":
                return error_result(error)
            raise HandlerFailed(failure_text(error, show_errors=show_errors)) from None

    return serve_guarded


def checked(serve: Serve, guard: Callable[[Exchange], None]) -> Serve:
    """*serve*, after a *guard* has let the caller pass: no middleware answers what its caller may not ask for."""

    def serve_checked(exchange: Exchange) -> Awaitable[Any]:
        try:
            guard(exchange)
        except (InvalidParams, ResourceNotFound):
            if exchange.engine.rules is not None:  # else there is no such thing, and the handler says so
                raise
        return serve(exchange)

    return serve_checked


def layered_methods(methods: Mapping[str, AddedMethod], layer: Callable[[Serve], Serve]) -> Mapping[str, AddedMethod]:
    """*methods* of extensions with a *layer* around them, but for those about tasks: of a task, the call itself has
    gone through it."""
    return {
        name: one if is_of_tasks(name) else attrs.evolve(one, handler=_written(layer(one.handler)))
        for name, one in methods.items()
    }


def is_of_tasks(method: str) -> bool:
    """Whether an extension's method is one about tasks."""
    return method in ABOUT_TASKS or method in METHODS


def _written(serve: Serve) -> Handler:
    async def serve_written(exchange: Exchange) -> Outcome:
        return written(exchange.terms.revision, await serve(exchange))

    return serve_written


def written(revision: Revision, result: Model) -> Forwarded:
    """The result of a method of an extension, as it goes out: the specification has no shape for it."""
    return Forwarded({name: raw(value) for name, value in write(revision, result).items()})


def read_added(revision: Revision, result: Forwarded) -> Result:
    """The result of a method of an extension as middlewares expect it: its members are `extra`."""
    return read(revision, Result, write_members(result.members), at="result")


async def modelled(handler: Serve, exchange: Exchange) -> Model:
    """Serve a request, with the result as middlewares expect it."""
    result = await handler(exchange)
    return read_added(exchange.terms.revision, result) if isinstance(result, Forwarded) else as_model(result)


def as_model(result: Model | Structured | str) -> Model:
    """The result of a call as middlewares expect it."""
    if isinstance(result, str):
        return CallToolResult(content=[TextContent(text=result)])
    return result.as_model() if isinstance(result, Structured) else result
