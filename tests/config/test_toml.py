"""TOML: the values are Python's own, and every one is found where it stands."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.config.positions import NotWritten, SourceNode
from callboard.config.toml import read_toml

TEXT = """\
# a comment = "with things"
title = "a # string"
a.b . "c d" = 1            # dotted
[mcpServers.weather]
command = "python"
args = [
  "-m",  # first
  'weather',
  [1, { x = 2, "y.z" = [3] }],
]
text = \"\"\"
[not.a.table]
no = "key\"\"\"\"
literal = '''
also = 'no' ''key'''
when = 1979-05-27 07:32:00
[mcpServers.weather.callboard]
timeout = 5.5
tools.allow = ["a*"]
  [mcpServers."with.dot"]
  url = 'https://example.com'
[[list]]
name = "one"
[[list]]
name = "two"
[list.sub]
key = true
[[list.deep]]
x = 1
"""

EXPECTED = {
    ("title",): 2,
    ("a",): 3,
    ("a", "b", "c d"): 3,
    ("mcpServers",): 4,
    ("mcpServers", "weather", "command"): 5,
    ("mcpServers", "weather", "args"): 6,
    ("mcpServers", "weather", "args", 0): 7,
    ("mcpServers", "weather", "args", 1): 8,
    ("mcpServers", "weather", "args", 2, 1, "x"): 9,
    ("mcpServers", "weather", "args", 2, 1, "y.z", 0): 9,
    ("mcpServers", "weather", "text"): 11,
    ("mcpServers", "weather", "literal"): 14,
    ("mcpServers", "weather", "when"): 16,
    ("mcpServers", "weather", "callboard"): 17,
    ("mcpServers", "weather", "callboard", "timeout"): 18,
    ("mcpServers", "weather", "callboard", "tools"): 19,
    ("mcpServers", "weather", "callboard", "tools", "allow", 0): 19,
    ("mcpServers", "with.dot"): 20,
    ("mcpServers", "with.dot", "url"): 21,
    ("list",): 22,
    ("list", 0, "name"): 23,
    ("list", 1): 24,
    ("list", 1, "name"): 25,
    ("list", 1, "sub"): 26,
    ("list", 1, "sub", "key"): 27,
    ("list", 1, "deep", 0): 28,
    ("list", 1, "deep", 0, "x"): 29,
}


def plain(node: SourceNode) -> Any:
    if node.members is not None:
        return {key: plain(one) for key, one in node.members.items()}
    return [plain(one) for one in node.items] if node.items is not None else node.value


def at(node: SourceNode, path: tuple[str | int, ...]) -> SourceNode:
    for step in path:
        if isinstance(step, int):
            assert node.items is not None
            node = node.items[step]
        else:
            assert node.members is not None
            node = node.members[step]
    return node


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_everything_is_found_in_its_line(newline: str) -> None:
    root = read_toml(TEXT.replace("\n", newline))
    assert plain(root) == tomllib.loads(TEXT)
    assert {path: at(root, path).line for path in EXPECTED} == EXPECTED


NAMES = st.text("ab-_9", min_size=1, max_size=3) | st.text("ab .#=[]{},'é", min_size=1, max_size=4)
PLAIN = st.booleans() | st.integers(-99, 99) | st.text("ab\"'#,]}=[\n\\.é ", max_size=8)
VALUES = st.recursive(PLAIN, lambda some: st.lists(some, max_size=3) | st.dictionaries(NAMES, some, max_size=3))
TABLES = st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=4), max_size=4)


def basic(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def name(text: str, draw: Any) -> str:
    ways = [basic(text)]
    if "'" not in text:
        ways.append(f"'{text}'")
    if all(one in "ab-_9" for one in text):
        ways.append(text)
    return str(draw(st.sampled_from(ways)))


def string(text: str, draw: Any) -> str:
    ways = [basic(text)]
    if "'" not in text and "\n" not in text:
        ways.append(f"'{text}'")
    if "'''" not in text and not text.endswith("'"):
        ways.append(f"'''\n{text}'''")
    if "\\" not in text and '"""' not in text:
        ways.append(f'"""\n{text}"""' if not text.endswith('"""') else basic(text))
    return str(draw(st.sampled_from(ways)))


def value(one: Any, draw: Any) -> str:
    space = st.sampled_from(["", " ", "\n", '# , ] " comment\n'])
    if isinstance(one, bool):
        return str(one).lower()
    if isinstance(one, str):
        return string(one, draw)
    if isinstance(one, list):
        return f"[{draw(space)}{''.join(f'{value(item, draw)}{draw(space)},{draw(space)}' for item in one)}]"
    if isinstance(one, dict):
        return "{ " + ", ".join(f"{name(key, draw)} = {value(item, draw)}" for key, item in one.items()) + " }"
    return str(one)


@given(st.data())
def test_any_table_is_read_and_each_of_its_keys_found_where_it_stands(data: Any) -> None:
    tables = data.draw(TABLES)
    text, expected = "", dict[tuple[str | int, ...], int]()
    for table, pairs in tables.items():
        text += f"[{name(table, data.draw)}]\n"
        for key, one in pairs.items():
            expected[table, key] = text.count("\n") + 1
            text += f"{name(key, data.draw)} = {value(one, data.draw)}{data.draw(st.sampled_from(['', ' # end']))}\n"
    root = read_toml(text)
    assert plain(root) == tomllib.loads(text) == tables
    assert {path: at(root, path).line for path in expected} == expected
    _check_all(root, text.split("\n"))


def _check_all(node: SourceNode, lines: list[str]) -> None:
    """Each key, however deep, begins where it is said to."""
    for key, one in (node.members or {}).items():
        rest = lines[one.line - 1][one.column - 1 :]
        assert rest.startswith((key, basic(key), f"'{key}'"))
        _check_all(one, lines)
    for one in node.items or ():
        _check_all(one, lines)


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("a = 1\nb = \n", 2, "invalid value"),
        ("a = 1\na = 2\n", 2, "overwrite"),
        ("[a]\n[a]\n", 2, "twice"),
        ("[a\n", 1, "expected"),
        ('a = "', 1, "unterminated string"),
        ("{}", 1, "invalid"),
        ("a = " + "[" * 5000 + "]" * 5000, 1, "nested deeper"),
        ("a = 1\nb = " + "[" * 80 + "]" * 80, 2, "nested deeper"),
        ("a = " + "9" * 5000, 1, "too long"),
    ],
)
def test_what_is_no_toml_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(NotWritten, match=why) as refused:
        read_toml(text)
    assert refused.value.line == line
