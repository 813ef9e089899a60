"""`callboard dev` in a real browser: a form for each tool, progress, questions, errors, and new code when saved."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.browser import Page, browser
from tests.process import CALLBOARD, Process, started

APP: Final = '''
from typing import Literal
import attrs
from callboard import Context, Server
mcp = Server("weather", version="3")

@attrs.frozen
class Name:
    name: str

@mcp.tool
async def forecast(city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> dict[str, str | int]:
    """The forecast for a city."""
    return {"city": city, "days": days, "unit": unit, "word": "WORD"}

@mcp.tool
async def greet(ctx: Context) -> str:
    """Greets you."""
    await ctx.report(1, total=2)
    await ctx.log("info", "asking")
    return f"Hello {(await ctx.elicit('Who are you?', Name)).name}"

@mcp.tool
async def fails(who: list[Name] | None = None) -> str:
    raise LookupError("nothing <b>there</b>")

@mcp.resource("notes://{name}")
async def note(name: str) -> str:
    return f"note {name}"

@mcp.prompt
async def ask(topic: str) -> str:
    return f"Tell me of {topic}"
'''


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[tuple[Page, Process, dict[str, Any]]]:
    app = tmp_path / "app.py"
    app.write_text(APP)
    os.utime(app, ns=(10**9, 10**9))
    async with started(*CALLBOARD, "dev", str(app), "--port", "0", "--json", patience=120) as process:
        told = await process.hear()
        urls = {one["transport"]: one["url"] for one in told["listening"]}
        async with browser(is_offline=False) as page:
            await page.open(urls["http"].removesuffix("/mcp") + "/inspector")
            await page.wait("document.querySelectorAll('nav button').length === 5")
            yield page, process, urls
        process.signal()
        assert await process.wait() == 0


async def choose(page: Page, name: str) -> None:
    await page.value(
        f"[...document.querySelectorAll('nav button')].find((one) => one.textContent === {name!r}).click()"
    )
    await page.wait(f"document.querySelector('h2').textContent.includes({name!r})")


async def submit(page: Page) -> None:
    await page.value("document.querySelector('#detail > form button').click()")


async def outcome(page: Page) -> str:
    await page.wait("document.getElementById('outcome').dataset.done")
    text: str = await page.value("document.getElementById('outcome').textContent")
    return text


async def test_the_inspector_calls_tools_answers_questions_and_follows_the_code(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, process, urls):
        assert await page.value("document.getElementById('name').textContent") == "weather 3"
        assert await page.value("document.getElementById('live').href") == urls["admin"]

        await choose(page, "forecast")
        labels = "[...document.querySelectorAll('form label')].map((one) => one.firstChild.textContent)"
        assert await page.value(labels) == ["city", "days", "unit"]
        assert await page.value("document.querySelector('[name=days]').value") == "3"
        await page.value("document.querySelector('[name=city]').value = 'Oslo'")
        await submit(page)
        said = await outcome(page)
        assert '"city": "Oslo"' in said
        assert '"days": 3' in said
        assert '"unit": "C"' in said

        await choose(page, "greet")
        await submit(page)
        await page.wait("document.querySelector('.ask [name=name]')")
        assert await page.value("document.querySelector('.ask p').textContent") == "Who are you?"
        await page.value("document.querySelector('.ask [name=name]').value = 'Ada'")
        await page.value("document.querySelector('.ask button').click()")
        said = await outcome(page)
        assert "Hello Ada" in said
        assert "info: asking" in said
        assert await page.value("document.querySelector('progress').value") == 1

        await choose(page, "fails")
        assert await page.value("document.querySelector('[name=who]').placeholder") == 'JSON: [{"name":""}]'
        await submit(page)
        assert "LookupError: nothing <b>there</b>" in await outcome(page)
        assert await page.value("document.querySelectorAll('#outcome b').length") == 0

        await choose(page, "notes://{name}")
        await page.value("document.querySelector('[name=name]').value = 'one'")
        await submit(page)
        assert "note one" in await outcome(page)

        await choose(page, "ask")
        await page.value("document.querySelector('[name=topic]').value = 'rain'")
        await submit(page)
        assert "Tell me of rain" in await outcome(page)

        assert page.complaints == [], "nothing that the server does not have is asked for"
        changed = APP.replace("async def fails(", "async def breaks(")
        (tmp_path / "app.py").write_text(changed)
        await process.wait_said(b"code_changed")
        await page.wait("[...document.querySelectorAll('nav button')].some((one) => one.textContent === 'breaks')")
        assert not [line for line in page.complaints if "Content Security" in line]
        assert {url.split("/")[2] for url in page.fetched if url.startswith("http")} == {urls["http"].split("/")[2]}
