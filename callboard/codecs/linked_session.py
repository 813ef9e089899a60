"""A recorded session as linked data: each message with its time, server, session and direction as a node of its own.

The message is written as `linked_data` has it, as the object of `rec:message`. One that cannot be written so, since a
member's name is no predicate, is kept whole as an `rdf:JSON` literal.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from callboard.codecs.linked_data import (
    CONTEXT,
    CONTEXT_URL,
    POSITION,
    GraphReader,
    describe,
    from_jsonld,
    read_json_literal,
    to_jsonld,
    write_turtle,
)
from callboard.codecs.recording import RecordedMessage
from callboard.errors import InvalidRequest

if TYPE_CHECKING:
    from rdflib import Graph

RECORDING: Final = "urn:callboard:recording:"
"""The vocabulary of what a recording says of a message."""

_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_CONTEXT: Final = {"rec": RECORDING, "rec:time": {"@type": f"{_XSD}dateTime"}}
_TEXTS: Final = ("server", "session", "direction")


def session_to_graph(recorded: Iterable[tuple[int, RecordedMessage]]) -> "Graph":
    """The graph of recorded messages, each with its number: its position in the session."""
    from rdflib import RDF, XSD, BNode, Graph, Literal, URIRef

    graph = Graph()
    graph.bind("rec", RECORDING)
    graph.bind("schema", "https://schema.org/")
    for number, one in recorded:
        node, message = BNode(), BNode()
        graph.add((node, RDF.type, URIRef(RECORDING + "Message")))
        graph.add((node, URIRef(POSITION), Literal(number)))
        if one.time:
            kind = XSD.dateTime if _is_time(one.time) else None
            graph.add((node, URIRef(RECORDING + "time"), Literal(one.time, datatype=kind, normalize=False)))
        for name in _TEXTS:
            if text := getattr(one, name):
                graph.add((node, URIRef(RECORDING + name), Literal(text)))
        try:
            describe(graph, message, one.message)
        except InvalidRequest:
            whole = Literal(_json_text(one.message), datatype=RDF.JSON, normalize=False)
            graph.add((node, URIRef(RECORDING + "message"), whole))
        else:
            graph.add((node, URIRef(RECORDING + "message"), message))
    return graph


def session_to_turtle(recorded: Iterable[tuple[int, RecordedMessage]]) -> Iterator[str]:
    """Recorded messages in Turtle, piece by piece: a session may be larger than a graph of all of it should be."""
    bound: dict[str, str] = {}
    for one in recorded:
        lines = write_turtle(session_to_graph([one])).splitlines(keepends=True)
        for line in lines:
            if line.startswith("@prefix "):
                name = line.split()[1]
                if bound.get(name) == line:
                    continue
                bound[name] = line
            yield line


def session_from_graph(graph: "Graph") -> list[RecordedMessage]:
    """The recorded messages of a graph, in their order. Raises `InvalidRequest`, `ParseError`."""
    from rdflib import RDF, Literal, URIRef

    reader, found = GraphReader(graph), []
    for node in set(graph.subjects(RDF.type, URIRef(RECORDING + "Message"))):
        said = {str(predicate): value for predicate, value in graph.predicate_objects(node)}
        message, number = said.get(RECORDING + "message"), said.get(POSITION)
        if message is None or not isinstance(number, Literal) or not isinstance(number.value, int):
            raise InvalidRequest("a recorded message needs a message and a position")
        about: dict[str, Any] = {name: str(said.get(RECORDING + name, "")) for name in _TEXTS}
        about["time"] = _time_text(said.get(RECORDING + "time"))
        body = read_json_literal(message) if isinstance(message, Literal) else reader.node(message)
        if not isinstance(body, dict):
            raise InvalidRequest("a message is an object")
        found.append((number.value, RecordedMessage(body, **about)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def session_to_jsonld(recorded: Iterable[tuple[int, RecordedMessage]]) -> dict[str, Any]:
    """Recorded messages as one JSON-LD document."""
    return {"@context": [CONTEXT_URL, _CONTEXT], "@graph": [_to_node(number, one) for number, one in recorded]}


def _to_node(number: int, one: RecordedMessage) -> dict[str, Any]:
    node: dict[str, Any] = {"@type": "rec:Message", POSITION: number}
    for name in ("time", *_TEXTS):
        if text := getattr(one, name):
            node[f"rec:{name}"] = text
    try:
        message = to_jsonld(one.message)
        del message["@context"]
    except InvalidRequest:
        message = {"@type": "@json", "@value": one.message}
    return {**node, "rec:message": message}


def session_from_jsonld(document: dict[str, Any]) -> list[RecordedMessage]:
    """The recorded messages of a document that `session_to_jsonld` made, in their order. Raises `InvalidRequest`."""
    nodes = document.get("@graph")
    if document.get("@context") not in ([CONTEXT_URL, _CONTEXT], [CONTEXT, _CONTEXT]) or not isinstance(nodes, list):
        raise InvalidRequest("unknown context")
    found = []
    for node in nodes:
        number = node.get(POSITION) if isinstance(node, dict) else None
        message = node.get("rec:message") if isinstance(node, dict) else None
        if not isinstance(number, int) or not isinstance(message, dict):
            raise InvalidRequest("a recorded message needs a message and a position")
        is_whole = message.keys() == {"@type", "@value"}
        body = message["@value"] if is_whole else from_jsonld({"@context": CONTEXT_URL, **message})
        if not isinstance(body, dict):
            raise InvalidRequest("a message is an object")
        about: dict[str, Any] = {name: str(node.get(f"rec:{name}", "")) for name in ("time", *_TEXTS)}
        found.append((number, RecordedMessage(body, **about)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _is_time(text: str) -> bool:
    try:
        return "T" in text and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _time_text(literal: Any) -> str:
    """The time as a recording writes it: rdflib reads it into a form of its own."""
    value = getattr(literal, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return "" if literal is None else str(literal)
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
