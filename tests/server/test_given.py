"""Dicts in place of models are what an author means, and a wrong one is refused where it is written."""

from typing import Any

import pytest

from callboard import Icon, Revision, Server, ToolAnnotations
from callboard.testing import connect

DOT = {"src": "https://example.org/dot.png", "mimeType": "image/png"}


async def test_annotations_and_icons_may_be_dicts() -> None:
    server = Server("shop", icons=[DOT])

    @server.tool(annotations={"readOnlyHint": True, "title": "Look"}, icons=[DOT])
    async def look() -> str:
        return ""

    @server.tool(annotations={"openWorldHint": False}, read_only=True)
    async def count() -> str:
        return ""

    @server.resource("shop://a", annotations={"priority": 0.5}, icons=[Icon(src="https://example.org/a.png")])
    async def a() -> str:
        return ""

    @server.prompt(icons=[DOT])
    async def greet() -> str:
        return ""

    async with connect(server) as client:
        tools = (await client.request("tools/list"))["tools"]
        [resource] = (await client.request("resources/list"))["resources"]
        [prompt] = (await client.request("prompts/list"))["prompts"]
    assert [tool["annotations"] for tool in tools] == [
        {"readOnlyHint": True, "title": "Look"},
        {"openWorldHint": False, "readOnlyHint": True},
    ]
    assert tools[0]["icons"] == prompt["icons"] == [DOT]
    assert (resource["annotations"], resource["icons"]) == ({"priority": 0.5}, [{"src": "https://example.org/a.png"}])
    assert server.info.icons == (Icon(src=DOT["src"], mime_type="image/png"),)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"annotations": {"read_only_hint": True}}, r"'read_only_hint' is unknown; did you mean 'readOnlyHint'"),
        ({"annotations": {"readOnlyHint": "yes"}}, r"annotations\.readOnlyHint: expected a boolean"),
        ({"annotations": ToolAnnotations(title=3)}, r"annotations\.title: expected a string"),  # type: ignore[arg-type]
        ({"annotations": ["readOnlyHint"]}, r"annotations: expected ToolAnnotations or a dict, not list"),
        ({"icons": [{"source": "a"}]}, r"icons\[0\]\.src: is required"),
        ({"icons": DOT}, r"icons: expected a list of Icon or of dicts"),
        ({"icons": ["a.png"]}, r"icons\[0\]: expected Icon or a dict, not str"),
    ],
)
def test_a_wrong_dict_is_refused_where_it_is_written(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Server("shop").tool(**options)


async def test_revisions_may_be_texts_and_unknown_ones_are_refused() -> None:
    server = Server("shop", revisions=["2025-06-18"])
    assert server.revisions == {Revision.V2025_06_18}
    async with connect(server, Revision.V2025_06_18) as client:
        assert (await client.request("tools/list"))["tools"] == []
    unfit: Any
    for unfit in (["2025-06-19"], "2025-06-18", []):
        with pytest.raises((TypeError, ValueError), match=r"revisions: .*2025-06-18"):
            Server("shop", revisions=unfit)
