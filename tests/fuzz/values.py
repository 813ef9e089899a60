"""JSON values that almost are: a good one, with members gone, replaced, doubled or of another type."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

Place: TypeAlias = tuple[Any, Any]
"""A container, and the key or index of one of its items."""


class Again(str):
    """A member's name that may stand twice in one object: each instance is another key."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def nested(depth: int, inner: Any = None) -> Any:
    """An object in an object, *depth* deep."""
    for _ in range(depth):
        inner = {"properties": inner}
    return inner


TEXTS: Final = (
    *("", " ", "x", "x-mcp-header", "\x00", "\n", "\r\n\t", "é世界", "\ud800", "\u202egnp.exe", "\u200b", "😀" * 20),
    *(
        "\x1b]0;owned\x07",
        "../../etc/passwd",
        "%2e%2e/%00",
        "{",
        "}",
        "{a}",
        "{+any}",
        "{a}{b}",
        "{?a*}",
        "{/a:3}",
        "//",
    ),
    *("notes://{x}{y}", "notes://" + "a/" * 400, "http://[::1", "file:///", "a" * 300, "a" * 9000, "9" * 400, "null"),
    *(
        "2026-07-28",
        "2025-11-25",
        "1999-01-01",
        "application/json",
        "tools/call",
        "object",
        "complete",
        "input_required",
    ),
)
VALUES: Final[tuple[Any, ...]] = (
    *(None, None, True, False, 0, -1, 1.5, -0.0, 1e300, 2**31, 2**53 + 1, 2**63, 2**64, -(2**70), 10**40, [], {}, [[]]),
    *([None], ["x-mcp-header"], [1, "a", None, {}], {"": ""}, {"type": None}, {"type": "text"}, {"x-mcp-header": "A"}),
    *(
        {"$ref": "#"},
        {"type": ["object", "null"]},
        {"io.modelcontextprotocol/subscriptionId": []},
        {"a": {"b": {"c": 1}}},
    ),
    *(nested(30), nested(90), {str(n): n for n in range(300)}, list(range(300)), [{}] * 300),
)
GOOD_TEXTS: Final = tuple(text for text in TEXTS if text.isprintable() or text.isspace())
"""Those that a well-behaved peer may send: a lone surrogate is no text at all."""
NAMES: Final = (
    *(
        "_meta",
        "_meta",
        "_meta",
        "name",
        "title",
        "description",
        "inputSchema",
        "outputSchema",
        "annotations",
        "icons",
        "execution",
        "type",
    ),
    *(
        "uri",
        "uriTemplate",
        "mimeType",
        "size",
        "arguments",
        "nextCursor",
        "ttlMs",
        "cacheScope",
        "resultType",
        "content",
    ),
    *(
        "inputRequests",
        "requestState",
        "structuredContent",
        "isError",
        "x-mcp-header",
        "properties",
        "required",
        "task",
    ),
    *("contents", "text", "blob", "role", "messages", "method", "params", "id", "error", "result", "jsonrpc", "$defs"),
    *("progressToken", "progress", "total", "io.modelcontextprotocol/serverInfo", "__proto__", ""),
    "dev.callboard/backend",
)


_ODD_META: Final[tuple[Any, ...]] = (
    [1],
    5,
    "x",
    {"progressToken": {}},
    {"io.modelcontextprotocol/subscriptionId": []},
    {"": None},
)
TELLING: Final[dict[str, tuple[Any, ...]]] = {
    "_meta": _ODD_META,
    "inputSchema": (
        *(["x-mcp-header"], "x-mcp-header", {"x-mcp-header": "A"}, {"type": "object", "x-mcp-header": []}, {}, True),
        {"type": "object", "properties": ["x-mcp-header"]},
        {"type": "object", "properties": {"a": "x-mcp-header"}},
        {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": {"b": 1}}}},
        {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"x-mcp-header": "a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/properties/a", "x-mcp-header": "A"}}},
        {"type": "object", "properties": nested(70, {"x-mcp-header": "A"})},
    ),
    "properties": (["x-mcp-header"], "x-mcp-header", {"a": None}, {"a": ["x-mcp-header"]}, {"a": True}),
    "uriTemplate": (
        "{a}{b}",
        "x://{a}{b}",
        "{+any}",
        "{",
        "x://{a*}",
        "x://{a:0}",
        "x://" + "{a}/" * 99,
    ),
    "uri": ("", "x", "x://" + "/" * 5000, "x" * 9000, "x://\x00", "%", "notes://two/2"),
    "name": ("", " ", "x" * 200, "echo", "good__echo", "a/b", "a b", "a\n", "\u202ea", "__", "full", "é"),
    "notifications": (5, [], {"resourceSubscriptions": 5}, {"resourceSubscriptions": [5]}, {"toolsListChanged": "yes"}),
    "inputRequests": (5, [], {}, {"q": 5}, {"q": {"method": "ping"}}, {"q": {"method": "sampling/createMessage"}}),
    "requestState": (5, "", "x" * 100_000),
    "nextCursor": (5, "", "x", [], "x" * 100_000),
    "content": (None, {}, "text", [None], [[]], [{"type": "text"}], [{"type": "resource", "resource": {}}]),
    "progress": (-1, 1e308, "5", 2**70),
}
"""Values that a member is likelier to trip over than over any other."""


def odd(draw: random.Random) -> Any:
    """Any value, and nobody else's: it may be changed."""
    return draw.choice(TEXTS) if draw.random() < 0.4 else copy.deepcopy(draw.choice(VALUES))


def places(value: Any) -> Iterator[Place]:
    """Where something stands in *value*, at any depth."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        yield value, step
        yield from places(item)


def _replace(draw: random.Random, inside: Any, step: Any) -> None:
    telling = TELLING.get(step) if isinstance(step, str) else None
    inside[step] = odd(draw) if telling is None or draw.random() < 0.3 else copy.deepcopy(draw.choice(telling))


def _remove(draw: random.Random, inside: Any, step: Any) -> None:
    del inside[step]


def _null(draw: random.Random, inside: Any, step: Any) -> None:
    inside[step] = None


def _wrap(draw: random.Random, inside: Any, step: Any) -> None:
    inside[step] = draw.choice(([inside[step]], {"value": inside[step]}, [inside[step], 3], str(inside[step])))


def _unwrap(draw: random.Random, inside: Any, step: Any) -> None:
    item = inside[step]
    inner = list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
    inside[step] = draw.choice(inner) if inner else odd(draw)


def _double(draw: random.Random, inside: Any, step: Any) -> None:
    again = copy.deepcopy(inside[step]) if draw.random() < 0.5 else odd(draw)
    if isinstance(inside, dict):
        inside[Again(step)] = again
    else:
        inside.insert(step, again)


def _add(draw: random.Random, inside: Any, step: Any) -> None:
    target = inside[step] if isinstance(inside[step], dict) else inside
    if isinstance(target, dict):
        name = draw.choice(NAMES)
        _replace(draw, target, name)
    else:
        target.append(odd(draw))


def _change(draw: random.Random, inside: Any, step: Any) -> None:
    """Make a text or a number another one."""
    item = inside[step]
    if isinstance(item, str):
        at = draw.randrange(len(item) + 1)
        inside[step] = item[:at] + draw.choice(TEXTS) + item[at:]
    elif type(item) in (int, float):
        inside[step] = draw.choice((-item, item + 0.5, float(item), item * 10**20, str(item)))
    else:
        inside[step] = odd(draw)


CHANGES: Final[tuple[Callable[[random.Random, Any, Any], None], ...]] = (
    *(_replace, _replace, _remove, _null, _wrap, _unwrap, _double, _add, _change, _change),
)


def spoiled(draw: random.Random, value: Any, times: int = 1) -> Any:
    """A copy of *value* with some changes in it."""
    whole = {"value": copy.deepcopy(value)}
    for _ in range(times):
        found = list(places(whole))
        if len(found) > 1 and draw.random() < 0.95:
            found = found[1:]  # rarely the whole value
        telling = [place for place in found if isinstance(place[1], str) and place[1] in TELLING]
        if telling and draw.random() < 0.4:
            _replace(draw, *draw.choice(telling))
            continue
        shallow = [place for place in found if place[0] is whole.get("value")]
        if shallow and draw.random() < 0.5:
            found = shallow  # half of the time one of its own members: there are many more below them
        if found:
            draw.choice(CHANGES)(draw, *draw.choice(found))
    return whole.get("value")


def written(value: Any) -> bytes:
    """The value as JSON, members that stand twice and lone surrogates included."""
    return json.dumps(value, separators=(",", ":")).encode()
