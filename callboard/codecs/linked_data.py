"""Messages as linked data: JSON <-> JSON-LD <-> RDF, in the vocabulary of the OGC's annotated schema.

A member `k` is the predicate `mcp:k`, an object is a blank node, a scalar is a typed literal. RDF knows no order, no
null and no empty array, so the rule is: **a value is written plainly if it would be read back as it was**, and
otherwise it is kept whole as an `rdf:JSON` literal. What fits neither is refused; nothing is changed silently.

Needs the extra `rdf`. The context is carried here and never fetched. rdflib reads and writes some 20,000 statements a
second: this is for tools and archives, or for a thread, not for the event loop.
"""

import io
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from callboard.codecs.canonical import canonical
from callboard.codecs.json_scan import MAX_DEPTH, check_frame, check_value
from callboard.errors import InvalidRequest, ParseError

if TYPE_CHECKING:
    from rdflib import Graph
    from rdflib.term import Node

VOCABULARY: Final = "http://modelcontextprotocol.io/ontology#"
CONTEXT_URL: Final = "https://ogcincubator.github.io/modelcontextprotocol/build/annotated/mcp/context.jsonld"
CONTEXT: Final = {
    "@vocab": VOCABULARY,
    "mcp": VOCABULARY,
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "@version": 1.1,
}
"""The document at `CONTEXT_URL`."""

ALWAYS_ARRAYS: Final = frozenset(
    {
        *("anyOf", "audience", "contents", "elicitations", "enum", "enumNames", "hints", "icons", "messages", "oneOf"),
        *("resourceSubscriptions", "resourceTemplates", "sizes", "stopSequences", "supported", "supportedVersions"),
        "values",
    }
)
"""Members that are an array wherever a revision has them: one value is read as an array of one."""

# A name with a colon would be an IRI of its own, with an @ a keyword; other signs cannot stand in an IRI at all.
_NAME: Final = re.compile(r"[A-Za-z0-9_$][A-Za-z0-9_$./-]*")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_INTEGERS: Final = 10**21  # from here on, JSON-LD 1.1 reads a number without fraction as a double


def to_jsonld(message: dict[str, Any]) -> dict[str, Any]:
    """Return *message* as a JSON-LD document: the same members in the same order after `@context`.

    Raises `InvalidRequest` if a member of the message has a name that is invalid as a predicate.
    """
    if not all(map(_is_name, message)):
        raise InvalidRequest("a member's name cannot be written as a predicate")
    return {"@context": CONTEXT_URL, **_marked_members(message)}


def from_jsonld(document: dict[str, Any]) -> dict[str, Any]:
    """Return the message that *document* was made of.

    Raises `InvalidRequest` for unknown context, or with keywords that we do not write.
    """
    members = dict(document)
    if members.pop("@context", None) not in (CONTEXT_URL, CONTEXT):
        raise InvalidRequest("unknown context")
    message: dict[str, Any] = _unmarked(members, MAX_DEPTH)
    return message


def to_graph(message: dict[str, Any]) -> "Graph":
    """Return the graph that the JSON-LD form of *message* denotes."""
    from rdflib import BNode, Graph

    graph, root = Graph(), BNode()
    graph.bind("mcp", VOCABULARY)
    document = to_jsonld(message)
    del document["@context"]
    _describe(graph, root, document)
    return graph


def from_graph(graph: "Graph") -> dict[str, Any]:
    """Return the message that *graph* describes.

    Raises `InvalidRequest` if it is not one tree of our vocabulary, or if order was lost in it.
    """
    roots = set(graph.subjects()) - set(graph.objects())
    if len(roots) != 1:
        raise InvalidRequest(f"expected a graph with one root, got {len(roots)}")
    (root,) = roots
    reader = _Reader(graph)
    message = reader.node(root)
    if set(graph.subjects()) - reader.seen:
        raise InvalidRequest("the graph has nodes that are not reachable from the root")
    return message


def to_turtle(message: dict[str, Any]) -> str:
    """Return *message* in Turtle."""
    from rdflib import XSD, Literal
    from rdflib.plugins.serializers.turtle import TurtleSerializer

    class ExactSerializer(TurtleSerializer):
        """rdflib writes a double with seven digits. This one writes as many as it takes to read it back."""

        def label(self, node: "Node", position: int) -> str:
            if isinstance(node, Literal) and node.datatype == XSD.double:
                digits = repr(node.value)
                return digits if "e" in digits else digits + "e0"  # without an exponent it would be a decimal
            text: str = super().label(node, position)
            return text

    stream = io.BytesIO()
    ExactSerializer(to_graph(message)).serialize(stream, encoding="utf-8")
    return stream.getvalue().decode()


def from_turtle(text: str) -> dict[str, Any]:
    """Return the message that *text* describes. Raises `ParseError` or `InvalidRequest`."""
    from rdflib import Graph

    graph = Graph()
    try:
        graph.parse(data=text, format="turtle")
    except Exception as error:  # rdflib's parser lets any exception of its own through
        raise ParseError(f"not Turtle: {type(error).__name__}") from None
    return from_graph(graph)


def _is_name(name: str) -> bool:
    """Whether a member's name can be a predicate of its own; one that the context defines is another already."""
    return name not in CONTEXT and _NAME.fullmatch(name) is not None


def _marked_members(members: dict[str, Any]) -> dict[str, Any]:
    return {name: _marked(name, value) for name, value in members.items()}


def _marked(name: str, value: Any) -> Any:
    """The JSON-LD form of a member: as it is, if it is read back so; else marked as JSON."""
    if name in ALWAYS_ARRAYS:
        if isinstance(value, list) and len(value) == 1 and _is_plain(value[0]):
            return [_plain(value[0])]
    elif _is_plain(value):
        return _plain(value)
    return {"@type": "@json", "@value": value}


def _is_plain(value: Any) -> bool:
    match value:
        case dict():
            return all(map(_is_name, value))
        case str():
            return not _CONTROL.search(value)
        case int():
            return abs(value) < _INTEGERS
    return isinstance(value, float)


def _plain(value: Any) -> Any:
    return _marked_members(value) if isinstance(value, dict) else value


def _unmarked(value: Any, depth: int) -> Any:
    if not depth:
        raise InvalidRequest(_TOO_DEEP)
    match value:
        case {"@type": "@json", "@value": inner, **rest} if not rest:
            return inner
        case dict():
            if any(name.startswith("@") for name in value):
                raise InvalidRequest("unsupported JSON-LD keyword")
            return {name: _unmarked(inner, depth - 1) for name, inner in value.items()}
        case list():
            return [_unmarked(inner, depth - 1) for inner in value]
    return value


def _describe(graph: "Graph", node: "Node", members: dict[str, Any]) -> None:
    from rdflib import RDF, BNode, Literal, URIRef

    for name, value in members.items():
        (inner,) = value if isinstance(value, list) else (value,)
        match inner:
            case {"@type": "@json", "@value": whole}:
                # JSON-LD asks for sorted keys, so that equal values are equal literals.
                text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
                object_: Node = Literal(text, datatype=RDF.JSON, normalize=False)
            case dict():
                object_ = BNode()
                _describe(graph, object_, inner)
            case _:
                object_ = Literal(inner)
        graph.add((node, URIRef(VOCABULARY + name), object_))


@attrs.frozen
class _Reader:
    """A graph, and which of its nodes have been read: each belongs in one place."""

    graph: "Graph"
    seen: "set[Node]" = attrs.field(factory=set)

    def node(self, node: "Node", depth: int = MAX_DEPTH) -> dict[str, Any]:
        from rdflib import BNode

        if not depth:
            raise InvalidRequest(_TOO_DEEP)
        if node in self.seen or not isinstance(node, BNode):
            raise InvalidRequest("a blank node is used more than once")
        self.seen.add(node)
        members: dict[str, Any] = {}
        for predicate, object_ in self.graph.predicate_objects(node):
            name = str(predicate).removeprefix(VOCABULARY)
            if name == str(predicate) or not _is_name(name):
                raise InvalidRequest("predicate of an unknown vocabulary")
            if name in members:
                raise InvalidRequest(f"{name}: the order of several values was lost")
            members[name] = self.member(name, object_, depth - 1)
        return members

    def member(self, name: str, object_: "Node", depth: int) -> Any:
        from rdflib import RDF, Literal

        if isinstance(object_, Literal) and object_.datatype == RDF.JSON:
            return _read_json(str(object_))
        value = _read_literal(object_) if isinstance(object_, Literal) else self.node(object_, depth)
        return [value] if name in ALWAYS_ARRAYS else value


def _read_literal(literal: Any) -> Any:
    from rdflib import XSD

    kind = _KINDS.get(str(literal.datatype or XSD.string).removeprefix(str(XSD)))
    value = str(literal) if kind is str else literal.value
    _check_text(str(literal))
    if literal.language or type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidRequest("literal without an equivalent in JSON")
    return value


def _read_json(text: str) -> Any:
    _check_text(text)
    data = text.encode()
    check_frame(data)
    canonical(data)  # refuses what is not JSON, or says something twice
    check_value(data)
    return msgspec.json.decode(data)


def _check_text(text: str) -> None:
    """Turtle can spell half a surrogate pair, which no message could ever be written with."""
    if _SURROGATE.search(text):
        raise ParseError("unpaired surrogate")


_KINDS: Final[dict[str, type]] = {"string": str, "integer": int, "double": float, "boolean": bool}
