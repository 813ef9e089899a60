"""The page that puts callboard beside others: our code on it works, and the code for others runs with them."""

import json
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.hosting_servers import FASTMCP_NEEDS
from benchmarks.peers import HERE, environment
from callboard import Server, connect
from tests.node import installed, node
from tests.shared import ROOT

COMPARED: Final = ROOT / "docs" / "compared"
CLIENTS: Final = ROOT / "tests" / "clients" / "node"
TYPESCRIPT: Final = ("@modelcontextprotocol/server", "@modelcontextprotocol/node", "zod")
CALLED: Final = """
    import('./with_typescript.mjs').then(async found => {
        for (const [name, args] of Object.entries(CALLS)) console.log(await found.call(name, args));
        console.log(typeof found.serve);
    });
"""
LOADED: Final = 'import asyncio, runpy, sys; print(asyncio.run(runpy.run_path(sys.argv[1])["call"]()))'


@pytest.fixture
def ours() -> dict[str, Any]:
    return runpy.run_path(str(COMPARED / "with_callboard.py"))


def test_the_page_is_what_the_files_say_and_has_twenty_things() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "compare.py"))
    assert (ROOT / "docs" / "compared.md").read_text() == script["page"](), (
        "run: python docs/compare.py > docs/compared.md"
    )
    titles = list(script["sections"]("with_callboard.py"))
    assert len(titles) == 20
    for file in script["LIBRARIES"].values():
        assert set(script["sections"](file)) == set(titles), file


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("add", {"a": 1, "b": 2}, {"result": 3}),
        ("greet", {"name": "Ada"}, "Hello Ada"),
        ("dice", {}, {"result": 6}),
        ("price", {"item": "tea"}, {"amount": 9.5, "currency": "EUR"}),
        ("wait", {"seconds": 0.01}, "done"),
        ("pack", {"items": ["a", "b"]}, {"result": 2}),
        ("check", {}, "ok"),
        ("deliver", {}, "Main Street"),
        ("stock", {}, {"result": 3}),
        ("open_sale", {}, "open"),
    ],
)
async def test_a_tool_of_ours_works(ours: dict[str, Any], tool: str, arguments: Any, said: Any) -> None:
    async with connect(ours["server"], elicitation=lambda _: {"street": "Main Street"}) as client:
        result = await client.call_with(tool, arguments)
        assert said == (getattr(result.content[0], "text", "") if isinstance(said, str) else result.structured_content)


async def test_the_other_things_of_ours_work(ours: dict[str, Any]) -> None:
    server: Server = ours["server"]
    async with connect(server) as client:
        assert (await client.call("buy", item="tea")).is_error
        assert (await client.call("dice", sides=1)).is_error
        assert (await client.call("logo")).content[0].type == "image"
        assert "9 to 5" in str((await client.read("shop://hours")).contents)
        assert "Assam" in str((await client.read("shop://items/tea")).contents)
        assert "slogan for tea" in str((await client.prompt("slogan", product="tea")).messages)
        assert await client.complete("slogan", "product", "to") == ["toast"]
        greet = next(tool for tool in await client.tools() if tool.name == "greet")
        assert "Of the person to greet." in str(greet.input_schema)
        async with client.listen(tools=True) as changes:
            await client.call("open_sale")
            await anext(changes)
        assert "half the price" in str((await client.call("bargain")).content)
    async with connect(ours["shared"]) as client:
        assert "connected" in str((await client.call("database")).content)
    assert await ours["call"]() == {"result": 3}


@pytest.mark.parametrize(
    ("file", "needs"),
    [("with_fastmcp.py", ("fastmcp-slim[client]==4.1.4", *FASTMCP_NEEDS)), ("with_mcp.py", ("mcp==2.3.0",))],
)
def test_the_code_of_another_python_library_runs_with_that_library(file: str, needs: tuple[str, ...]) -> None:
    command = [str(environment(*needs)), "-W", "ignore", "-c", LOADED, str(COMPARED / file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "{'result': 3}", done.stderr


def test_the_code_for_typescript_s_library_runs_with_that_library(tmp_path: Path) -> None:
    servers, clients = (installed(folder) / "node_modules" for folder in (HERE / "hosting_node", CLIENTS))
    (tmp_path / "node_modules" / "@modelcontextprotocol").mkdir(parents=True)
    for name, modules in {**dict.fromkeys(TYPESCRIPT, servers), "@modelcontextprotocol/client": clients}.items():
        (tmp_path / "node_modules" / name).symlink_to(modules / name)
    shutil.copy(COMPARED / "with_typescript.mjs", tmp_path)
    calls = {"add": {"a": 1, "b": 2}, "wait": {"seconds": 0.01}, "check": {}, "open_sale": {}, "bargain": {}}
    script = CALLED.replace("CALLS", json.dumps(calls))
    done = subprocess.run([node(), "-e", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["3", "done", "ok", "open", "half the price", "function"], done.stderr
