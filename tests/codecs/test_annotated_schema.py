"""The annotated schema: what does not fit it is told with its place; and the shapes that are made of it."""

import json
from pathlib import Path
from typing import Any

import pyshacl
import pytest
import yaml

from callboard.codecs.annotated_schema import MAX_TEXT, annotated_schema, check_message
from callboard.codecs.linked_data import to_graph
from callboard.codecs.shapes import shapes
from tests.shared import PROTOCOL, needs_protocol

OGC = PROTOCOL / "seed-examples" / "ogc"


def without_descriptions(schema: Any, *, are_names: bool = False) -> Any:
    if isinstance(schema, dict):
        return {
            name: without_descriptions(inner, are_names=name in ("properties", "definitions") and not are_names)
            for name, inner in schema.items()
            if are_names or name != "description"
        }
    return [without_descriptions(inner) for inner in schema] if isinstance(schema, list) else schema


@needs_protocol
def test_the_schema_is_the_one_of_the_ogc_without_its_descriptions() -> None:
    theirs = without_descriptions(yaml.safe_load((OGC / "ogc-schema.yaml").read_text()))
    theirs["definitions"]["ProgressToken"] = {"type": ["string", "integer"]}  # where the remote reference leads
    assert annotated_schema() == theirs


@needs_protocol
@pytest.mark.parametrize("seed", sorted(OGC.glob("*.json")), ids=lambda path: path.stem)
def test_the_messages_of_the_ogc_fit(seed: Path) -> None:
    assert check_message(json.loads(seed.read_text())) == []


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def result(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": members}


SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    ("message", "asked", "places"),
    [
        ("ping", None, [""]),
        ({"jsonrpc": "2.0"}, None, [""]),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, None, ["jsonrpc"]),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, None, ["id"]),
        (request("tools/call", name=4), None, ["params.name"]),
        (request("tools/call"), None, ["params"]),
        (request("com.example/anything", name=4), None, []),
        (result(tools=[{"name": "a", "inputSchema": SCHEMA}, {"name": "b"}]), "tools/list", ["result.tools[1]"]),
        (result(tools=[{"name": 4, "inputSchema": SCHEMA}]), None, ["result.tools[0].name"]),
        (result(resources=[]), "tools/list", ["result"]),
        (result(content=[{"type": "text", "text": 4}]), "tools/call", ["result.content[0].text"]),
        (result(content=[{"type": "hologram"}]), "tools/call", ["result.content[0]"]),
        (result(content=[{"type": "image", "data": ""}]), "tools/call", ["result.content[0]"]),
        (result(anything=1), "ping", []),
        (result(structuredContent={}), "tools/call", ["result"]),
        (result(resultType="complete", structuredContent={}), "tools/call", ["result"]),
        (result(task={"taskId": "t", "status": "working"}), "tools/call", []),
        (result(resultType="task", taskId="t", status="working"), "tools/call", []),
        (result(resultType="input_required", inputRequests={}), "tools/call", []),
        (result(resultType="input_required", inputRequests={}), "prompts/get", []),
        (result(resultType="input_required", _meta=4), "tools/call", ["result._meta"]),
        ({"jsonrpc": "2.0", "id": 1, "error": {"code": "x", "message": "m"}}, None, ["error.code"]),
        ({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}, None, ["params"]),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(message: Any, asked: str | None, places: list[str]) -> None:
    found = check_message(message, asked)
    assert sorted({one.place for one in found}) == sorted({*places})
    assert all(0 < len(one.text) <= MAX_TEXT for one in found)


def test_a_large_value_is_not_quoted_whole() -> None:
    (found,) = check_message(result(tools=[{"name": ["x" * 10_000], "inputSchema": SCHEMA}]), "tools/list")
    assert str(found).startswith("result.tools[0].name: ")
    assert len(found.text) == MAX_TEXT


TOOL = {"name": "a", "inputSchema": {**SCHEMA, "properties": {"p": {}}, "required": ["p", "q"]}}


@pytest.mark.parametrize(
    ("message", "conforms"),
    [
        (result(tools=[TOOL, {**TOOL, "annotations": {"readOnlyHint": True}}]), True),
        (result(tools=[{"name": "a"}]), False),
        (result(tools=[{**TOOL, "name": 4}]), False),
        (result(tools=[{**TOOL, "annotations": {"readOnlyHint": "yes"}}]), False),
        (result(tools=[{**TOOL, "description": "a\x00"}]), True),
        (result(content=[{"type": "text", "text": "a"}, {"type": "image", "data": "", "mimeType": "x/y"}]), True),
        (result(content=[{"type": "image", "data": ""}]), False),
        (result(content=[{"type": "text", "text": "a", "annotations": {"priority": 0.5}}]), True),
        (result(content=[{"type": "text", "text": "a", "annotations": {"priority": 1}}]), True),
        (result(resources=[{"name": "a", "uri": "a://b"}, {"name": "b", "uri": "a://c", "size": 4}]), True),
        (result(resources=[{"name": "a"}, {"name": "b", "uri": "a://c"}]), False),
        (result(contents=[{"uri": "a://b", "text": "x"}, {"uri": "a://b", "blob": ""}]), True),
        (result(contents=[{"uri": "a://b"}, {"uri": "a://b", "text": ""}]), False),
        (result(prompts=[{"name": "p", "arguments": [{"name": "a", "required": True}, {"name": "b"}]}]), True),
        (result(prompts=[{"name": "p", "arguments": [{"name": "a", "required": "x"}, {"name": "b"}]}]), False),
        (result(roots=[{"uri": "file:///a"}, {"uri": "file:///b", "name": "b"}]), True),
    ],
)
def test_the_shapes_say_of_a_graph_what_the_schema_says_of_a_message(message: dict[str, Any], conforms: bool) -> None:
    found, _, text = pyshacl.validate(to_graph(message), shacl_graph=shapes())
    assert found is conforms, text
    assert (check_message(message) == []) is conforms
