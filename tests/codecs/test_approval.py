"""A call as a person is shown it: bounded, on its lines, with nothing in it that cannot be seen."""

import hashlib
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.approval import MAX_SHOWN, shown_call, visible
from callboard.codecs.canonical import canonical
from callboard.errors import ParseError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
TRICKS = st.text(
    "\u202e\u2066\u200b\u200f\u061c\u0000\u001b\u007f\u0085\u2028\ufeff\u3164\ufe0f\U000e0041\n\t ab", max_size=3000
)
VALUES = st.recursive(
    TEXTS | TRICKS | st.integers(-(10**9), 10**9) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS | TRICKS, inner, max_size=4),
    max_leaves=12,
)
UNSEEN = set("\u115f\u1160\u2800\u3164\uffa0\ufe0f")


@given(server=TEXTS | TRICKS, tool=TEXTS | TRICKS, arguments=st.dictionaries(TEXTS | TRICKS, VALUES, max_size=5))
def test_the_text_is_bounded_and_shows_all_that_it_has(server: str, tool: str, arguments: dict[str, object]) -> None:
    given_ = msgspec.json.encode(arguments)
    call = shown_call(server, tool, given_)
    text = call.text()
    assert len(text.encode()) <= 2 * 1024
    assert len(call.arguments.encode()) <= MAX_SHOWN
    lines = text.split("\n")
    assert len(lines) == (6 if call.more else 5)
    for one in "".join(lines):
        assert one.isprintable()
        assert unicodedata.category(one) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
        assert one not in UNSEEN
    if not call.more:
        assert msgspec.json.decode(call.arguments) == arguments  # what is shown means what is called
    else:
        assert lines[4] == f"({call.more} bytes more)"
        assert 0 < call.more < len(canonical(given_))
    assert call.digest[:12] == lines[-1].removeprefix("Digest: ")


def test_what_turns_text_around_is_shown_as_an_escape() -> None:
    assert visible("a\u202eb\u2066\n\x1b\U000e0041é漢") == "a\\u202eb\\u2066\\u000a\\u001b\\udb40\\udc41é漢"


def test_the_digest_is_of_values_and_of_all_three() -> None:
    plain = b'{"arguments":{"a":1,"b":[]},"server":"s","tool":"t"}'
    assert shown_call("s", "t", b'{"b": [], "a": 1.0}').digest == hashlib.sha256(plain).hexdigest()
    calls = [("s", "t", b'{"a":1}'), ("s", "t", b'{"a":2}'), ("s2", "t", b'{"a":1}'), ("s", "t2", b'{"a":1}')]
    assert len({shown_call(*one).digest for one in calls}) == len(calls)
    assert shown_call("s", "t", None).digest == shown_call("s", "t", b"{}").digest


def test_ambiguous_arguments_are_shown_to_nobody() -> None:
    with pytest.raises(ParseError):
        shown_call("s", "t", b'{"a":1,"a":2}')
