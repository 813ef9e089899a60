"""SHACL shapes of the protocol's things, made of the annotated schema: what a tool, a resource or a prompt must have.

A shape has the type that linked data gives to such things as its target. What RDF cannot carry is one `rdf:JSON`
literal there, so each shape lets that stand in the place of a value. Needs the extra `rdf`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from callboard.codecs.annotated_schema import annotated_schema
from callboard.codecs.linked_data import TYPES, VOCABULARY

if TYPE_CHECKING:
    from rdflib import Graph
    from rdflib.term import Node

SHAPES: Final = "urn:callboard:shape:"
"""Names of the shapes: this, and the name of the definition."""

_DEFINITION: Final = "#/definitions/"
_OTHER_NAMES: Final = {"ResourceContents": ("TextResourceContents", "BlobResourceContents")}
"""Types that are one of several definitions, where the schema has none that says so."""

_SCALARS: Final = {
    "string": ("string",),
    "integer": ("integer",),
    "number": ("integer", "double"),
    "boolean": ("boolean",),
}
"""Types of JSON, and the types of literals that they are written as."""


def shapes() -> "Graph":
    """A shape for each type of linked data, and for what these are made of."""
    from rdflib import Graph

    graph = Graph()
    graph.bind("mcp", VOCABULARY)
    maker = ShapeMaker(graph, annotated_schema()["definitions"])
    for name in sorted({*TYPES.values()}):
        maker.target(name)
    return graph


@attrs.frozen
class ShapeMaker:
    """Adds shapes to a graph, each definition once."""

    graph: "Graph"
    definitions: Mapping[str, Any]
    made: set[str] = attrs.field(factory=set)

    def target(self, name: str) -> None:
        """Add the shape of all nodes of the type *name*."""
        from rdflib import SH, URIRef

        self.graph.add((self.definition(name), SH.targetClass, URIRef(VOCABULARY + name)))

    def definition(self, name: str) -> "Node":
        """The shape of a definition."""
        from rdflib import RDF, SH, URIRef

        node = URIRef(SHAPES + name)
        if name not in self.made:
            self.made.add(name)
            self.graph.add((node, RDF.type, SH.NodeShape))
            names = _OTHER_NAMES.get(name)
            either = {"anyOf": [{"$ref": _DEFINITION + one} for one in names]} if names else self.definitions[name]
            self._constrain(node, either)
        return node

    def _constrain(self, node: "Node", schema: Mapping[str, Any]) -> None:
        """Say of *node* what *schema* demands of one value."""
        from rdflib import SH, XSD, BNode, Literal
        from rdflib.collection import Collection

        kind = schema.get("type")
        if "$ref" in schema:
            self.graph.add((node, SH.node, self.definition(schema["$ref"].removeprefix(_DEFINITION))))
        elif "anyOf" in schema:
            self._either(node, [self._value(one) for one in schema["anyOf"]])
        elif "const" in schema or "enum" in schema:
            allowed: list[Node] = [Literal(value) for value in schema.get("enum", [schema.get("const")])]
            self.graph.add((node, SH["in"], Collection(self.graph, BNode(), allowed).uri))
        elif "properties" in schema:
            for name, inner in schema["properties"].items():
                self._property(node, name, inner, is_required=name in schema.get("required", ()))
        elif isinstance(kind, str) and kind in _SCALARS:
            names = _SCALARS[kind]
            if len(names) == 1:
                self.graph.add((node, SH.datatype, XSD[names[0]]))
            else:
                self._either(node, [self._typed(XSD[name]) for name in names])
        elif kind == "object":
            self.graph.add((node, SH.nodeKind, SH.BlankNode))

    def _property(self, node: "Node", name: str, schema: Mapping[str, Any], *, is_required: bool) -> None:
        from rdflib import RDF, SH, BNode, Literal, URIRef

        shape = BNode()
        self.graph.add((node, SH.property, shape))
        self.graph.add((shape, SH.path, URIRef(schema.get("x-jsonld-id", VOCABULARY + name))))
        is_array = schema.get("type") == "array"
        if is_required:
            self.graph.add((shape, SH.minCount, Literal(1)))
        if not is_array:
            self.graph.add((shape, SH.maxCount, Literal(1)))
        value = schema.get("items", {}) if is_array else schema
        if value:
            self._either(shape, [self._value(value), self._typed(RDF.JSON)])

    def _value(self, schema: Mapping[str, Any]) -> "Node":
        from rdflib import BNode

        way = BNode()
        self._constrain(way, schema)
        return way

    def _typed(self, datatype: "Node") -> "Node":
        from rdflib import SH, BNode

        way = BNode()
        self.graph.add((way, SH.datatype, datatype))
        return way

    def _either(self, node: "Node", ways: "list[Node]") -> None:
        from rdflib import SH, BNode
        from rdflib.collection import Collection

        self.graph.add((node, SH["or"], Collection(self.graph, BNode(), ways).uri))
