"""YAML as JSON has it: the core schema of YAML 1.2, without aliases, and nested only so deep."""

import math
import re
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_TAG: Final = "tag:yaml.org,2002:"


class BadYaml(ValueError):
    """A text is no YAML, or says what JSON cannot say."""


def read_yaml(text: str, nesting: int) -> Any:
    """The value of *text*, which is nested at most so deep. Raises `BadYaml`, in one line."""
    loader = _CoreLoader(text)
    loader.nesting = nesting
    try:
        node = loader.get_single_node()
        return None if node is None else _value(node)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        raise BadYaml(" ".join(str(error).split())[:200]) from None
    finally:
        loader.dispose()


class _CoreLoader(yaml.SafeLoader):
    """Values as YAML 1.2 has them: `yes` and dates are texts, as other implementations read them. No aliases: with
    them a few lines stand for gigabytes."""

    nesting = 0
    _depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        self._depth += 1
        if self._depth > self.nesting:
            raise yaml.YAMLError("nested too deeply")
        found: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return found


_CoreLoader.yaml_implicit_resolvers = {}  # none of those of YAML 1.1
for _kind, _pattern in {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
}.items():
    _CoreLoader.add_implicit_resolver(_TAG + _kind, re.compile(f"^(?:{_pattern})$"), None)


def _value(node: Node) -> Any:
    """Raises ValueError or TypeError for what JSON cannot say, and for a key that is there twice."""
    if isinstance(node, SequenceNode) and node.tag == f"{_TAG}seq":
        return [_value(one) for one in node.value]
    if isinstance(node, MappingNode) and node.tag == f"{_TAG}map":
        found = {_key(key): _value(value) for key, value in node.value}
        if len(found) < len(node.value):
            raise ValueError("a key is there twice")
        return found
    if not isinstance(node, ScalarNode):
        raise TypeError(f"unknown tag {node.tag[:100]}")
    text = _text(node)
    match node.tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            number = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
            float(number)  # what no double holds, other implementations cannot read
            return number
        case "float":
            if math.isinf(value := float(text)):
                raise ValueError("a number is too large")
            return value
        case "str":
            return text
    raise ValueError(f"unknown tag {node.tag[:100]}")


def _key(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        raise TypeError("a key must be a text")
    return _text(node)


def _text(node: ScalarNode) -> str:
    """Raises ValueError for half a surrogate pair, which an escape can name and UTF-8 cannot say."""
    text = str(node.value)
    text.encode()
    return text
