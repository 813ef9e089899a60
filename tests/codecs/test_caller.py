"""Callers: keys that no two share, and what workers tell each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.caller import (
    ANONYMOUS,
    ANYBODY,
    MAX_CALLER,
    Caller,
    caller_named,
    caller_of_key,
    read_caller,
    write_caller,
)

texts = st.text(alphabet="ab|%27C\n é", max_size=6)
parts = st.tuples(texts, texts, texts, texts)


def caller_with(given: tuple[str, str, str, str]) -> Caller:
    principal, tenant, issuer, client_id = given
    return Caller(principal=principal, tenant=tenant, issuer=issuer, client_id=client_id)


@given(parts, parts)
def test_two_callers_never_share_a_key(one: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> None:
    assert (caller_with(one).key == caller_with(other).key) == (one == other)


@given(parts)
def test_a_key_leads_back_to_its_caller(given: tuple[str, str, str, str]) -> None:
    found = caller_of_key(caller_with(given).key)
    assert (found.principal, found.tenant, found.issuer, found.client_id) == given
    assert not found.scopes


def test_a_static_token_has_its_name_for_a_key() -> None:
    assert Caller(principal="alice").key == caller_named("alice").key == "alice"
    assert ANONYMOUS.key == ANYBODY
    assert ANONYMOUS.is_anonymous


def test_a_caller_of_an_issuer_is_never_anonymous() -> None:
    assert not Caller(principal=ANYBODY, issuer="https://a.example").is_anonymous


def test_a_renewed_token_has_the_same_key() -> None:
    old = Caller(principal="a", issuer="i", scopes=["x"], expires=1.0)
    new = Caller(principal="a", issuer="i", scopes=["y"], claims={"jti": "2"}, expires=2.0)
    assert old.key == new.key


@given(parts, st.sets(texts), st.dictionaries(texts, st.one_of(st.none(), texts, st.integers(-9, 9))))
def test_what_a_worker_tells_another_is_the_same_caller(
    given: tuple[str, str, str, str], scopes: set[str], claims: dict[str, object]
) -> None:
    principal, tenant, issuer, client_id = given
    caller = Caller(
        principal=principal,
        tenant=tenant,
        issuer=issuer,
        client_id=client_id,
        scopes=scopes,
        claims=claims,
        expires=12.5,
    )
    read = read_caller(write_caller(caller))
    assert (read.key, set(read.scopes), read.expires) == (caller.key, scopes, 12.5)
    assert dict(read.claims) == claims


@pytest.mark.parametrize("written", [b"", b"e30=", b"!!!", b"W10=", b"A" * (2 * MAX_CALLER)])
def test_what_is_no_caller_is_refused(written: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_caller(written)


def test_claims_are_not_printed() -> None:
    assert "canary" not in repr(Caller(principal="a", claims={"secret": "canary"}))
