"""The page of types: each row is a tool that is called."""

import runpy
from typing import Any

import pytest

from callboard.server import Server
from callboard.testing import connect
from tests.shared import ROOT

PAGE = runpy.run_path(str(ROOT / "docs" / "tool_types.py"))
ROWS = [row for rows in PAGE["TABLE"].values() for row in rows]
UNPROMISED = ("str", "Annotated[str, Meta(max_length=5)]", "Any", "object")


def as_tool(function: Any, **annotations: Any) -> Server:
    server = Server("types")
    function.__annotations__ = annotations
    server.tool(function)
    return server


def test_the_page_of_types_is_what_its_table_says() -> None:
    page = (ROOT / "docs" / "reference" / "types.md").read_text()
    assert page == PAGE["page"](), "run: python docs/tool_types.py > docs/reference/types.md"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.written)
async def test_a_type_of_the_page_is_what_the_handler_gets(row: Any) -> None:
    got: list[Any] = []

    async def tool(x: Any) -> None:
        got.append(x)

    async with connect(as_tool(tool, x=row.kind)) as client:
        assert "isError" not in await client.call("tool", x=row.given)
    assert got == [row.got]
    assert type(got[0]) is type(row.got)


@pytest.mark.parametrize("row", [row for row in ROWS if row.written != "bytes"], ids=lambda row: row.written)
async def test_a_type_of_the_page_goes_round(row: Any) -> None:
    async def tool(x: Any) -> Any:
        return x

    async with connect(as_tool(tool, x=row.kind, **{"return": row.kind})) as client:
        [shown] = (await client.request("tools/list"))["tools"]
        result = await client.call("tool", x=row.given)
    if row.written in UNPROMISED:
        assert "outputSchema" not in shown
        return
    back = row.given if row.back is ... else row.back
    is_object = (
        shown["outputSchema"]["properties"].keys() != {"result"} if "properties" in shown["outputSchema"] else True
    )
    assert result["structuredContent"] == (back if is_object else {"result": back})


@pytest.mark.parametrize("row", PAGE["DEFAULTS"], ids=lambda row: row.written)
async def test_a_default_of_the_page_is_what_the_handler_gets(row: Any) -> None:
    got: list[Any] = []

    async def tool(x: Any = row.default) -> None:
        got.append(x)

    async with connect(as_tool(tool, x=row.kind)) as client:
        [shown] = (await client.request("tools/list"))["tools"]
        assert "isError" not in await client.call("tool")
    assert got == [row.got]
    assert "required" not in shown["inputSchema"]


@pytest.mark.parametrize(("written", "kind", "value", "blocks"), PAGE["BLOCKS"], ids=[row[0] for row in PAGE["BLOCKS"]])
async def test_content_of_the_page_becomes_blocks(written: str, kind: Any, value: Any, blocks: list[str]) -> None:
    async def tool() -> Any:
        return value

    async with connect(as_tool(tool, **{"return": kind})) as client:
        result = await client.call("tool")
    assert [block["type"] for block in result["content"]] == blocks
