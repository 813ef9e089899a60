"""Sealed `requestState`: opened by whom it was sealed for, by nobody else, and nobody learns why not."""

import json
import os
import string
from decimal import Decimal
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from callboard.codecs.canonical import canonical
from callboard.codecs.members import Members, read_members
from callboard.codecs.seal import MAX_SEALED, KeyRing, Seal
from callboard.codecs.state import STATE_TTL, Binding, open_, salient_digest, seal
from callboard.errors import FrameTooLarge, InvalidState, ParseError, PeerError

SECRET, OTHER = bytes(range(32)), bytes(32)
RING = KeyRing.from_bytes(SECRET)
NOW = 1_800_000_000.0
BINDING = Binding("alice", "https://broker.example/mcp", "tools/call", salient_digest("tools/call"))
BASE64URL = string.ascii_letters + string.digits + "-_"


def members(params: dict[str, Any]) -> Members:
    return read_members(json.dumps(params).encode())


def sealed(payload: bytes = b"park p9 on n2", **changes: Any) -> str:
    return seal(RING, BINDING, payload, round_number=3, now=NOW, **changes)


def accepted(text: str, *, ring: KeyRing = RING, binding: Binding = BINDING, now: float = NOW) -> bool:
    """Whether a state opens; if not, it is refused in the one way there is."""
    try:
        open_(ring, text, binding, now=now)
    except InvalidState as error:
        told = (str(error), error.args[1:], error.__cause__, error.__context__)
    else:
        return True
    assert told == ("Invalid or expired requestState", (), None, None)
    return False


def test_a_state_comes_back_as_it_was_sealed() -> None:
    state = open_(RING, sealed(), BINDING, now=NOW)
    assert (state.round, state.payload, state.expires) == (3, b"park p9 on n2", NOW + STATE_TTL)


@given(st.binary(max_size=2000), st.integers(0, 2**32 - 1), st.text(), st.text(), st.text(), st.binary())
def test_anything_can_be_sealed_for_anyone(
    payload: bytes, number: int, principal: str, audience: str, method: str, digest: bytes
) -> None:
    binding = Binding(principal, audience, method, digest)
    text = seal(RING, binding, payload, round_number=number, now=NOW)
    state = open_(RING, text, binding, now=NOW)
    assert (state.round, state.payload) == (number, payload)
    assert set(text) <= set(BASE64URL)


def test_a_state_is_short() -> None:
    # 78 bytes: format 1, key 4, nonce 12, expiry 8, round 4, digest 1 + 32, tag 16
    assert len(sealed(b"")) == 104


def test_a_state_shows_nothing_of_what_it_holds() -> None:
    assert sealed(b"secret" * 20) != sealed(b"secret" * 20)
    state = open_(RING, sealed(b"secret"), BINDING, now=NOW)
    assert "secret" not in repr(state)


def test_every_sealing_has_a_serial_of_its_own() -> None:
    serials = {open_(RING, sealed(), BINDING, now=NOW).serial for _ in range(100)}
    assert len(serials) == 100


def test_with_its_nonce_given_a_sealing_can_be_repeated() -> None:
    assert sealed(nonce=bytes) == sealed(nonce=bytes) == sealed(nonce=lambda size: b"\0" * size)


def mutations(text: str) -> list[str]:
    """Every single-bit flip of the text, every other character in every place, every truncation, and more."""
    flips = [text[:at] + chr(ord(text[at]) ^ 1 << bit) + text[at + 1 :] for at in range(len(text)) for bit in range(8)]
    others = [text[:at] + char + text[at + 1 :] for at in range(len(text)) for char in BASE64URL if char != text[at]]
    cuts = [text[:end] for end in range(len(text))] + [text[start:] for start in range(1, len(text))]
    doubled = [text[:at] + text[at] + text[at:] for at in range(len(text))]
    padded = [text + more for more in ("=", "==", "A", "\n", " ", "\0", text)] + [f" {text}", f"\n{text}", text * 2]
    swapped = [text[:at] + text[at + 1] + text[at] + text[at + 2 :] for at in range(len(text) - 1)]
    return [changed for changed in flips + others + cuts + doubled + padded + swapped if changed != text]


@pytest.mark.requirement("M178")
@pytest.mark.parametrize("payload", [b"", b"p", b"pa", b"park p9 on n2"], ids=len)
def test_no_mutation_of_a_state_is_accepted(payload: bytes, record_property: Any) -> None:
    text = sealed(payload)
    assert accepted(text)
    tried = mutations(text)
    hits = [changed for changed in tried if accepted(changed)]
    record_property("mutations", len(tried))
    print(f"{len(tried)} mutations, {len(hits)} accepted")  # noqa: T201
    assert hits == []
    assert len(tried) > 4000


@given(st.text() | st.text(BASE64URL, min_size=40, max_size=120) | st.binary().map(lambda data: data.decode("latin-1")))
def test_no_invented_text_is_accepted(text: str) -> None:
    assert not accepted(text)


@given(st.data())
@settings(max_examples=300)
def test_the_bytes_of_a_state_cannot_be_rearranged(data: st.DataObject) -> None:
    text = sealed()
    changed = "".join(data.draw(st.permutations(text)))
    assert accepted(changed) == (changed == text)


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "mallory"},
        {"principal": ""},
        {"principal": "alicehttps://broker.example/mcp", "audience": ""},
        {"audience": "https://other.example/mcp"},
        {"method": "prompts/get"},
        {"digest": salient_digest("tools/call", members({"name": "other"}))},
        {"digest": b""},
    ],
    ids=str,
)
def test_a_state_is_worth_nothing_in_another_binding(change: dict[str, Any]) -> None:
    assert not accepted(sealed(), binding=attrs.evolve(BINDING, **change))


def test_a_state_expires_exactly() -> None:
    assert accepted(sealed(), now=NOW + STATE_TTL - 0.001)
    assert not accepted(sealed(), now=NOW + STATE_TTL)
    assert not accepted(sealed(ttl=0.0))


def test_a_state_opens_only_for_its_purpose() -> None:
    cursor = Seal(RING, "cursor").close(b"\0\0\0\0", BINDING.context(), expires=NOW + 60)
    assert Seal(RING, "cursor").open(cursor, BINDING.context(), now=NOW) is not None
    assert Seal(RING, "cursor").open(sealed(), BINDING.context(), now=NOW) is None
    assert not accepted(cursor)


def test_a_text_over_the_limit_is_not_even_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = MAX_SEALED // 4 * 3 - 78
    text = sealed(bytes(largest))
    assert len(text) == MAX_SEALED
    assert accepted(text)
    assert not accepted(text + "A")
    with pytest.raises(FrameTooLarge):
        sealed(bytes(largest + 1))
    with monkeypatch.context() as patch:
        patch.setattr("callboard.codecs.seal.MAX_SEALED", 2 * MAX_SEALED)
        longer = sealed(bytes(largest + 1))
        assert accepted(longer)
    assert not accepted(longer)


# Keys


def test_an_old_key_opens_until_it_leaves_the_ring() -> None:
    text = sealed()
    rings = [RING]
    for _ in range(3):
        rings.append(rings[-1].rotated(keep=2))
    assert [accepted(text, ring=ring) for ring in rings] == [True, True, True, False]
    assert len(rings[-1].keys) == 3


def test_the_newest_key_seals() -> None:
    both = RING.rotated(OTHER)
    text = seal(both, BINDING, b"", round_number=1, now=NOW)
    assert accepted(text, ring=KeyRing.from_bytes(OTHER))
    assert not accepted(text)
    assert accepted(sealed(), ring=both)


def test_rotating_to_a_key_already_there_moves_it_to_the_front() -> None:
    ring = KeyRing.from_bytes(SECRET, OTHER).rotated(OTHER)
    assert [key.id for key in ring.keys] == [key.id for key in KeyRing.from_bytes(OTHER, SECRET).keys]


def test_rings_of_the_same_bytes_open_each_others_seals() -> None:
    assert accepted(sealed(), ring=KeyRing.from_bytes(OTHER, SECRET))
    assert not accepted(sealed(), ring=KeyRing.generate())


@pytest.mark.parametrize("secrets", [(), (b"short",), (SECRET, SECRET), (SECRET + b"x",)])
def test_a_ring_needs_whole_and_different_keys(secrets: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError):
        KeyRing.from_bytes(*secrets)


def test_no_key_is_ever_shown() -> None:
    secret = os.urandom(32)
    shown = repr(KeyRing.from_bytes(secret)) + repr(KeyRing.from_bytes(secret).keys[0]) + repr(Seal(RING, "x"))
    assert secret.hex() not in shown
    assert repr(secret)[2:-1] not in shown
    assert SECRET.hex() not in shown


# The digest


def digest(text: str, method: str = "tools/call") -> bytes:
    return salient_digest(method, read_members(text.encode()))


@pytest.mark.parametrize(
    "texts",
    [
        ['{"name":"t","arguments":{"a":1,"b":2}}', '{ "arguments" : {"b":2, "a":1}, "name":"t" }'],
        ['{"name":"t"}', '{"name":"\\u0074"}', '{"name":"t","_meta":{"x":1},"inputResponses":{},"requestState":"s"}'],
        ['{"arguments":1}', '{"arguments":1.0}', '{"arguments":1e0}', '{"arguments":10E-1}', '{"arguments":1.000}'],
        ['{"arguments":0}', '{"arguments":-0}', '{"arguments":0.0}', '{"arguments":-0.0e5}', '{"arguments":0e-999}'],
        ['{"arguments":1.5}', '{"arguments":15e-1}', '{"arguments":1.50}', '{"arguments":0.15e1}'],
        ['{"arguments":1e25}', '{"arguments":10000000000000000000000000}', '{"arguments":1.0E+25}'],
        ['{"arguments":12345678901234567890123}', '{"arguments":12345678901234567890123.0}'],
        ['{"arguments":"ü\\/"}', '{"arguments":"\\u00fc/"}'],
        [f'{{"arguments":1{"0" * 308}}}', '{"arguments":1e308}', '{"arguments":0.1e309}'],
    ],
)  # fmt: skip
def test_the_same_request_written_otherwise_has_the_same_digest(texts: list[str]) -> None:
    assert len({digest(text) for text in texts}) == 1


def test_different_requests_have_different_digests() -> None:
    texts = [
        *("{}", '{"name":"t"}', '{"name":"T"}', '{"uri":"t"}', '{"name":null}', '{"name":"t","uri":"t"}'),
        *('{"name":"t","arguments":{}}', '{"name":"t","arguments":null}', '{"name":"t","arguments":[]}'),
        *(f'{{"name":"t","arguments":{{"a":{value}}}}}' for value in ("1", '"1"', "true", "1.5", '"1.5"', "null")),
        *(f'{{"name":"t","arguments":{{"a":{value}}}}}' for value in ("1e299", "10e299", "1e-999", "-1", "[1]")),
        *(f'{{"name":"t","arguments":{{"a":{value}}}}}' for value in ("9007199254740992", "9007199254740993")),
        *(f'{{"name":"t","arguments":{{"a":{value}}}}}' for value in ("0.1", "0.1000000000000000000001", '"\\u0000"')),
        *('{"name":"t","arguments":{"a":[1,2]}}', '{"name":"t","arguments":{"a":[2,1]}}'),
        *('{"name":"t","arguments":{"a":"ü"}}', '{"name":"t","arguments":{"a":"u\\u0308"}}'),
    ]
    assert len({digest(text) for text in texts}) == len(texts)
    assert digest("{}") != digest("{}", "prompts/get")
    assert digest("{}") == salient_digest("tools/call", UNSET)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def exact(text: bytes) -> Any:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def backwards(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: backwards(item) for key, item in reversed(value.items())}
    return [backwards(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_canonical_json_is_the_same_for_every_spelling(value: Any) -> None:
    plain = json.dumps(value, ensure_ascii=True).encode()
    other = json.dumps(backwards(value), ensure_ascii=False, indent=1).encode()
    assert canonical(plain) == canonical(other) == canonical(canonical(plain))
    assert exact(canonical(plain)) == exact(plain)


@given(VALUES, VALUES)
def test_canonical_json_is_different_for_different_values(one: Any, two: Any) -> None:
    same = json.dumps(backwards(one), sort_keys=True) == json.dumps(backwards(two), sort_keys=True)
    spelled = [canonical(json.dumps(value).encode()) for value in (one, two)]
    if spelled[0] == spelled[1]:
        assert one == two
    elif same:
        pytest.fail("one value, two spellings")


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"nan", b"Infinity", b"'a'", b'"\xff"', b'"\\ud800"', b"1 2", b"\xef\xbb\xbf1"),
        *(b"1e99999999999999999999", b"1e-99999999999999999999", b"1" * 4301, b"1." + b"0" * 5000),
        *(b"[" * 100_000, b"[" * 3000 + b"]" * 3000, b'{"a":' * 3000 + b"1" + b"}" * 3000),
        *(b'{"a":1,"a":1}', b'{"a":1,"\\u0061":1}', b'[{"x":{"b":1,"b":2}}]', b'{"a:":1,"a:":2}'),
    ],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_what_has_no_one_value_has_no_digest(text: bytes) -> None:
    with pytest.raises(ParseError):
        canonical(text)


@given(st.binary(max_size=50) | st.text('{}[],:"\\0123eE.-+ntfu ', max_size=50).map(str.encode))
def test_only_peer_errors_come_out_of_hostile_json(text: bytes) -> None:
    try:
        spelled = canonical(text)
    except PeerError:
        return
    assert canonical(spelled) == spelled


def test_a_huge_exponent_is_never_written_out() -> None:
    assert len(canonical(b"1e308")) == 309
    assert len(canonical(b"1e-999999999999")) < 20
    with pytest.raises(ParseError):
        canonical(b"1e4299")
    with pytest.raises(FrameTooLarge):
        canonical(b"[%b]" % b",".join([b"1e300"] * 5000))


@pytest.mark.parametrize(
    "spellings",
    [
        ("0.5", "5e-1", "0.500000000000000000", "0.05E1", "50e-2"),
        ("0.00001", "1e-5", "0.000010000000000000000"),
        ("1", "1.0", "1e0", "10e-1", "1.00000000000000000000"),
        ("1e30", "1" + "0" * 30, "1" + "0" * 30 + ".0"),
        ("0", "-0", "-0.0", "0e5", "0.00000000000000000000"),
        ("123456789012345.5", "1234567890123455e-1"),
        ("1e-310", "10e-311", "0." + "0" * 309 + "1"),
    ],
)
def test_a_number_stands_by_its_value_however_it_is_spelled(spellings: tuple[str, ...]) -> None:
    assert len({canonical(text.encode()) for text in spellings}) == 1


def test_numbers_that_are_one_double_stay_apart() -> None:
    texts = ("0.1", "0.1000000000000000055", "1e-400", "2e-400", "0", "9007199254740993.0", "9007199254740992.0")
    assert len({canonical(text.encode()) for text in texts}) == len(texts)
