"""`callboard dev`: a server to work on, with a page that has a form for each tool, the live page, and reloading."""

import os
import webbrowser
from contextlib import suppress
from typing import Annotated, Final

from cyclopts import App, Parameter

from callboard.cli.serve_flags import ENVIRONMENT, FLAG, Json
from callboard.errors import CannotServe
from callboard.serve.banner import announce, announce_json
from callboard.serve.options import Options, Ready
from callboard.serve.processes import run_workers
from callboard.transports.bind import BindAddress

EXAMPLES: Final = """\
Examples:

  callboard dev weather.py                 http://127.0.0.1:8000/inspector
  callboard dev weather.py --port 0        any free port, printed
  callboard dev package.weather:server --open
"""

PORT: Final = 8000
"""Port of the server unless another is named: that of `callboard serve`."""


def dev(
    target: Annotated[str, Parameter(name="TARGET", help="FILE.py, FILE.py:NAME or package.module:NAME.")],
    /,
    *,
    port: Annotated[int, Parameter(help="Port on 127.0.0.1; 0 for any that is free.")] = PORT,
    module: Annotated[
        bool, FLAG, Parameter(name=["--module", "-m"], help="TARGET is a module, as for python -m.")
    ] = False,
    open: Annotated[bool, FLAG, Parameter(help="Open the page in a browser.")] = False,
    json: Json = False,
) -> None:
    """Work on a server: a page with a form for each tool, the live page, new code when you save it."""
    from callboard.server.faults import DEBUG

    os.environ.setdefault(DEBUG, "1")  # the author looks, and workers inherit it

    def on_ready(ready: Ready) -> None:
        (announce_json if json else announce)(ready)
        page = next(one.url or "" for one in ready.listening if one.transport == "http").removesuffix("/mcp")
        if not json:
            with suppress(OSError):
                print(f"  page  {page}/inspector", flush=True)  # noqa: T201  # for the author
        if open:
            webbrowser.open(f"{page}/inspector")

    options = Options(
        http=f"127.0.0.1:{port}",
        admin="127.0.0.1:0",
        inspector=True,
        reload=hasattr(os, "memfd_create"),  # elsewhere it is started by hand
        on_ready=on_ready,
    )
    try:
        if run_workers(options, has_backends=False):
            return
        from callboard.serve.run import run as run_server  # which the parent does without
        from callboard.server.load import load_server

        server = load_server(target, is_module=module)
        server.show_errors = True  # the page is the author's
        run_server(server, **options)
    except CannotServe as error:
        if port and str(error).startswith(f"{BindAddress.parse(f'127.0.0.1:{port}')}: "):
            raise CannotServe(f"{error}; choose another port with --port, or any that is free with --port 0") from None
        raise


APP: Final = App(name="dev", help_epilogue=EXAMPLES, config=ENVIRONMENT)
APP.default(dev)
