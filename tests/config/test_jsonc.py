"""JSON as editors write it: the values are those of any reader, and every one is found where it stands."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.config.jsonc import read_json
from callboard.config.positions import MAX_DEPTH, NotWritten, SourceNode

KEYS = st.text(max_size=6).filter(lambda text: text.isprintable())
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | KEYS
VALUES = st.recursive(PLAIN, lambda some: st.lists(some, max_size=4) | st.dictionaries(KEYS, some, max_size=4))
BETWEEN = st.sampled_from(["", " ", "\n", "\n\n  ", "\t", "\r\n", '// a { comment " [\n', "/* one\nmore */", "/**/"])


def plain(node: SourceNode) -> Any:
    if node.members is not None:
        return {key: plain(one) for key, one in node.members.items()}
    return [plain(one) for one in node.items] if node.items is not None else node.value


def written(value: Any, draw: Any) -> str:
    """*value* with anything in between that may stand there."""

    def space() -> str:
        return str(draw(BETWEEN))

    if isinstance(value, dict):
        pairs = [
            f"{json.dumps(key)}{space()}:{space()}{written(one, draw)}{space()},{space()}" for key, one in value.items()
        ]
        return f"{{{space()}{''.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{space()}{''.join(f'{written(one, draw)}{space()},{space()}' for one in value)}]"
    return json.dumps(value)


def places(node: SourceNode) -> list[tuple[str | None, SourceNode]]:
    """Every node with its key, if it has one."""
    found: list[tuple[str | None, SourceNode]] = []
    for key, one in (node.members or {}).items():
        found += [(key, one), *places(one)]
    for one in node.items or ():
        found += [(None, one), *places(one)]
    return found


@given(st.data())
def test_any_value_is_read_with_comments_and_commas_anywhere_and_found_at_its_place(data: Any) -> None:
    value = data.draw(VALUES)
    text = f"{data.draw(BETWEEN)}{written(value, data.draw)}{data.draw(BETWEEN)}"
    root = read_json(text)
    assert plain(root) == value
    lines = text.split("\n")
    for key, node in places(root):
        rest = lines[node.line - 1][node.column - 1 :]
        if key is not None:
            assert rest.startswith(json.dumps(key))
        elif node.members is not None or node.items is not None:
            assert rest[0] in "{["
        else:
            assert rest.startswith(json.dumps(node.value))


@given(VALUES)
def test_what_python_writes_is_read_as_python_reads_it(value: Any) -> None:
    text = json.dumps(value, indent=2)
    assert plain(read_json(text)) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "line", "column", "why"),
    [
        ("{", 1, 2, "unexpected end of file"),
        ('{"a": 1', 1, 8, "unexpected end of file"),
        ('{"a": ', 1, 6, "unexpected end of file"),
        ('{\n  "a": 1\n  "b": 2\n}', 3, 3, "expected `,` or `}`"),
        ("[1 2]", 1, 4, "expected `,` or `]`"),
        ("{\n  a: 1\n}", 2, 3, "expected a key in double quotes"),
        ('{\n  "a" 1\n}', 2, 7, "expected `:` after the key"),
        ("{\n'a': 1}", 2, 1, "expected a key in double quotes"),
        ('{"a": yes}', 1, 7, "invalid value"),
        ('{"a": NaN}', 1, 7, "invalid value"),
        ('{"a": 01}', 1, 7, "invalid value"),
        ('{"a": 1.}', 1, 7, "invalid value"),
        ('{"a": 1x}', 1, 7, "invalid value"),
        ('{"a": "b\n"}', 1, 7, "unterminated string"),
        ('{"a": "C:\\Users"}', 1, 7, "invalid escape"),
        ('{"a": "\\ud800"}', 1, 7, "half a surrogate pair"),
        ("{} {}", 1, 4, "unexpected text after the end"),
        ("{}\n}", 2, 1, "unexpected text after the end"),
        ("[,]", 1, 2, "invalid value"),
        ("{} /* no end", 1, 4, "unterminated comment"),
        ("[" + "9" * 5000 + "]", 1, 2, "too long"),
        ("[" * 100_000, 1, MAX_DEPTH + 2, "nested deeper"),
    ],
)
def test_what_is_no_json_is_refused_with_line_and_column(text: str, line: int, column: int, why: str) -> None:
    with pytest.raises(NotWritten, match=why) as refused:
        read_json(text)
    assert (refused.value.line, refused.value.column) == (line, column)


def test_a_key_that_stands_twice_is_noted_with_both_lines() -> None:
    root = read_json('{\n"a": 1,\n"b": {\n"a": 2},\n"a": 3}')
    assert [(again.key, again.first, again.line) for again in root.repeated] == [("a", 2, 5)]
    assert plain(root)["a"] == 3
    assert root.members is not None
    assert root.members["b"].repeated == ()
