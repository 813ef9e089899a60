"""Recorded sessions as linked data: a query finds what each server offers, and the recording comes back."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdflib import Graph
from rdflib.compare import isomorphic

from callboard.codecs.linked_data import CONTEXT, read_turtle
from callboard.codecs.linked_session import (
    session_from_graph,
    session_from_jsonld,
    session_to_graph,
    session_to_jsonld,
    session_to_turtle,
)
from callboard.codecs.recording import RecordedMessage
from callboard.errors import InvalidRequest
from tests.codecs.strategies import messages

pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning")

TIME = "2026-07-28T12:00:00.125Z"
recorded = st.builds(
    RecordedMessage,
    messages,
    st.sampled_from(["", TIME]),
    st.sampled_from(["", "weather", "files"]),
    st.sampled_from(["", "weather-1"]),
    st.sampled_from(["", "to_server", "from_server"]),
)
sessions = st.lists(recorded, max_size=4).map(lambda found: list(enumerate(found, 1)))


@settings(max_examples=60)
@given(sessions)
def test_a_recording_comes_back_from_turtle_and_json_ld(session: list[tuple[int, RecordedMessage]]) -> None:
    expected = [one for _, one in session]
    assert session_from_graph(read_turtle("".join(session_to_turtle(session)))) == expected
    assert session_from_jsonld(json.loads(json.dumps(session_to_jsonld(session)))) == expected


@settings(max_examples=30)
@given(sessions)
def test_another_processor_reads_the_same_graph(session: list[tuple[int, RecordedMessage]]) -> None:
    document = session_to_jsonld(session)
    document["@context"][0] = CONTEXT
    theirs = Graph().parse(data=json.dumps(document), format="json-ld")
    assert isomorphic(theirs, read_turtle("".join(session_to_turtle(session))))  # rdflib's own forms of times


def test_turtle_that_is_written_piece_by_piece_is_the_same_graph() -> None:
    odd = RecordedMessage({"jsonrpc": "2.0", "a b": None, "x/y/z": 1}, server="s")
    session = [(1, RecordedMessage({"jsonrpc": "2.0", "id": 1, "result": {"a/b/c": 1}})), (2, odd)]
    assert isomorphic(read_turtle("".join(session_to_turtle(session))), session_to_graph(session))


def test_a_message_that_no_predicates_can_say_is_kept_whole() -> None:
    session = [(1, RecordedMessage({"jsonrpc": "2.0", "a b": [None, {"@id": 1}]}, server="s"))]
    assert session_from_graph(session_to_graph(session)) == [session[0][1]]
    assert session_from_jsonld(session_to_jsonld(session)) == [session[0][1]]


@pytest.mark.parametrize(
    "document",
    [
        {"@context": "https://example.com/", "@graph": []},
        {"@graph": {}},
        {**session_to_jsonld([]), "@graph": [1]},
        {**session_to_jsonld([]), "@graph": [{"rec:message": {}}]},
    ],
)
def test_another_document_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        session_from_jsonld(document)


@pytest.mark.parametrize(
    "turtle",
    [
        "[] a rec:Message ; schema:position 1 .",
        "[] a rec:Message ; rec:message [ mcp:a 1 ] .",
        '[] a rec:Message ; schema:position 1 ; rec:message "x" .',
        '[] a rec:Message ; schema:position 1 ; rec:message "[]"^^rdf:JSON .',
    ],
)
def test_a_graph_that_is_no_recording_is_refused(turtle: str) -> None:
    prefixes = (
        "@prefix rec: <urn:callboard:recording:> . @prefix schema: <https://schema.org/> . "
        "@prefix mcp: <http://modelcontextprotocol.io/ontology#> . "
        "@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> . "
    )
    with pytest.raises(InvalidRequest):
        session_from_graph(read_turtle(prefixes + turtle))
