"""MCP Apps for real: a server made with the official SDK, behind the broker, and the SDK's host side in a browser."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from callboard.broker import Broker
from callboard.config import BackendSpec
from callboard.serve.options import Ready
from callboard.serve.run import serve
from callboard.transports.client.process import Command
from tests.browser import browser
from tests.node import installed, needs_npm, node
from tests.shared import APPS

SOURCE: Final = Path(__file__).with_name("node")
PAGE: Final = '<!doctype html><meta charset="utf-8"><p>Dice: <b id="shown"></b></p><script type="module">%s</script>'
SHOWN: Final = "Dice: three, then roll 1"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, format: str, *args: Any) -> None:
        """Tests have a log of their own."""


@contextmanager
def files_at(folder: Path) -> Iterator[str]:
    """The origin that serves the files of *folder*."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the server, its page, and the host's page."""
    modules = installed(SOURCE) / "node_modules"
    folder = tmp_path_factory.mktemp("ext-apps")
    (folder / "node_modules").symlink_to(modules)
    for name in ("server", "app", "host"):
        (folder / f"{name}.mjs").write_bytes((SOURCE / f"{name}.mjs").read_bytes())
    bundler = next(modules.glob("@esbuild/*/bin/esbuild"))
    for name in ("app", "host"):
        made = ["--bundle", "--format=esm", "--platform=browser", "--log-level=error", f"--outfile={name}.js"]
        subprocess.run([bundler, f"{name}.mjs", *made], cwd=folder, check=True, timeout=60)
    script = (folder / "app.js").read_text().replace("</script", "<\\/script")
    (folder / "page.html").write_text(PAGE % script)
    (folder / "host.html").write_text(
        '<!doctype html><meta charset="utf-8"><script type="module" src="host.js"></script>'
    )
    return folder


def backends(folder: Path) -> list[BackendSpec]:
    dice = Command(args=(str(node()), str(folder / "server.mjs"), str(folder / "page.html")), cwd=str(folder))
    other = Command(args=(sys.executable, "-m", "callboard", "run", str(APPS / "same_page.py")))
    return [BackendSpec(name="dice", target=dice), BackendSpec(name="other", target=other)]


@needs_npm
@pytest.mark.parametrize("path", ["", "/dice"], ids=["all servers", "its own path"])
async def test_an_app_behind_the_broker_is_shown_and_calls_its_own_tool(built: Path, path: str) -> None:
    broker = Broker(backends(built))
    with files_at(built) as origin:
        async with browser(is_offline=False) as page, trio.open_nursery() as nursery:
            begin = partial(serve, broker, http="127.0.0.1:0", allow_origins=[origin])
            ready: Ready = await nursery.start(begin)
            await page.open(f"{origin}/host.html?url={ready.listening[0].url}{path}")
            await page.wait("globalThis.said && (said.shown || said.failed)")
            said = await page.value("said")
            nursery.cancel_scope.cancel()
    assert "failed" not in said, said
    assert said["shown"] == SHOWN
    if path:
        assert said["tools"] == ["show_dice", "roll_again"]
        assert said["uri"] == "ui://view/page.html"
    else:
        assert said["tools"] == ["dice__show_dice", "dice__roll_again", "other__show"]
        assert said["uri"] == "ui://dice/view/page.html"  # the other server has a page of that URI, too
