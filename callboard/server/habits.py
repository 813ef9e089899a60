"""Names of other frameworks, and their names in callboard."""

from collections.abc import Collection, Mapping
from typing import Any, Final

_LEVELS: Final = {name: f'await ctx.log("{name}", ...)' for name in ("debug", "info", "warning", "error")}

CONTEXT: Final[Mapping[str, str]] = {
    **_LEVELS,
    "report_progress": "await ctx.report(1, 10)",
    "lifespan_context": "ctx.lifespan",
    "request_context": "ctx.lifespan, ctx.meta and ctx.client_info",
    "client_id": "ctx.principal",
    "session_id": "ctx.principal: a modern client has no session",
    "get_state": "a store of your own, by ctx.principal: a modern client has no session",
    "set_state": "a store of your own, by ctx.principal: a modern client has no session",
    "list_roots": "await ctx.roots()",
    "read_resource": "a function that the resource and the tool both call",
}

SERVER: Final[Mapping[str, str]] = {
    "add_tool": "server.tool(function)",
    "add_resource": "server.resource(uri)(function)",
    "add_prompt": "server.prompt(function)",
    "add_middleware": "server.middleware(function)",
    "import_server": "server.include(other)",
    "http_app": "server.asgi()",
    "streamable_http_app": "server.asgi()",
    "sse_app": "server.asgi()",
    "run_async": "await serve(server, http=8000), of callboard.serve",
    "custom_route": "server.asgi() beside the routes of another application",
}

_HTTP: Final = "server.run(http=8000), ws=8001 for WebSocket, or server.run() for stdio"
RUN: Final[Mapping[str, str]] = {
    "transport": _HTTP,
    "port": _HTTP,
    "host": 'server.run(http="127.0.0.1:8000")',
    "path": "server.run(http=8000): the path is /mcp",
    "log_level": "the environment variable CALLBOARD_LOG_LEVEL",
    "show_banner": "on_ready=None",
}


def missing(owner: object, name: str, known: Mapping[str, str]) -> Any:
    """Raises the `AttributeError` of an attribute that is not there; if a property failed, its own."""
    if name in known:
        text = f"{type(owner).__name__!r} object has no attribute {name!r}; in callboard it is {known[name]}"
        raise AttributeError(text, name=name, obj=owner)
    return object.__getattribute__(owner, name)


def check_options(options: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises TypeError for an option of `run` that there is not."""
    for name in options:
        if name not in known:
            raise TypeError(
                f"run() has no option {name!r}; in callboard it is {RUN[name]}"
                if name in RUN
                else f"run() has no option {name!r}: expected some of {', '.join(sorted(known))}"
            )
