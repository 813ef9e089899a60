"""The server of examples/everything.py, with a few tools more: what became of what a client left, and watched.

callboard run tests/clients/stage.py:server
"""

import importlib.util
import math
import os
from pathlib import Path
from typing import Final

import trio

from callboard import Context, Server
from tests.shared import ROOT

EXAMPLE: Final = ROOT / "examples" / "everything.py"


def load() -> Server:
    """The example's server, from its file: examples are no package."""
    spec = importlib.util.spec_from_file_location("everything", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server: Server = module.server
    return server


server = load()
cancelled: Final = set[str]()
FOLDER: Final = os.environ.get("STAGE_FOLDER")
"""Where is written down what was cancelled, if several workers must know of it."""


def note_cancelled(tag: str) -> None:
    cancelled.add(tag)
    if FOLDER is not None:
        Path(FOLDER, tag).touch()


def is_cancelled(tag: str) -> bool:
    return tag in cancelled or (FOLDER is not None and Path(FOLDER, tag).exists())


@server.tool
async def linger(tag: str, *, ctx: Context) -> str:
    """Says that it is there, and stays until it is cancelled."""
    try:
        await ctx.report(1, message="here")
        await trio.sleep_forever()
    finally:
        if trio.current_effective_deadline() == -math.inf:  # so ended by a scope, and not by an error
            note_cancelled(tag)


@server.tool
async def was_cancelled(tag: str) -> str:
    """Waits until the call with this tag is cancelled."""
    with trio.move_on_after(5):
        while not is_cancelled(tag):  # noqa: ASYNC110  # another worker may write it down
            await trio.sleep(0.01)
        return "cancelled"
    return "still there"


@server.resource("stage://{tag}/watched", mime_type="text/plain")
async def watched(tag: str) -> str:
    """A resource for each client, so that none hears of another's."""
    return tag


@server.tool
async def touch(tag: str, *, ctx: Context) -> str:
    """Says that the resource with this tag has changed."""
    ctx.notify_updated(f"stage://{tag}/watched")
    return "touched"
