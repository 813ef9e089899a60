"""Write `images/page*.png`: the live page in front of a broker at work. Takes two minutes, for that is what it shows.

python docs/screenshots.py [FOLDER]
"""

import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import trio
from PIL import Image

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from callboard import Client, Context, Server, ToolError  # noqa: E402
from callboard.codecs.revisions import LEGACY  # noqa: E402
from callboard.config import BackendSpec  # noqa: E402
from callboard.transports.client.process import Command  # noqa: E402
from tests.broker.front import backend  # noqa: E402

# They are no part of the package.
from tests.browser import Box, Page, browser  # noqa: E402
from tests.observe.stage import SETTINGS, Stage, hung, stage  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
SECONDS: Final = 121
LONGEST: Final = 300.0
SETTLES: Final = 6.0
"""Seconds after which a browser no longer takes all of the machine."""
COLOURS: Final = 256
CHANCE: Final = random.Random(17)  # noqa: S311 -- who calls what, and how often


@attrs.frozen
class Picture:
    """What is seen on one of them."""

    view: str
    width: int = 1280
    height: int = 1080
    is_dark: bool = False
    first: str = ""
    """Done on the page before it is taken."""


PICTURES: Final[Mapping[str, Picture]] = {
    "page": Picture("servers"),
    "page-dark": Picture("calls", is_dark=True),
    "page-tree": Picture("tree", first="document.querySelector('[aria-label=\"Unfold billing\"]').click()"),
    "page-narrow": Picture("servers", width=500, height=1000),
}

TOOLS: Final[Mapping[str, Mapping[str, float]]] = {
    "search": {"query": 0.004, "suggest": 0.001, "reindex": 0.4},
    "tickets": {"find": 0.003, "open": 0.012, "assign": 0.008, "close": 0.006, "merge": 0.02},
    "calendar": {"free_slots": 0.002, "invite": 0.03},
    "notes": {"read": 0.0005, "append": 0.001, "tag": 0.001},
    "metrics": {"range": 0.05, "instant": 0.006, "export": 1.5},
}
"""Tools, and the seconds that each takes, about."""

CLIENTS: Final = ("editor 3.2", "assistant 1.9", "notebook 7.0", "ci-agent 0.4", "desk 2.11", "shell 1.0")
PRINCIPALS: Final = ("ada", "grace", "barbara", "katherine")


@attrs.frozen
class Consent:
    """The form of `refund`."""

    agreed: bool


def played(name: str, tools: Mapping[str, float]) -> BackendSpec:
    server = Server(name, version="1.0", revisions=LEGACY)

    def add(tool: str, usual: float) -> None:
        async def answer() -> str:
            await trio.sleep(usual * CHANCE.lognormvariate(0, 0.5))
            if CHANCE.random() < 0.004:
                raise ToolError("not today")
            return tool

        server.tool(name=tool)(answer)

    for tool, usual in tools.items():
        add(tool, usual)

    @server.tool
    async def summarize(pages: int = 40, *, ctx: Context) -> str:
        async for _ in ctx.progress(range(pages)):
            await trio.sleep(1.2)
        return name

    @server.tool
    async def refund(amount: int = 5, *, ctx: Context) -> bool:
        return (await ctx.elicit(f"Refund {amount}?", Consent)).agreed

    @server.resource("book://{title}")
    async def book(title: str) -> str:
        return title

    return backend(server, name, SETTINGS)


def backends() -> list[BackendSpec]:
    """Six that are up, one of them a process; one that is not there, and one that says nothing."""
    weather = Command(args=(sys.executable, "-m", "callboard", "run", str(ROOT / "examples" / "weather.py")))
    return [
        *(played(name, tools) for name, tools in TOOLS.items()),
        BackendSpec(name="weather", target=weather, settings=SETTINGS),
        BackendSpec(name="billing", target=Command(args=("billing-mcp",)), settings=SETTINGS),
        hung("archive"),
    ]


async def use(client: Client) -> None:
    """Calls, as people make them: now many, now few."""
    times = {f"{server}__{tool}": usual for server, tools in TOOLS.items() for tool, usual in tools.items()}
    used = {name: usual**-0.5 for name, usual in times.items() if not name.endswith(("merge", "tag"))}
    while True:
        for _ in range(CHANCE.randrange(60)):
            (name,) = CHANCE.choices([*used], [*used.values()])
            await client.call(name)
            await trio.sleep(CHANCE.expovariate(25))
        await trio.sleep(CHANCE.expovariate(0.4))


async def people(here: Stage, nursery: trio.Nursery) -> None:
    for number in range(18):
        name, version = CLIENTS[number % len(CLIENTS)].split()
        token = {"authorization": f"Bearer {token_of(PRINCIPALS[number % len(PRINCIPALS)])}"}
        client = await here.client(name, version, "2025-11-25" if number % 3 else None, headers=token)
        nursery.start_soon(use, client)
        await trio.sleep(1.5)
        if number % 5 == 0:
            here.begin(client, "notes__summarize", pages=300 - 40 * number % 200)
        if number % 6 == 0:
            asked = await here.asked(f"{name}", headers=token)
            await asked.call("tickets__refund")


def token_of(principal: str) -> str:
    return f"{principal}-{'0' * 24}"


async def principal_of(token: str) -> str:
    return token.partition("-")[0]


async def take(page: Page, url: str, picture: Picture) -> Image.Image:
    await page.open("about:blank")  # else only the view would change
    await page.open(f"{url}#{picture.view}", width=picture.width, height=picture.height, is_dark=picture.is_dark)
    await page.wait("document.querySelector('#view tbody tr')")
    if picture.first:
        await page.value(picture.first)
    await trio.sleep(1.5)
    if page.complaints:
        raise SystemExit(f"the page complains: {page.complaints}")
    return await page.picture(Box(0, 0, picture.width, picture.height))


async def main(folder: Path) -> None:
    with trio.fail_after(LONGEST):
        options = {"http": "127.0.0.1:8000", "admin": "127.0.0.1:8001", "authenticate": principal_of}
        async with stage(backends(), **options) as here, trio.open_nursery() as nursery:
            began = trio.current_time()
            await people(here, nursery)
            await trio.sleep_until(began + SECONDS)
            async with browser(is_offline=False) as page:
                await trio.sleep(SETTLES)
                taken = {name: await take(page, here.urls["admin"], one) for name, one in PICTURES.items()}
            nursery.cancel_scope.cancel()
    for name, image in taken.items():  # only now: it takes long, and the loop would show that
        image.quantize(COLOURS, dither=Image.Dither.NONE).save(folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
