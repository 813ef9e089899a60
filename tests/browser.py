"""A real browser without a network: Chromium, without a window, spoken to as its developer tools speak to it."""

import atexit
import contextlib
import ctypes
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio
from PIL import Image, ImageChops
from trio_websocket import WebSocketConnection, open_websocket_url

from tests.fork_server import PIDS

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

PATIENCE: Final = 120.0
"""Seconds for all that one test does with a browser. It takes two, on a machine that does nothing else."""

FLAGS: Final = (
    "--headless",
    "--no-sandbox",  # root has none, nor has a container; the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    # It asks for nothing by itself, and what a page asks for is found nowhere.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)

START_TIME: Final = 60.0
"""Seconds until the browser must listen. It takes one on an idle machine."""

_PR_SET_PDEATHSIG: Final = 1  # of Linux: the signal that comes when the parent ends

LEAST_CHANGE: Final = 24
"""Of 255, by which some colour of a pixel is another: less is hard to see."""


def chromium() -> str:
    """Where it is. Without one a test fails: a page that nobody has looked at may be empty."""
    named = os.environ.get("CALLBOARD_BROWSER")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
    assert found is not None, (
        f"there is no browser {named!r}"
        if named
        else f"there is no browser ({', '.join(NAMES)}): `make browser` "
        "installs Debian's chromium; elsewhere install one, or name it with CALLBOARD_BROWSER=/path/to/chromium"
    )
    return found


@attrs.frozen
class Box:
    """Where something stands on the page, in its pixels."""

    x: float
    y: float
    width: float
    height: float

    def holds(self, other: "Box", slack: float = 1.0) -> bool:
        return (
            self.x - slack <= other.x
            and self.y - slack <= other.y
            and other.x + other.width <= self.x + self.width + slack
            and other.y + other.height <= self.y + self.height + slack
        )

    def overlaps(self, other: "Box", slack: float = 1.0) -> bool:
        return (
            self.x + slack < other.x + other.width
            and other.x + slack < self.x + self.width
            and self.y + slack < other.y + other.height
            and other.y + slack < self.y + self.height
        )


@attrs.define(eq=False)
class Page:
    """One page in a tab of its own, and what it has done."""

    _socket: WebSocketConnection
    _session: str
    events: list[dict[str, Any]] = attrs.field(factory=list)
    _ids: "count[int]" = attrs.field(factory=count)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """What the browser answers to a command of its protocol. Events that come meanwhile are kept."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        await self._socket.send_message(msgspec.json.encode(message | self._to).decode())
        while True:
            heard = await self._hear()
            if heard.get("id") == number:
                assert "error" not in heard, heard
                result: dict[str, Any] = heard["result"]
                return result

    async def open(self, url: str, *, width: int = 1280, height: int = 800, is_dark: bool = False) -> None:
        """Load *url* into a window of that size, and wait until it stands there."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.ask("Emulation.setDeviceMetricsOverride", **size)
        await self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        await self.ask("Page.navigate", url=url)
        while not self.told("Page.loadEventFired"):
            await self._hear()

    def told(self, method: str) -> Sequence[dict[str, Any]]:
        return [event["params"] for event in self.events if event["method"] == method]

    @property
    def fetched(self) -> Sequence[str]:
        """Every address that was asked for, the page's own included."""
        return [event["request"]["url"] for event in self.told("Network.requestWillBeSent")]

    @property
    def complaints(self) -> Sequence[str]:
        """What stands on the console."""
        return [
            *(event["entry"]["text"] for event in self.told("Log.entryAdded")),
            *(event["exceptionDetails"]["text"] for event in self.told("Runtime.exceptionThrown")),
            *(str(event["args"]) for event in self.told("Runtime.consoleAPICalled")),
        ]

    async def value(self, script: str) -> Any:
        """What *script* comes to on the page, as JSON."""
        told = await self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def wait(self, script: str) -> None:
        """Until *script* comes to something that is true on the page."""
        while not await self.value(f"Boolean({script})"):  # noqa: ASYNC110  # asked of another process
            await trio.sleep(0.02)

    async def point(self, x: float, y: float) -> None:
        """Move the mouse there, in the window."""
        await self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    async def picture(self, box: Box) -> Image.Image:
        """What is seen there, also below the edge of the window."""
        clip = {**attrs.asdict(box), "scale": 1}
        shot = await self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return Image.open(io.BytesIO(msgspec.convert(shot["data"], bytes))).convert("RGB")

    @property
    def _to(self) -> dict[str, str]:
        return {"sessionId": self._session} if self._session else {}

    async def _hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = msgspec.json.decode(await self._socket.get_message())
        if "method" in heard and heard.get("sessionId", "") == self._session:
            self.events.append(heard)
        return heard


@asynccontextmanager
async def browser(*, is_offline: bool = True, patience: float = PATIENCE) -> AsyncIterator[Page]:
    """An empty page that shares nothing with other pages. It is offline, or finds 127.0.0.1 and nothing else. All under
    *patience*."""
    with trio.fail_after(patience):
        async with open_websocket_url(_address(), max_message_size=64 * 1024 * 1024) as socket:
            whole = Page(socket, "")
            context = (await whole.ask("Target.createBrowserContext", disposeOnDetach=True))["browserContextId"]
            yield await _new_page(whole, context, is_offline=is_offline)
            await whole.ask("Target.disposeBrowserContext", browserContextId=context)


_STARTED: Final[dict[str, "subprocess.Popen[bytes]"]] = {}
"""The one browser of this process, by its address: to start one takes seconds, to open a page in it does not."""


def _address() -> str:
    """Where the browser listens, started on first use, and again if it ended. It lives as long as this process."""
    for address, process in _STARTED.items():
        if process.poll() is None:
            return address
    _STARTED.clear()
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # the browser may be writing to it yet
    profile = Path(folder.name)
    process = subprocess.Popen(
        [chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    PIDS.add(str(process.pid))
    atexit.register(_end, process, folder)
    found = profile / "DevToolsActivePort"
    deadline = time.monotonic() + START_TIME
    while len(lines := found.read_text().split() if found.exists() else []) < 2:
        assert process.poll() is None, f"the browser exited with {process.returncode}"
        assert time.monotonic() < deadline, f"the browser does not listen after {START_TIME:g} s"
        time.sleep(0.02)  # there is no event for a file that another process writes
    address = f"ws://127.0.0.1:{lines[0]}{lines[1]}"
    _STARTED[address] = process
    return address


def _end_with_parent() -> None:
    """Have the system end this process when its parent does, which may be killed without running its exit handlers."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: "subprocess.Popen[bytes]", folder: "tempfile.TemporaryDirectory[str]") -> None:
    """All of it: a browser is a dozen processes, in a group of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    folder.cleanup()


async def _new_page(whole: Page, context: str, *, is_offline: bool) -> Page:
    target = (await whole.ask("Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
    session = (await whole.ask("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
    page = Page(whole._socket, session)
    for domain in ("Page", "Network", "Log", "Runtime"):
        await page.ask(f"{domain}.enable")
    await page.ask(
        "Network.emulateNetworkConditions", offline=is_offline, latency=0, downloadThroughput=-1, uploadThroughput=-1
    )
    return page


def changed_pixels(one: Image.Image, other: Image.Image) -> int:
    """How many pixels an eye would find to be different."""
    bands = ImageChops.difference(one, other).split()
    strongest = ImageChops.lighter(bands[0], ImageChops.lighter(bands[1], bands[2]))
    return sum(strongest.histogram()[LEAST_CHANGE:])
