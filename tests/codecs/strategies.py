"""JSON values and JSON-RPC messages for Hypothesis to draw, and ways to spell them."""

import json
from typing import Any

from hypothesis import strategies as st

# Surrogates cannot stand in UTF-8, so no message has one.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | text
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
)
objects = st.dictionaries(text, values, max_size=5)

ids = st.integers(-(2**53) + 1, 2**53 - 1) | text
requests = st.fixed_dictionaries({"jsonrpc": st.just("2.0"), "id": ids, "method": text}, optional={"params": objects})
notifications = st.fixed_dictionaries({"jsonrpc": st.just("2.0"), "method": text}, optional={"params": objects})
results = st.fixed_dictionaries({"jsonrpc": st.just("2.0"), "id": ids, "result": objects})
errors = st.fixed_dictionaries(
    {
        "jsonrpc": st.just("2.0"),
        "error": st.fixed_dictionaries(
            {"code": st.integers(-(2**31), 2**31), "message": text}, optional={"data": values}
        ),
    },
    optional={"id": ids},
)
messages = requests | notifications | results | errors


def spell(value: Any, *, ascii_only: bool = False, indent: int | None = None) -> bytes:
    """*value* as JSON bytes, compact unless *indent* is given."""
    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators).encode()


spellings = st.fixed_dictionaries({"ascii_only": st.booleans(), "indent": st.none() | st.integers(0, 3)})
