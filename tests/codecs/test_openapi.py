"""OpenAPI documents: what becomes of operations, and of documents that mean harm."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard import Server
from callboard.codecs.openapi.document import MAX_OPERATIONS, ApiDocument, BadOpenApi
from callboard.codecs.openapi.operations import ApiOperation, SkippedOperation, read_operations
from callboard.codecs.openapi.requests import UnfitArgument, request_for
from callboard.codecs.openapi.schemas import MAX_ALL_NODES, MAX_SCHEMA_BYTES
from callboard.server.content.errors import BadArguments

JSON = "application/json"


def document(paths: Any, version: str = "3.1.0", **components: Any) -> dict[str, Any]:
    return {"openapi": version, "info": {}, "paths": paths, "components": components}


def taking(*parameters: Any, **more: Any) -> dict[str, Any]:
    return {"parameters": list(parameters), "responses": {}, **more}


def sending(schema: Any, **more: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {JSON: {"schema": schema}}, **more}, "responses": {}}


def in_query(schema: Any, name: str = "x", **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, **more}


def read(found: dict[str, Any]) -> tuple[list[ApiOperation], list[SkippedOperation]]:
    return read_operations(ApiDocument.read(json.dumps(found).encode()))


def one(found: dict[str, Any]) -> ApiOperation:
    [operation], skipped = read(found)
    assert not skipped
    return operation


def skipped(found: dict[str, Any]) -> str:
    operations, [why] = read(found)
    assert not operations
    return why.why


# Schemas.


def test_what_3_0_has_of_its_own_becomes_json_schema() -> None:
    schema = {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "nullable": True, "enum": [2, 3], "xml": {}}
    any_of = {"anyOf": [{"type": "string"}], "nullable": True, "example": 1, "x-mine": 2}
    found = one(document({"/a": {"get": taking(in_query(schema), in_query(any_of, "y"))}}, "3.0.3")).input_schema
    assert found["properties"]["x"] == {"type": ["integer", "null"], "exclusiveMinimum": 1, "enum": [2, 3, None]}
    assert found["properties"]["y"] == {"anyOf": [{"anyOf": [{"type": "string"}]}, {"type": "null"}]}


def test_what_a_schema_refers_to_comes_along_once() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#/components/schemas/T r"}, "v": {"type": "integer"}}}
    ref = {"$ref": "#/components/schemas/T%20r", "description": "Where"}
    body = {
        "type": "object",
        "properties": {"tree": ref, "more": {"type": "array", "items": ref}},
        "required": ["tree"],
    }
    found = one(document({"/a": {"post": sending(body, required=True)}}, schemas={"T r": tree}))
    properties = found.input_schema["properties"]
    assert properties["tree"] == {"$ref": "#/$defs/T_20r", "description": "Where"}
    assert found.input_schema["required"] == ["tree"]
    assert json.loads(request_for(found, {"tree": {"v": 1}}).body or b"") == {"tree": {"v": 1}}


def test_a_large_enumeration_is_told_in_a_few_words() -> None:
    found = one(document({"/a": {"get": taking(in_query({"enum": [f"v{n}" for n in range(100_000)]}))}}))
    assert found.input_schema["properties"]["x"] == {
        "description": "One of 100000 values.",
        "examples": ["v0", "v1", "v2"],
    }


_DEEP: Any = {"type": "string"}
for _ in range(100):
    _DEEP = {"type": "object", "properties": {"a": _DEEP}}


@pytest.mark.parametrize(
    "found",
    [
        document(
            {"/a": {"post": sending({"$ref": "#/components/schemas/A0"})}},
            schemas={f"A{n}": {"items": {"$ref": f"#/components/schemas/A{n + 1}"}} for n in range(5000)}
            | {"A5000": {}},
        ),
        document({"/a": {"post": sending({"description": "What", "default": "x" * MAX_SCHEMA_BYTES})}}),
        document({"/a": {"post": sending(_DEEP)}}),
    ],
    ids=["long chain", "long default", "deep"],
)
def test_a_schema_that_is_too_large_is_left_out(found: dict[str, Any]) -> None:
    operation = one(found)
    assert len(json.dumps(operation.input_schema)) < 200
    [argument] = operation.input_schema["properties"]
    sent = json.loads(request_for(operation, {argument: [1]}).body or b"")
    assert sent == ([1] if argument == "body" else {argument: [1]})


def test_documents_that_mean_harm_cost_little_and_harm_only_their_own_tools() -> None:
    schemas: dict[str, Any] = {
        "Self": {"allOf": [{"$ref": "#/components/schemas/Self"}, {"$ref": "#/components/schemas/Self"}]},
        "A": {"$ref": "#/components/schemas/B"},
        "B": {"$ref": "#/components/schemas/A"},
        **{f"F{n}": {"anyOf": [{"$ref": f"#/components/schemas/F{n + 1}"}] * 10} for n in range(30)},
        "F30": {"type": "string"},
    }
    paths = {
        "/self": {"post": sending({"$ref": "#/components/schemas/Self"})},
        "/circle": {"post": sending({"$ref": "#/components/schemas/A"})},
        "/fan": {"post": sending({"$ref": "#/components/schemas/F0"})},
        "/slow": {"get": taking(in_query({"type": "string", "pattern": "^(a+)+$"}))},
        "/odd": {"get": taking(in_query({"type": "string", "pattern": "(?<=a)b(", "maxLength": 80}))},
        "/none": {"get": taking(in_query({"type": "nonsense"}))},
        "/good": {"get": taking(in_query({"type": "string"}))},
    }
    began = time.process_time()
    server = Server.from_openapi(document(paths, schemas=schemas), base_url="https://api.example.com")
    tools = server.registry.tools.entries
    assert set(tools) >= {"get_slow", "get_odd", "get_none", "get_good"}
    assert tools["get_odd"].signature.input_schema["properties"]["x"] == {"type": "string", "maxLength": 80}
    for entry in tools.values():
        for value in ("a" * 60 + "!", [["x"] * 50] * 50):
            with suppress(BadArguments):
                entry.signature.read(dict.fromkeys(entry.signature.input_schema["properties"], value))
    assert time.process_time() - began < 5


def test_all_schemas_of_a_document_have_an_upper_limit() -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(500)}, "oneOf": []}
    paths = {f"/{n}": {"post": sending({"$ref": "#/components/schemas/Wide"})} for n in range(300)}
    operations, left_out = read(document(paths, schemas={"Wide": schema}))
    assert (len(operations), left_out) == (300, [])
    told = sum("$defs" in one.input_schema for one in operations)
    assert told == MAX_ALL_NODES // 502
    assert operations[-1].input_schema["properties"] == {"body": {}}


def test_operations_have_an_upper_limit() -> None:
    with pytest.raises(BadOpenApi, match="more than 1024 operations"):
        read(document({f"/{number}": {"get": taking()} for number in range(MAX_OPERATIONS + 1)}))
    assert len(read(document({f"/{number}": {"get": taking()} for number in range(MAX_OPERATIONS)}))[0]) == 1024


# Names.


def test_names_are_those_that_tools_may_have() -> None:
    item = {
        "get": taking(operationId="../../etc/passwd"),
        "put": taking(operationId="../../etc/passwd"),
        "post": taking(operationId="\u202e\r\n"),
        "delete": taking(operationId="x" * 100_000),
    }
    found, _ = read(document({"/a/{b}": {"parameters": [{"name": "b", "in": "path"}], **item}}))
    assert [operation.name for operation in found][:3] == [".._.._etc_passwd", ".._.._etc_passwd_2", "post_a_b"]
    assert len(found[3].name) == 64


def test_arguments_that_collide_are_told_apart() -> None:
    body = {"type": "object", "properties": {name: {} for name in ("a.b", "a b", "a/b", "", "日本", "id")}}
    parameters = [in_query({}, "id"), {"name": "id", "in": "header"}, {"name": "id", "in": "cookie"}]
    found = one(document({"/a": {"post": {**sending(body), "parameters": parameters}}}))
    names = list(found.input_schema["properties"])
    assert names == ["id", "header_id", "cookie_id", "a.b", "a_b", "body_a_b", "body", "body_body", "body_id"]
    request = request_for(found, {name: name for name in names})
    assert json.loads(request.body or b"") == {
        "a.b": "a.b",
        "a b": "a_b",
        "a/b": "body_a_b",
        "": "body",
        "日本": "body_body",
        "id": "body_id",
    }
    assert (request.target, request.headers[0]) == ("/a?id=id", ("id", "header_id"))


# What is skipped, and why.


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"post": sending({"$ref": "http://169.254.169.254/latest"})}, "refers to another document"),
        ({"post": sending({"properties": {"a": {"$ref": "other.json#/A"}}})}, "refers to another document"),
        ({"get": taking({"$ref": "#/nothing"})}, "leads to nothing"),
        ({"get": taking(servers=[{"url": "https://evil.example.com"}])}, "at another server"),
        ({"get": taking({"name": "x", "in": "body"})}, "a parameter is in 'body'"),
        ({"get": taking(in_query({}, style="matrix"))}, "the style 'matrix'"),
        ({"get": taking({"name": "x\r\nEvil: 1", "in": "header"})}, "is not the name of a header"),
        ({"get": taking({"name": "x", "in": "query", "content": {"text/xml": {}}})}, "is not JSON"),
        ({"get": taking(*(in_query({}, f"p{n}") for n in range(1000)))}, "more than 200 parameters"),
        ({"post": {"requestBody": {"required": True, "content": {"application/x\r\n+json": {}}}}}, "neither JSON nor"),
        ({"get": taking({"name": "other", "in": "path"})}, "the variables in its path"),
    ],
)
def test_an_operation_that_cannot_be_a_tool_is_skipped(item: Any, words: str) -> None:
    assert words in skipped(document({"/a": item}))


@pytest.mark.parametrize("path", ["a", "/a b", "/é", "/a?b=c", "/a#b", "/a\\b", "/{x", "/{x}", "//{}\r\nHost: evil"])
def test_a_path_that_is_none_is_skipped(path: str) -> None:
    assert skipped(document({path: {"get": taking()}})).startswith(("its path is not one", "the variables in its path"))


def test_headers_that_are_not_the_models_to_say_are_left_out() -> None:
    names = ("Host", "Cookie", "X-Forwarded-For", "Content-Length", "Authorization", "X-Fine")
    found = one(document({"/a": {"get": taking(*({"name": name, "in": "header"} for name in names))}}))
    assert list(found.input_schema["properties"]) == ["X-Fine"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["get", "post", "parameters", "requestBody", "content", JSON, "schema", "$ref", "name"])
                | st.sampled_from(["in", "responses", "200", "properties", "type", "allOf", "enum", "required", "/a"]),
                inner | st.sampled_from(["query", "path", "#/paths/~1a", "object"]),
                max_size=4,
            )
        ),
        max_leaves=25,
    )
)
@settings(max_examples=300)
def test_any_paths_are_read_or_refused_in_words(paths: Any) -> None:
    try:
        found, _ = read_operations(ApiDocument.of({"openapi": "3.1.0", "paths": {"/a": paths}}))
    except BadOpenApi:
        return
    for operation in found:
        json.dumps(operation.input_schema)


# Requests.


@given(st.text() | st.integers() | st.lists(st.text()) | st.dictionaries(st.text(), st.text()))
def test_no_value_leads_elsewhere(value: Any) -> None:
    path = {"name": "p", "in": "path"}
    operation = one(document({"/a/{p}/b": {"get": taking(path, in_query({}), {"name": "h", "in": "header"})}}))
    try:
        request = request_for(operation, {"p": value, "x": value, "h": value})
    except UnfitArgument:
        return
    assert request.target.isascii()
    assert request.target.isprintable()
    first, _, _ = request.target.partition("?")
    assert first.count("/") == 3
    assert first.startswith("/a/")
    assert first.endswith("/b")
    assert not {".", ".."} & set(first.split("/"))
    assert "#" not in request.target
    assert all(text.isprintable() and text.isascii() for pair in request.headers for text in pair)


@pytest.mark.parametrize(
    ("more", "value", "target"),
    [
        ({}, [1, 2], "/a?x=1&x=2"),
        ({"explode": False}, ["a b", "c"], "/a?x=a%20b,c"),
        ({"style": "pipeDelimited", "explode": False}, ["a", "b"], "/a?x=a%7Cb"),
        ({"style": "spaceDelimited", "explode": False}, ["a", "b"], "/a?x=a%20b"),
        ({"style": "deepObject"}, {"k": "v"}, "/a?x[k]=v"),
        ({}, {"k": "v", "l": True}, "/a?k=v&l=true"),
        ({"explode": False}, {"k": "v"}, "/a?x=k,v"),
        ({}, True, "/a?x=true"),
        ({}, 1.5, "/a?x=1.5"),
        ({}, None, "/a"),
        ({}, [], "/a"),
        ({"explode": False}, [], "/a"),
    ],
)
def test_values_are_written_as_the_document_says(more: Any, value: Any, target: str) -> None:
    operation = one(document({"/a": {"get": taking(in_query({}, **more))}}))
    assert request_for(operation, {"x": value}).target == target


def test_a_parameter_of_json_is_written_so() -> None:
    content = {"name": "x", "in": "query", "content": {JSON: {"schema": {"type": "object"}}}}
    operation = one(document({"/a": {"get": taking(content)}}))
    assert request_for(operation, {"x": {"a": 1}}).target == "/a?x=%7B%22a%22%3A1%7D"


@pytest.mark.parametrize("where", ["query", "cookie"])
def test_an_object_adds_no_parameter_that_there_is(where: str) -> None:
    operation = one(
        document(
            {
                "/a": {
                    "get": taking(
                        {"name": "more", "in": where, "schema": {"type": "object"}},
                        {"name": "admin", "in": where, "schema": {"type": "boolean"}},
                    )
                }
            }
        )
    )
    assert "x=1" in str(request_for(operation, {"more": {"x": 1}}))
    with pytest.raises(UnfitArgument, match="more: 'admin' is a parameter of its own"):
        request_for(operation, {"more": {"x": 1, "admin": True}})


def test_a_form_is_sent_as_one() -> None:
    schema = {
        "type": "object",
        "required": ["to"],
        "properties": {
            "to": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "flat": {"type": "array", "items": {"type": "integer"}},
            "more": {"type": "object"},
            "card": {"type": "object"},
        },
    }
    encoding = {"card": {"style": "deepObject"}, "flat": {"style": "form", "explode": False}}
    content = {"application/x-www-form-urlencoded": {"schema": schema, "encoding": encoding}}
    operation = one(document({"/a": {"post": {"requestBody": {"required": True, "content": content}}}}))
    assert operation.input_schema["required"] == ["to"]
    given = {"to": "a&b=c d\n", "tags": ["x", "y&"], "flat": [1, 2], "more": {"a": [1]}, "card": {"no": 3}}
    request = request_for(operation, given)
    assert request.body == b"to=a%26b%3Dc%20d%0A&tags=x&tags=y%26&flat=1,2&more=%7B%22a%22%3A%5B1%5D%7D&card[no]=3"
    assert request.headers == (("content-type", "application/x-www-form-urlencoded"),)
    assert request_for(operation, {"to": None}).body == b""


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"schema": {"type": "object"}}, "fields are not known"),
        ({}, "fields are not known"),
        ({"schema": {"properties": {"a": {}}}, "encoding": {"a": {"style": "matrix"}}}, "the style 'matrix'"),
        ({"schema": {"properties": {"a": {}}}, "encoding": {"a": {"style": ["x"]}}}, "is not supported"),
    ],
)
def test_a_form_that_cannot_be_sent_is_skipped(form: Any, words: str) -> None:
    content = {"application/x-www-form-urlencoded": form}
    assert words in skipped(document({"/a": {"post": {"requestBody": {"content": content}}}}))


def test_a_url_has_an_upper_limit() -> None:
    operation = one(document({"/a": {"get": taking(in_query({}))}}))
    with pytest.raises(UnfitArgument, match="a URL of more than 8000 bytes"):
        request_for(operation, {"x": "y" * 9000})
