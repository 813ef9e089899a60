"""Messages as linked data: JSON <-> JSON-LD <-> RDF, in the vocabulary of the OGC's annotated schema.

A member `k` is the predicate `mcp:k`, percent-encoded where an IRI demands it; an object is a blank node, a scalar is a
typed literal. An array of objects is one node for each, with its position and, where the protocol has a name for it,
its type. RDF knows no order, no null and no empty array, so the rule is: **a value is written plainly if it would be
read back as it was**, and otherwise it is kept whole as an `rdf:JSON` literal. What fits neither is refused.

Needs the extra `rdf`. The context is carried here and never fetched. rdflib reads and writes some 20,000 statements a
second: this is for tools and archives, or for a thread, not for the event loop.
"""

import io
import json
import math
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

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

TYPES: Final = {
    ".params.tools": "Tool",
    ".result.content": "ContentBlock",
    ".result.contents": "ResourceContents",
    ".result.messages": "PromptMessage",
    ".result.prompts": "Prompt",
    ".result.prompts.arguments": "PromptArgument",
    ".result.resourceTemplates": "ResourceTemplate",
    ".result.resources": "Resource",
    ".result.roots": "Root",
    ".result.tools": "Tool",
}
"""Where a message has arrays of things with a name in the protocol: each gets it as its type. The same member
elsewhere may be an object, as `tools` is in capabilities."""

POSITION: Final = "https://schema.org/position"
"""The place of an object in its array, counted from 1."""

_ONE_CONTENT: Final = frozenset({"action", "model", "role"})
"""Members of a result whose `content` may be one object: an answer to elicitation or sampling."""

_TYPE_NAMES: Final = frozenset({*TYPES.values(), *(f"mcp:{name}" for name in TYPES.values())})

# A name with a colon would be an IRI of its own, with an @ a keyword; other signs cannot stand in an IRI at all.
_NAME: Final = re.compile(r"[A-Za-z0-9_$][A-Za-z0-9_$./-]*")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_$./-]")
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
    return {"@context": CONTEXT_URL, **_marked_members(message, "")}


def from_jsonld(document: dict[str, Any]) -> dict[str, Any]:
    """Return the message that *document* was made of.

    Raises `InvalidRequest` for unknown context, or with keywords that we do not write.
    """
    members = dict(document)
    if members.pop("@context", None) not in (CONTEXT_URL, CONTEXT):
        raise InvalidRequest("unknown context")
    message: dict[str, Any] = _unmarked_members(members, "", MAX_DEPTH)
    return message


def to_graph(message: dict[str, Any]) -> "Graph":
    """Return the graph that the JSON-LD form of *message* denotes."""
    from rdflib import BNode, Graph

    graph = Graph()
    describe(graph, BNode(), message)
    return graph


def describe(graph: "Graph", node: "Node", message: dict[str, Any]) -> None:
    """Add to *graph* what *message* says, as *node*."""
    graph.bind("mcp", VOCABULARY)
    document = to_jsonld(message)
    del document["@context"]
    _describe(graph, node, document)


def from_graph(graph: "Graph") -> dict[str, Any]:
    """Return the message that *graph* describes.

    Several values are an array: by their positions, or, where others wrote them without, in the order of their
    canonical JSON. Raises `InvalidRequest` if it is not one tree of our vocabulary.
    """
    roots = set(graph.subjects()) - set(graph.objects())
    if len(roots) != 1:
        raise InvalidRequest(f"expected a graph with one root, got {len(roots)}")
    (root,) = roots
    reader = GraphReader(graph)
    message = reader.node(root)
    if set(graph.subjects()) - reader.seen:
        raise InvalidRequest("the graph has nodes that are not reachable from the root")
    return message


def to_turtle(message: dict[str, Any]) -> str:
    """Return *message* in Turtle."""
    return write_turtle(to_graph(message))


def write_turtle(graph: "Graph") -> str:
    """Return *graph* in Turtle, with every digit of its numbers."""
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

        def getQName(self, uri: "Node", gen_prefix: bool = True) -> str | None:  # noqa: N802 - of rdflib
            """None for an encoded name: it would be cut in two, for a prefix of its own."""
            name: str | None = super().getQName(uri, gen_prefix and "%" not in str(uri))
            return name

    stream = io.BytesIO()
    ExactSerializer(graph).serialize(stream, encoding="utf-8")
    return stream.getvalue().decode()


def from_turtle(text: str) -> dict[str, Any]:
    """Return the message that *text* describes. Raises `ParseError` or `InvalidRequest`."""
    return from_graph(read_turtle(text))


def read_turtle(text: str) -> "Graph":
    """Return the graph that *text* describes. Raises `ParseError`."""
    from rdflib import Graph

    graph = Graph()
    try:
        graph.parse(data=text, format="turtle")
    except Exception as error:  # rdflib's parser lets any exception of its own through
        raise ParseError(f"not Turtle: {type(error).__name__}") from None
    return graph


def _is_name(name: str) -> bool:
    """Whether a member's name can be a predicate of its own; one that the context defines is another already."""
    return name not in CONTEXT and _NAME.fullmatch(name) is not None


def _term(name: str) -> str:
    """The name of a member as a part of an IRI; the empty one has none."""
    term = _FOREIGN.sub(lambda sign: _encoded(sign[0]), name)
    return _encoded(term[0]) + term[1:] if term in CONTEXT or term[0] in "./-" else term


def _encoded(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode())


def _name(term: str) -> str | None:
    """The name of a member that a part of an IRI stands for; None if it stands for none."""
    if _is_name(term):
        return term
    name = unquote(term)
    return name if _has_term(name) and _term(name) == term else None


def _has_term(name: str) -> bool:
    return name != "" and not _SURROGATE.search(name)


def _is_array(name: str, place: str, siblings: Collection[str]) -> bool:
    """Whether a single value there is read as an array of one."""
    if place == ".result.content":
        return _ONE_CONTENT.isdisjoint(siblings)
    return place in TYPES or name in ALWAYS_ARRAYS


def _marked_members(members: dict[str, Any], place: str) -> dict[str, Any]:
    return {_term(name): _marked(name, value, f"{place}.{name}", members) for name, value in members.items()}


def _marked(name: str, value: Any, place: str, siblings: Collection[str]) -> Any:
    """The JSON-LD form of a member: as it is, if it is read back so; else marked as JSON."""
    if isinstance(value, list):
        kind = TYPES.get(place)
        if kind is None and name in ALWAYS_ARRAYS and len(value) == 1 and _is_plain(value[0]):
            return [_plain(value[0], place)]
        if value and all(isinstance(one, dict) and _is_plain(one) for one in value):
            head = {} if kind is None else {"@type": kind}
            return [{**head, POSITION: at, **_marked_members(one, place)} for at, one in enumerate(value, 1)]
    elif not _is_array(name, place, siblings) and _is_plain(value):
        return _plain(value, place)
    return {"@type": "@json", "@value": value}


def _is_plain(value: Any) -> bool:
    match value:
        case dict():
            return all(map(_has_term, value))
        case str():
            return not _CONTROL.search(value)
        case int():
            return abs(value) < _INTEGERS
    return isinstance(value, float)


def _plain(value: Any, place: str) -> Any:
    return _marked_members(value, place) if isinstance(value, dict) else value


def _unmarked_members(members: dict[str, Any], place: str, depth: int) -> dict[str, Any]:
    if not depth:
        raise InvalidRequest(_TOO_DEEP)
    found = {}
    for name, value in members.items():
        if name == POSITION or (name == "@type" and isinstance(value, str) and value in _TYPE_NAMES):
            continue
        if name.startswith("@"):
            raise InvalidRequest("unsupported JSON-LD keyword")
        known = _name(name) or name
        if known in found:
            raise InvalidRequest("a member is there twice")
        found[known] = _unmarked(known, value, f"{place}.{known}", members, depth - 1)
    return found


def _unmarked(name: str, value: Any, place: str, siblings: Collection[str], depth: int) -> Any:
    match value:
        case {"@type": "@json", "@value": inner, **rest} if not rest:
            return inner
        case list():
            at = _in_order([one.get(POSITION) if isinstance(one, dict) else None for one in value])
            return [_unmarked_one(value[index], place, depth - 1) for index in at or range(len(value))]
        case {"https://schema.org/position": _}:
            return [_unmarked_one(value, place, depth - 1)]
    if _is_array(name, place, siblings):
        return [_unmarked_one(value, place, depth - 1)]
    return _unmarked_one(value, place, depth)


def _unmarked_one(value: Any, place: str, depth: int) -> Any:
    if depth < 0:
        raise InvalidRequest(_TOO_DEEP)
    match value:
        case {"@type": "@json", "@value": inner, **rest} if not rest:
            return inner
        case dict():
            return _unmarked_members(value, place, depth)
        case list():
            return [_unmarked_one(inner, place, depth - 1) for inner in value]
    return value


def _in_order(positions: Sequence[Any]) -> list[int] | None:
    """The indexes of values by their *positions*; None if they have none."""
    if all(position is None for position in positions):
        return None
    if any(type(position) is not int for position in positions) or len({*positions}) < len(positions):
        raise InvalidRequest("the values of an array have no position, or one twice")
    return sorted(range(len(positions)), key=positions.__getitem__)


def _describe(graph: "Graph", node: "Node", members: dict[str, Any]) -> None:
    from rdflib import RDF, BNode, Literal, URIRef

    for name, value in members.items():
        if name == "@type":
            graph.add((node, RDF.type, URIRef(VOCABULARY + value)))
            continue
        predicate = URIRef(name if name == POSITION else VOCABULARY + name)
        for inner in value if isinstance(value, list) else (value,):
            match inner:
                case {"@type": "@json", "@value": whole}:
                    # JSON-LD asks for sorted keys, so that equal values are equal literals.
                    object_: Node = Literal(_text(whole), datatype=RDF.JSON, normalize=False)
                case dict():
                    object_ = BNode()
                    _describe(graph, object_, inner)
                case _:
                    object_ = Literal(inner)
            graph.add((node, predicate, object_))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


@attrs.frozen
class GraphReader:
    """A graph, and which of its nodes have been read: each belongs in one place."""

    graph: "Graph"
    seen: "set[Node]" = attrs.field(factory=set)

    def node(self, node: "Node", place: str = "", depth: int = MAX_DEPTH) -> dict[str, Any]:
        """What is said of *node*. Raises `InvalidRequest`."""
        from rdflib import RDF, BNode

        if depth <= 0:
            raise InvalidRequest(_TOO_DEEP)
        if node in self.seen or not isinstance(node, BNode):
            raise InvalidRequest("a blank node is used more than once")
        self.seen.add(node)
        values: dict[str, list[Node]] = {}
        for predicate, object_ in self.graph.predicate_objects(node):
            if str(predicate) == POSITION or (predicate == RDF.type and str(object_).startswith(VOCABULARY)):
                continue
            name = _name(str(predicate).removeprefix(VOCABULARY))
            if name is None or not str(predicate).startswith(VOCABULARY):
                raise InvalidRequest("predicate of an unknown vocabulary")
            values.setdefault(name, []).append(object_)
        return {name: self._member(name, found, f"{place}.{name}", values, depth - 1) for name, found in values.items()}

    def _member(self, name: str, found: "list[Node]", place: str, siblings: Collection[str], depth: int) -> Any:
        from rdflib import RDF, Literal

        first = found[0]
        if len(found) == 1 and isinstance(first, Literal) and first.datatype == RDF.JSON:
            return _read_json(str(first))
        positions = [self._position(one) for one in found]
        at = _in_order(positions)
        if len(found) == 1 and at is None and not _is_array(name, place, siblings):
            return self._value(first, place, depth)
        values = [self._value(one, place, depth - 1) for one in found]
        return sorted(values, key=_text) if at is None else [values[index] for index in at]

    def _position(self, object_: "Node") -> Any:
        from rdflib import Literal, URIRef

        if isinstance(object_, Literal):
            return None
        found = list(self.graph.objects(object_, URIRef(POSITION)))
        if not found:
            return None
        first = found[0]
        return _read_literal(first) if len(found) == 1 and isinstance(first, Literal) else ""  # no position at all

    def _value(self, object_: "Node", place: str, depth: int) -> Any:
        from rdflib import RDF, Literal

        if not isinstance(object_, Literal):
            return self.node(object_, place, depth)
        return _read_json(str(object_)) if object_.datatype == RDF.JSON else _read_literal(object_)


def _read_literal(literal: Any) -> Any:
    from rdflib import XSD

    kind = _KINDS.get(str(literal.datatype or XSD.string).removeprefix(str(XSD)))
    value = str(literal) if kind is str else literal.value
    _check_text(str(literal))
    if literal.language or type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidRequest("literal without an equivalent in JSON")
    return value


def read_json_literal(literal: "Node") -> Any:
    """The value of an `rdf:JSON` literal. Raises `InvalidRequest` for another one, and `ParseError`."""
    from rdflib import RDF, Literal

    if not isinstance(literal, Literal) or literal.datatype != RDF.JSON:
        raise InvalidRequest("expected an rdf:JSON literal")
    return _read_json(str(literal))


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
