"""Header mirroring: a client that writes, a server that compares, and everyone who tries to get between them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from callboard.codecs.json_schema import MAX_SCHEMA_DEPTH
from callboard.codecs.mcp_headers.header_map import MAX_MIRRORED, NO_HEADERS, HeaderMap
from callboard.codecs.mcp_headers.header_values import MAX_SAFE_INTEGER
from callboard.codecs.mcp_headers.mirror import (
    MIRRORED_NAME,
    check_method,
    check_mirror,
    check_params,
    check_version,
    mirror,
    read_mirror,
)
from callboard.codecs.members import Members, read_members
from callboard.errors import HeaderMismatch, InvalidDefinition, InvalidParams, InvalidRequest, ParseError, PeerError

VERSION = "2026-07-28"
REGION = HeaderMap.compile(
    {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "limit": {"type": "integer", "x-mcp-header": "Limit"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry_Run"},
            "where": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
        },
    }
)


def members(params: dict[str, Any]) -> Members:
    return read_members(json.dumps(params).encode())


def call(**arguments: Any) -> Members:
    return members({"name": "t", "arguments": arguments})


def check(headers: list[tuple[bytes, bytes]], params: Members, header_map: HeaderMap = REGION) -> None:
    check_mirror(headers, version=VERSION, method="tools/call", params=params, header_map=header_map)


# The annotation


def annotated(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, **more}


def string(name: Any = "A") -> dict[str, Any]:
    return {"type": "string", "x-mcp-header": name}


@pytest.mark.parametrize("kind", ["string", "integer", "boolean"])
def test_a_primitive_property_may_be_mirrored(kind: str) -> None:
    table = HeaderMap.compile(annotated({"type": kind, "x-mcp-header": "Method"}))
    assert dict(table.paths) == {b"mcp-param-method": ("a",)}


def test_a_nested_property_may_be_mirrored() -> None:
    inner = {"type": "object", "properties": {"properties": string("!#$%&'*+-.^_`|~09azAZ")}}
    table = HeaderMap.compile(annotated(inner))
    assert list(table.paths.values()) == [("a", "properties")]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"properties": {"x-mcp-header": {"type": "string"}}},
        {"properties": {"a": {"default": {"x-mcp-header": ""}, "enum": [{"x-mcp-header": 1}]}}},
        {"properties": {"a": {"const": {"x-mcp-header": ""}, "examples": [{"x-mcp-header": ""}]}}},
        {"properties": None, "items": 5, "allOf": {}, "$defs": []},
        {"properties": {"a": True, "b": False}},
    ],
)
def test_a_schema_without_annotations_mirrors_nothing(schema: dict[str, Any]) -> None:
    assert HeaderMap.compile(schema) == NO_HEADERS


NOT_A_STRING = "must be a non-empty string"
NO_FIELD_NAME = "is not an HTTP token"
WRONG_TYPE = "needs type string, integer or boolean"
UNREACHED = "is not reachable by `properties` alone"
RULES: list[tuple[dict[str, Any], str]] = [
    (annotated(string("")), NOT_A_STRING),
    (annotated(string(None)), NOT_A_STRING),
    (annotated(string(5)), NOT_A_STRING),
    (annotated(string(["A"])), NOT_A_STRING),
    *(
        (annotated(string(name)), NO_FIELD_NAME)
        for name in ("a b", "a:b", "a\r\nb", "a\n", "ä", "a/b", "(a)", "\0", " a")
    ),
    *(
        (annotated({"type": kind, "x-mcp-header": "A"}), WRONG_TYPE)
        for kind in ("number", "object", "array", "null", ["string", "null"], None, 5)
    ),
    (annotated({"x-mcp-header": "A"}), WRONG_TYPE),
    (annotated({"$ref": "#/$defs/s", "x-mcp-header": "A"}), WRONG_TYPE),
    (annotated({}, **{"x-mcp-header": "A"}), "is on the whole schema"),
    ({"properties": {"a": string("Same"), "b": string("sAME")}}, "is a duplicate"),
    ({"properties": {"a": string(), "b": {"type": "object", "properties": {"c": string("a")}}}}, "is a duplicate"),
    *(
        (annotated({key: string()}), UNREACHED)
        for key in ("items", "contains", "additionalProperties", "not", "if", "then", "else", "propertyNames")
    ),
    *((annotated({key: [string()]}), UNREACHED) for key in ("oneOf", "anyOf", "allOf", "prefixItems", "items")),
    *((annotated({}, **{key: {"d": string()}}), UNREACHED) for key in ("$defs", "definitions", "patternProperties")),
    (annotated({"items": {"properties": {"b": string()}}}), UNREACHED),
    ({"allOf": [{"properties": {"a": string()}}]}, UNREACHED),
    ({"dependentSchemas": {"a": {"properties": {"b": string()}}}}, UNREACHED),
    ({"properties": {f"p{n}": string(f"H{n}") for n in range(MAX_MIRRORED + 1)}}, "more than 64"),
    ({"anyOf": [{} for _ in range(10_001)]}, "too deep or too large"),
]


@pytest.mark.requirement("M124", "M125", "M126", "M127", "M128", "M129", "M131")
@pytest.mark.parametrize(("schema", "reason"), RULES)
def test_a_broken_annotation_says_which_rule_it_breaks(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        HeaderMap.compile(schema)
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = string()
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_the_depth_of_a_schema_is_bounded() -> None:
    [path] = HeaderMap.compile(nested(MAX_SCHEMA_DEPTH)).paths.values()
    assert len(path) == MAX_SCHEMA_DEPTH
    with pytest.raises(InvalidDefinition, match="too deep"):
        HeaderMap.compile(nested(MAX_SCHEMA_DEPTH + 1))
    with pytest.raises(InvalidDefinition, match="too deep"):
        HeaderMap.compile(nested(100_000))


# A client writes


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "t"}, b"t"),
        ("prompts/get", {"name": "ü"}, b"=?base64?w7w=?="),
        ("resources/read", {"uri": "file:///a b"}, b"file:///a b"),
        ("tasks/get", {"taskId": "7"}, b"7"),
        ("tasks/update", {"taskId": "7"}, b"7"),
        ("tasks/cancel", {"taskId": "7"}, b"7"),
        ("tools/list", {"name": "t"}, None),
        ("resources/read", {"name": "t"}, None),
        ("tools/call", {"name": None}, None),
        ("tools/call", {"name": ""}, b""),
    ],
)
def test_each_method_mirrors_its_own_name(method: str, params: dict[str, Any], name: bytes | None) -> None:
    headers = dict(mirror(VERSION, method, members(params)))
    assert headers[b"MCP-Protocol-Version"] == VERSION.encode()
    assert headers[b"Mcp-Method"] == method.encode()
    assert headers.get(b"Mcp-Name") == name


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_request_about_a_task_may_lack_its_name_but_not_have_another(method: str) -> None:
    params = members({"taskId": "7"})
    headers = mirror(VERSION, method, params)
    check_mirror(headers, version=VERSION, method=method, params=params)
    check_mirror(headers[:2], version=VERSION, method=method, params=params)
    with pytest.raises(HeaderMismatch, match="Mcp-Name"):
        check_mirror([*headers[:2], (b"Mcp-Name", b"8")], version=VERSION, method=method, params=params)


def test_a_request_without_params_mirrors_its_method() -> None:
    assert [name for name, _ in mirror(VERSION, "tools/call", UNSET)] == [b"MCP-Protocol-Version", b"Mcp-Method"]


def test_arguments_are_mirrored_under_the_names_of_their_tool() -> None:
    headers = mirror(VERSION, "tools/call", call(region="eu", limit=42.0, dry=False, where={"zone": " z"}), REGION)
    assert set(headers[3:]) == {
        (b"Mcp-Param-Region", b"eu"),
        (b"Mcp-Param-Limit", b"42"),
        (b"Mcp-Param-Dry_Run", b"false"),
        (b"Mcp-Param-Zone", b"=?base64?IHo=?="),
    }


@pytest.mark.requirement("M143")
@pytest.mark.parametrize("arguments", [{}, {"region": None}, {"where": None}, {"where": {}}, {"where": "zone"}])
def test_an_argument_that_is_null_or_absent_has_no_header(arguments: dict[str, Any]) -> None:
    headers = mirror(VERSION, "tools/call", call(**arguments), REGION)
    assert len(headers) == 3
    check(headers, call(**arguments))


@pytest.mark.requirement("M130")
@pytest.mark.parametrize("value", [1.5, MAX_SAFE_INTEGER + 1, -MAX_SAFE_INTEGER - 1, 10**30, 1e300, [], {}, ["x"]])
def test_an_argument_that_cannot_be_mirrored_is_refused_on_both_sides(value: Any) -> None:
    with pytest.raises(InvalidParams):
        mirror(VERSION, "tools/call", call(limit=value), REGION)
    headers = [*mirror(VERSION, "tools/call", call()), (b"mcp-param-limit", str(value).encode())]
    with pytest.raises(HeaderMismatch):
        check(headers, call(limit=value))


@pytest.mark.parametrize("method", ["a\r\nX: y", "", "ü", " a", "a\0", "\x7f"])
def test_a_method_that_would_split_a_header_is_never_written(method: str) -> None:
    with pytest.raises(InvalidRequest):
        mirror(VERSION, method)
    with pytest.raises(InvalidRequest):
        mirror(method, "ping")


ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "region": st.text(st.characters(codec="utf-8")) | st.none(),
        "limit": st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER),
        "dry": st.booleans(),
        "where": st.fixed_dictionaries({"zone": st.text(st.characters(codec="utf-8"))}),
    },
)


@pytest.mark.requirement("M139", "M146")
@given(ARGUMENTS, st.text(st.characters(codec="utf-8")), st.data())
def test_a_server_agrees_with_every_honest_client_and_no_other(
    arguments: dict[str, Any], name: str, data: st.DataObject
) -> None:
    params = members({"name": name, "arguments": arguments})
    headers = mirror(VERSION, "tools/call", params, REGION)
    assert all(0x20 <= byte <= 0x7E for pair in headers for text in pair for byte in text)
    check(headers, params)
    at = data.draw(st.integers(0, len(headers) - 1))
    key, value = headers[at]
    others = headers[:at] + headers[at + 1 :]
    for wrong in ([], [(key, value), (key, value)], [(key, value + b"x")], [(key.replace(b"-", b"_"), value)]):
        with pytest.raises(HeaderMismatch):
            check(others + wrong, params)


# A server compares

HONEST = [
    (b"mcp-protocol-version", VERSION.encode()),
    (b"mcp-method", b"tools/call"),
    (b"mcp-name", b"t"),
]


@pytest.mark.requirement("M153")
@pytest.mark.parametrize("spelling", [b"MCP-PROTOCOL-VERSION", b"Mcp-Protocol-Version"])
def test_header_names_have_no_case(spelling: bytes) -> None:
    check([(spelling, VERSION.encode()), *HONEST[1:]], call())


@pytest.mark.requirement("M148")
@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (b"42", 42), (b"42.0", 42), (b"42", 42.0), (b"42.000", 42), (b"-7", -7), (b"0", 0), (b"-0", 0), (b"0", -0.0),
        (b"=?base64?NDI=?=", 42), (b"9007199254740991", MAX_SAFE_INTEGER),
    ],
)  # fmt: skip
def test_integers_are_compared_as_numbers(text: bytes, limit: float) -> None:
    check([*HONEST, (b"mcp-param-limit", text)], call(limit=limit))


@pytest.mark.parametrize(
    "text", [b"43", b"42.5", b"042", b"+42", b"4.2e1", b"42.", b"0x2a", b"", b"4 2", b"\xd9\xa4\xd9\xa2", b"9" * 5000]
)
def test_another_number_or_no_number_is_a_mismatch(text: bytes) -> None:
    with pytest.raises(HeaderMismatch):
        check([*HONEST, (b"mcp-param-limit", text)], call(limit=42))


@pytest.mark.parametrize("text", [b"True", b"1", b"yes", b"false", b""])
def test_a_boolean_has_one_spelling(text: bytes) -> None:
    check([*HONEST, (b"mcp-param-dry_run", b"true")], call(dry=True))
    with pytest.raises(HeaderMismatch):
        check([*HONEST, (b"mcp-param-dry_run", text)], call(dry=True))


@pytest.mark.parametrize(
    "headers",
    [
        HONEST[1:],
        [HONEST[0], HONEST[2]],
        HONEST[:2],
        [*HONEST, HONEST[0]],
        [*HONEST, HONEST[1]],
        [*HONEST, HONEST[2]],
        [*HONEST, (b"Mcp-Name", b"t")],
        [(b"mcp-protocol-version", b"2025-11-25"), *HONEST[1:]],
        [HONEST[0], (b"mcp-method", b"tools/list"), HONEST[2]],
        [HONEST[0], (b"mcp-method", b"Tools/Call"), HONEST[2]],
        [HONEST[0], (b"mcp-method", b"=?base64?dG9vbHMvY2FsbA==?="), HONEST[2]],
        [*HONEST[:2], (b"mcp-name", b"T")],
        [*HONEST[:2], (b"mcp-name", b"other")],
        [*HONEST[:2], (b"mcp-name", b"=?base64?dB==?=")],
        [*HONEST, (b"mcp_name", b"t")],
        [*HONEST, (b"mcp_method", b"tools/call")],
        [*HONEST, (b"mcp-protocol_version", VERSION.encode())],
        [*HONEST, (b"mcp_param_region", b"eu")],
        [*HONEST, (b"mcp-param_region", b"eu")],
        [*HONEST, (b"Mcp_Param-Unknown", b"eu")],
        [*HONEST, (b"mcp-param-dry-run", b"true")],
        [*HONEST, (b"mcp-param-region", b"eu"), (b"Mcp-Param-Region", b"eu")],
        [*HONEST, (b"mcp-param-unknown", b"1"), (b"mcp-param-unknown", b"1")],
    ],
)
def test_a_header_missing_doubled_disguised_or_different_is_a_mismatch(headers: list[tuple[bytes, bytes]]) -> None:
    check(HONEST, call())
    with pytest.raises(HeaderMismatch):
        check(headers, call())


def test_headers_that_mirror_nothing_are_none_of_our_business() -> None:
    others = [(b"mcp-param-unknown", b"\xff"), (b"mcp-param-some_thing", b"1"), (b"mcp-session-id", b"1")]
    more = [(b"mcp-session-id", b"2"), (b"x_mcp_name", b"3"), (b"accept", b"a"), (b"accept", b"b")]
    check([*HONEST, *others, *more, (b"mcp-param-region", b"sent in vain")], call())


def test_two_annotations_that_differ_in_an_underscore_are_two_headers() -> None:
    both = HeaderMap.compile({"properties": {"a": string("x-y"), "b": string("x_y")}})
    params = call(a="1", b="2")
    check(mirror(VERSION, "tools/call", params, both), params, both)


@pytest.mark.requirement("M144")
def test_a_missing_argument_header_is_a_mismatch() -> None:
    with pytest.raises(HeaderMismatch, match="Mcp-Param-Region is missing"):
        check(HONEST, call(region=""))


def test_a_mismatch_never_tells_the_value() -> None:
    with pytest.raises(HeaderMismatch) as caught:
        check([*HONEST, (b"mcp-param-region", b"header-secret")], call(region="body-secret"))
    assert "secret" not in str(caught.value)


def test_the_checks_can_be_made_one_by_one() -> None:
    received = read_mirror([*HONEST, (b"mcp-param-region", b"eu")])
    check_version(received, None)
    check_version(received, VERSION)
    check_method(received, "tools/call", "t")
    check_params(received, {"region": "eu"}, REGION)
    with pytest.raises(HeaderMismatch):
        check_version({}, None)
    with pytest.raises(HeaderMismatch):
        check_params(received, {"region": "us"}, REGION)


def test_a_name_that_is_no_string_is_the_params_fault() -> None:
    with pytest.raises(InvalidParams):
        check(HONEST, members({"name": 5}))


@pytest.mark.parametrize("value", [b"1e400", b"1" * 5000, b'"\xff"', b"[" * 3000 + b"]" * 3000])
def test_arguments_that_cannot_be_read_are_a_parse_error(value: bytes) -> None:
    with pytest.raises(ParseError, match="arguments"):
        check(HONEST, {"name": Raw(b'"t"'), "arguments": Raw(b'{"limit":%b}' % value)})
    with pytest.raises(ParseError, match="name"):
        check(HONEST, {"name": Raw(b'"\xff"')})


@pytest.mark.parametrize("arguments", [b'{"region":"us","region":"eu"}', b'{"where":{"zone":"a","zone":"b"}}'])
def test_an_argument_that_stands_twice_cannot_be_mirrored(arguments: bytes) -> None:
    """A header can agree with one of them only, and a backend may read the other."""
    headers = [*HONEST, (b"mcp-param-region", b"eu"), (b"mcp-param-zone", b"b")]
    with pytest.raises(InvalidRequest, match="duplicate key"):
        check(headers, {"name": Raw(b'"t"'), "arguments": Raw(arguments)})


def test_arguments_that_no_header_mirrors_are_not_even_read() -> None:
    check(HONEST, {"name": Raw(b'"t"'), "arguments": Raw(b'{"limit":null,"rest":1e400}')})


def test_a_method_without_a_mirrored_name_has_none() -> None:
    headers = [(b"mcp-protocol-version", VERSION.encode()), (b"mcp-method", b"x/y")]
    check_mirror(headers, version=VERSION, method="x/y", params={"": Raw(b'"t"')}, header_map=REGION)


PAIRS = st.tuples(st.sampled_from([name for name, _ in HONEST] + [b"mcp-param-limit", b"mcp_name"]), st.binary())


@given(st.lists(PAIRS), st.sampled_from([*MIRRORED_NAME, "x"]), st.binary())
def test_only_peer_errors_come_out_of_hostile_headers(
    headers: list[tuple[bytes, bytes]], method: str, value: bytes
) -> None:
    try:
        params = read_members(b'{"name":"t","arguments":{"limit":%b}}' % value)
        check_mirror(headers, version=VERSION, method=method, params=params, header_map=REGION)
    except PeerError:
        return
    assert set(HONEST[:1]) <= set(headers)
