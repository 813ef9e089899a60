"""Linked data: the seed's twenty messages exactly, and any other message back as it was."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from rdflib import Graph
from rdflib.compare import isomorphic

from callboard.codecs.linked_data import (
    ALWAYS_ARRAYS,
    CONTEXT,
    CONTEXT_URL,
    from_graph,
    from_jsonld,
    from_turtle,
    to_graph,
    to_jsonld,
    to_turtle,
)
from callboard.errors import InvalidRequest, ParseError, PeerError
from tests.codecs.strategies import messages
from tests.shared import PROTOCOL, load, needs_protocol, paths

# rdflib's own JSON-LD reader, which is only a witness here, still uses a class that rdflib has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning")

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
OGC = PROTOCOL / "seed-examples" / "ogc"
SEEDS = sorted(OGC.glob("*.json"))
each_seed = pytest.mark.parametrize("seed", SEEDS, ids=lambda path: path.stem)


def expand(document: dict[str, Any]) -> Graph:
    """The graph that a JSON-LD processor, not ours, reads from *document*."""
    assert document["@context"] == CONTEXT_URL
    return Graph().parse(data=json.dumps({**document, "@context": CONTEXT}), format="json-ld")


@needs_protocol
def test_the_seed_has_twenty_messages() -> None:
    assert len(SEEDS) == 20
    assert load("seed-examples", "ogc", "context.jsonld") == {"@context": CONTEXT}


@needs_protocol
@each_seed
def test_a_seed_message_becomes_the_given_turtle(seed: Path) -> None:
    message = json.loads(seed.read_text())
    given_graph = Graph().parse(seed.with_suffix(".ttl"), format="turtle")
    assert isomorphic(to_graph(message), given_graph)
    assert isomorphic(Graph().parse(data=to_turtle(message), format="turtle"), given_graph)


@needs_protocol
@each_seed
def test_a_seed_message_becomes_the_given_json_ld(seed: Path) -> None:
    message = json.loads(seed.read_text())
    document = json.loads(seed.with_suffix(".jsonld").read_text())
    assert json.dumps(to_jsonld(message)) == json.dumps(document)  # the order of members included
    assert from_jsonld(document) == message
    assert isomorphic(expand(document), Graph().parse(seed.with_suffix(".ttl"), format="turtle"))


@needs_protocol
@each_seed
def test_a_seed_message_comes_back_from_the_given_turtle(seed: Path) -> None:
    assert from_turtle(seed.with_suffix(".ttl").read_text()) == json.loads(seed.read_text())


@needs_protocol
def test_the_table_of_arrays_is_what_the_schemas_say() -> None:
    kinds: dict[str, set[object]] = {}

    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            for name, member in schema.get("properties", {}).items():
                if isinstance(member, dict):
                    kinds.setdefault(name, set()).add(str(member.get("type", "other")))
            schema = list(schema.values())
        if isinstance(schema, list):
            for inner in schema:
                walk(inner)

    for revision in REVISIONS:
        walk(load("schemas", revision, "schema.json"))
    assert {name for name, found in kinds.items() if found == {"array"}} == ALWAYS_ARRAYS


def alike(one: Any, other: Any) -> bool:
    """Equal as JSON, where `1`, `1.0` and `true` are three values and `-0.0` is its own."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return type(one) is type(other) and bool(one == other)


@settings(max_examples=300)
@given(messages)
def test_any_message_comes_back_as_it_was(message: dict[str, Any]) -> None:
    assert alike(from_jsonld(to_jsonld(message)), message)
    assert alike(from_turtle(to_turtle(message)), message)


@settings(max_examples=100)
@given(messages)
def test_another_processor_reads_the_same_graph(message: dict[str, Any]) -> None:
    assert isomorphic(expand(to_jsonld(message)), to_graph(message))


@pytest.mark.parametrize(
    ("value", "is_kept_whole"),
    [
        (None, True),
        ([], True),
        ([1, 1, 2], True),
        ([[1]], True),
        (["one"], True),
        ([{"a": 1}, {"a": 1}], False),
        ([{"a": 1}, 1], True),
        ([{"a b": 1}], False),
        ({"foo:bar": 1}, False),
        ({"@id": "x"}, False),
        ({"@type": "Tool", "https://schema.org/position": 1}, False),
        ({"with space": 1, "with%20space": 2, "%": 3, "größe": 4, "-a": 5, "a~": 6, "\x00": 7}, False),
        ({"": 1}, True),
        ({"a": {"": 1}, "b": 1}, True),
        ("\x00", True),
        ({}, False),
        ({"io.modelcontextprotocol/x": 1}, False),
        ({"$schema": "s", "_meta": {}}, False),
        (1.0, False),
        (True, False),
        ({"xsd": 1}, False),
        ({"a": {"mcp": 1}}, False),
        (10**21, True),
        (10**21 - 1, False),
        (0.1234567890123, False),
        (1.7976931348623157e308, False),
        (5e-324, False),
        (-1e22, False),
    ],
)
def test_what_rdf_cannot_carry_is_kept_as_json(value: object, is_kept_whole: bool) -> None:
    message = {"jsonrpc": "2.0", "method": "m", "params": {"x": value}}
    assert ("rdf-syntax-ns#JSON" in to_graph(message).serialize(format="nt")) == is_kept_whole
    assert alike(from_turtle(to_turtle(message)), message)
    assert isomorphic(expand(to_jsonld(message)), to_graph(message))


@pytest.mark.parametrize("name", ["@context", "a:b", "", "x y", "mcp", "xsd", "rdfs"])
def test_a_message_with_a_name_no_predicate_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        to_jsonld({"jsonrpc": "2.0", name: 1})


PREFIXES = """@prefix schema: <https://schema.org/> .
@prefix mcp: <http://modelcontextprotocol.io/ontology#> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""


@pytest.mark.parametrize(
    ("turtle", "error"),
    [
        ("", InvalidRequest),
        ("[] mcp:a 1 . [] mcp:a 2 .", InvalidRequest),
        ("_:a mcp:a _:a .", InvalidRequest),
        ("_:r mcp:x _:s ; mcp:y _:s . _:s mcp:z 1 .", InvalidRequest),
        ("[] mcp:a [ schema:position 1 ], [ schema:position 1 ] .", InvalidRequest),
        ("[] mcp:a [ schema:position 1 ], [ ] .", InvalidRequest),
        ("[] mcp:a [ schema:position 1, 2 ] .", InvalidRequest),
        ('[] mcp:a [ schema:position "x" ] .', InvalidRequest),
        ("[] mcp:a [ a schema:Thing ] .", InvalidRequest),
        ("[] mcp:a <http://example.com/> .", InvalidRequest),
        ("[] <http://example.com/p> 1 .", InvalidRequest),
        ('[] mcp:a "x"@en .', InvalidRequest),
        ('[] mcp:a "x"^^xsd:integer .', InvalidRequest),
        ('[] mcp:a "2020-01-01"^^xsd:date .', InvalidRequest),
        ('[] mcp:a "INF"^^xsd:double .', InvalidRequest),
        ('[] mcp:a "{"^^rdf:JSON .', ParseError),
        ('[] mcp:a "1e400"^^rdf:JSON .', ParseError),
        ('[] mcp:a "{\\"a\\":1,\\"a\\":2}"^^rdf:JSON .', ParseError),
        ('[] mcp:a "\\uD800" .', ParseError),
        ('[] mcp:a "\\"\\uD800\\""^^rdf:JSON .', ParseError),
        ("[] mcp: 1 .", InvalidRequest),
        ("".join(f"_:b{n} mcp:a _:b{n + 1} .\n" for n in range(65)), InvalidRequest),
        ("".join(f"_:b{n} mcp:a _:b{n + 1} .\n" for n in range(1500)), InvalidRequest),
        ("[] mcp:a ", ParseError),
        ("nonsense", ParseError),
    ],
)
def test_a_graph_that_is_no_message_is_refused(turtle: str, error: type[PeerError]) -> None:
    with pytest.raises(error):
        from_turtle(PREFIXES + turtle)


def test_a_document_of_another_context_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        from_jsonld({"@context": "https://example.com/", "jsonrpc": "2.0"})
    with pytest.raises(InvalidRequest):
        from_jsonld({"@context": CONTEXT_URL, "params": {"@id": "x"}})


def test_a_document_may_be_as_deep_as_a_message_and_no_deeper() -> None:
    def nested(levels: int) -> dict[str, Any]:
        return {"a": nested(levels - 1)} if levels else {}

    assert from_jsonld({"@context": CONTEXT_URL, **nested(63)}) == nested(63)
    assert from_turtle(to_turtle(nested(63))) == nested(63)
    for levels in (64, 900):
        with pytest.raises(InvalidRequest, match="deeper"):
            from_jsonld({"@context": CONTEXT_URL, **nested(levels)})


def test_a_graph_reads_back_without_a_detour_through_text() -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"hints": [{"name": "n"}]}}
    assert from_graph(to_graph(message)) == message


def result(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": members}


TWELVE = [{"name": f"tool{n}", "inputSchema": {"type": "object", "required": ["b", "a"]}} for n in range(12, 0, -1)]


def test_a_query_finds_the_tools_of_a_list_by_name_and_by_type() -> None:
    graph = to_graph(result(tools=TWELVE))
    names = {f"tool{n}" for n in range(1, 13)}
    mcp = "PREFIX mcp: <http://modelcontextprotocol.io/ontology#> "
    for query in ("SELECT ?n {?s mcp:tools/mcp:name ?n}", "SELECT ?n {?t a mcp:Tool; mcp:name ?n}"):
        rows: list[Any] = list(graph.query(mcp + query))
        assert sorted(str(row[0]) for row in rows) == sorted(names)


def test_a_query_finds_the_other_parameters_of_a_tool_that_has_an_odd_one() -> None:
    properties = {"path": {"type": "string"}, "file name": {"type": "string"}, "@type": {}, "größe": {}}
    graph = to_graph(result(tools=[{"name": "t", "inputSchema": {"type": "object", "properties": properties}}]))
    query = """PREFIX mcp: <http://modelcontextprotocol.io/ontology#>
        SELECT ?p {?t a mcp:Tool; mcp:inputSchema/mcp:properties ?all. ?all ?i ?any.
                   BIND(STRAFTER(STR(?i), "#") AS ?p)}"""
    rows: list[Any] = list(graph.query(query))
    assert {str(row[0]) for row in rows} == {"path", "file%20name", "%40type", "gr%C3%B6%C3%9Fe"}


def test_members_of_odd_names_stay_in_their_order_in_json_ld() -> None:
    message = {"jsonrpc": "2.0", "params": {"b": 1, "a b": {"@id": 2, "c": 3}, "a": 4}}
    assert json.dumps(from_jsonld(to_jsonld(message))) == json.dumps(message)


@pytest.mark.parametrize("term", ["%61", "a%2fb", "a%", "%", "a%zz", "%FF"])
def test_an_encoded_name_that_we_would_write_otherwise_is_refused_in_a_graph(term: str) -> None:
    with pytest.raises(PeerError):
        from_turtle(f"[] <http://modelcontextprotocol.io/ontology#{term}> 1 .")


def test_a_document_that_has_a_member_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        from_jsonld({"@context": CONTEXT_URL, "params": {"a b": 1, "a%20b": 2}})


@needs_protocol
def test_every_official_example_comes_back_as_it_was() -> None:
    examples = [json.loads(path.read_text()) for path in paths("examples")]
    assert len(examples) == 129
    for example in examples:
        message = example if "jsonrpc" in example else result(example=example)
        assert alike(from_jsonld(to_jsonld(message)), message)
        assert alike(from_turtle(to_turtle(message)), message)


@pytest.mark.parametrize(
    "message",
    [
        result(tools=TWELVE),
        result(tools=[{"name": "one"}]),
        result(tools={"name": "an object where an array belongs"}),
        result(tools=[]),
        result(capabilities={"tools": {}, "prompts": {"listChanged": True}, "roots": {}}),
        result(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "a"}], structuredContent={"x": [{}]}),
        result(content={"type": "text", "text": "a"}, role="assistant", model="m"),
        result(content=[{"type": "text", "text": "a"}], role="assistant", model="m"),
        result(content={"answer": 1}, action="accept"),
        result(content={"type": "text"}),
        result(prompts=[{"name": "p", "arguments": [{"name": "a", "required": True}, {"name": "b"}]}]),
        result(messages=[{"role": "user", "content": {"type": "text", "text": "x"}}]),
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {"tools": [{"name": "n"}, {}]}}},
    ],
)
def test_lists_come_back_in_their_order_and_objects_as_objects(message: dict[str, Any]) -> None:
    assert alike(from_turtle(to_turtle(message)), message)
    assert alike(from_jsonld(json.loads(json.dumps(to_jsonld(message)))), message)
    assert isomorphic(expand(to_jsonld(message)), to_graph(message))


def test_what_a_tool_is_called_with_is_no_tool() -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {"tools": [{"name": "n"}]}}}
    assert "ontology#Tool" not in to_graph(call).serialize(format="nt")


@pytest.mark.parametrize(
    ("turtle", "expected"),
    [
        ('[] mcp:result [ mcp:tools [ mcp:name "b" ], [ mcp:name "a" ] ] .', {"tools": [{"name": "a"}, {"name": "b"}]}),
        ('[] mcp:result [ mcp:tools [ mcp:name "b" ] ] .', {"tools": [{"name": "b"}]}),
        ("[] mcp:result [ mcp:capabilities [ mcp:tools [ ] ] ] .", {"capabilities": {"tools": {}}}),
        ("[] mcp:result [ mcp:a 10, 9 ] .", {"a": [10, 9]}),
        (
            '[] mcp:result [ mcp:tools [ schema:position 2; mcp:name "a" ], [ schema:position 1; mcp:name "b" ] ] .',
            {"tools": [{"name": "b"}, {"name": "a"}]},
        ),
    ],
)
def test_what_other_tool_chains_write_is_read(turtle: str, expected: dict[str, Any]) -> None:
    assert from_turtle(PREFIXES + turtle) == {"result": expected}


def test_a_single_value_of_a_compacted_document_is_an_array() -> None:
    document = {"@context": CONTEXT, "result": {"tools": {"@type": "mcp:Tool", "name": "one"}}}
    assert from_jsonld(document) == {"result": {"tools": [{"name": "one"}]}}
