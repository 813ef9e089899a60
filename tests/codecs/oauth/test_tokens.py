"""Tokens: what is kept of an answer, and what a refusal may say."""

import msgspec
import pytest

from callboard.codecs.oauth.tokens import (
    EARLY,
    MAX_LIFE,
    TokenAnswer,
    TokenRefused,
    Tokens,
    read_answer,
    read_tokens,
    scheme_of,
    write_form,
)
from callboard.errors import FetchFailed, NotAuthorized

GIVEN = TokenAnswer(access_token="t", token_type="bearer")  # noqa: S106  # made up


def kept(answer: TokenAnswer, before: Tokens | None = None) -> Tokens:
    return read_tokens(
        answer,
        now=1000.0,
        issuer="https://as",
        client_id="me",
        resource="https://mcp",
        asked=("a", "b"),
        proof_key=None,
        before=before,
    )


@pytest.mark.parametrize(
    ("life", "expires_at", "renew_at"),
    [
        (None, None, None),
        (0, None, None),
        (-5, None, None),
        (3600, 4600.0, 4600.0 - EARLY),
        (10, 1010.0, 1009.0),
        (1e300, 1000.0 + MAX_LIFE, 1000.0 + MAX_LIFE - EARLY),
    ],
)
def test_a_token_is_renewed_a_little_before_it_ends(
    life: float | None, expires_at: float | None, renew_at: float | None
) -> None:
    tokens = kept(msgspec.structs.replace(GIVEN, expires_in=life))
    assert (tokens.expires_at, tokens.renew_at) == (expires_at, renew_at)
    if expires_at is not None and renew_at is not None:
        assert tokens.is_fresh(renew_at - 0.1)
        assert not tokens.is_fresh(renew_at)
        assert not tokens.is_over(expires_at - 0.1)
        assert tokens.is_over(expires_at)
    else:
        assert tokens.is_fresh(1e12)
        assert not tokens.is_over(1e12)


def test_what_is_not_said_anew_goes_on() -> None:
    first = kept(msgspec.structs.replace(GIVEN, refresh_token="r1", scope="a"))  # noqa: S106  # made up
    assert (first.granted, first.refresh_token) == (("a",), "r1")
    second = kept(GIVEN, before=first)
    assert (second.granted, second.refresh_token) == (("a",), "r1")
    third = kept(msgspec.structs.replace(GIVEN, refresh_token="r2", scope="a b"), before=first)  # noqa: S106
    assert (third.granted, third.refresh_token) == (("a", "b"), "r2")
    assert kept(GIVEN).granted == ("a", "b")


@pytest.mark.parametrize(("said", "scheme"), [("Bearer", "Bearer"), ("bearer", "Bearer"), ("DPOP", "DPoP")])
def test_a_token_is_shown_as_its_type_wants_it(said: str, scheme: str) -> None:
    assert scheme_of(TokenAnswer(access_token="t", token_type=said)) == scheme  # noqa: S106  # made up


def test_what_is_kept_can_be_written_and_read_and_shows_no_secret() -> None:
    tokens = kept(TokenAnswer(access_token="t0k3n", token_type="Bearer", refresh_token="r3fr3sh"))  # noqa: S106
    assert msgspec.json.decode(msgspec.json.encode(tokens), type=Tokens) == tokens
    for secret in ("t0k3n", "r3fr3sh"):
        assert secret not in repr(tokens)
        assert secret not in repr(TokenAnswer(access_token=secret, token_type="Bearer"))  # noqa: S106  # made up


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": "invalid_grant"}', "the token endpoint returned an error: invalid_grant"),
        (
            b'{"error": "invalid_grant", "error_description": "it is old"}',
            "returned an error: invalid_grant (it is old)",
        ),
        (b'{"error": "invalid_grant", "error_description": "the-code is old"}', "returned an error: invalid_grant"),
        (b'{"error": "the-code is old"}', "returned an error: (name not shown)"),
        (b'{"error": "the-code"}', "returned an error: (name not shown)"),
        (b'{"error": "old_the-code_old"}', "returned an error: (name not shown)"),
        (b'{"error": "x", "error_description": "line\\nbreak"}', "returned an error: x"),
        (b'{"error": "x", "error_description": "' + b"y" * 500 + b'"}', "returned an error: x"),
        (b"<h1>500</h1>", "the token endpoint returned HTTP 400"),
    ],
)
def test_a_refusal_says_why_and_nothing_that_was_secret(body: bytes, said: str) -> None:
    with pytest.raises(NotAuthorized) as caught:
        read_answer(400, body, ["the-code", ""])
    assert str(caught.value).endswith(said)


def test_a_refusal_has_its_word_for_it() -> None:
    with pytest.raises(TokenRefused) as caught:
        read_answer(401, b'{"error": "invalid_client"}', [])
    assert caught.value.error == "invalid_client"


@pytest.mark.parametrize("status", [201, 204, 302, 500])
def test_only_200_is_an_answer(status: int) -> None:
    with pytest.raises(FetchFailed):
        read_answer(status, b"", [])


def test_a_form_is_encoded() -> None:
    assert write_form({"a": "b c&d", "e": "é"}) == b"a=b+c%26d&e=%C3%A9"


@pytest.mark.parametrize("said", ["3600", "3600.0", '"3600"', '" 3600 "', '"3.6e3"'])
def test_a_life_that_is_written_as_text_is_a_number(said: str) -> None:
    body = f'{{"access_token": "t", "token_type": "Bearer", "expires_in": {said}}}'
    assert kept(read_answer(200, body.encode(), [])).expires_at == 4600.0


@pytest.mark.parametrize("said", ['""', '"soon"', '"nan"', '"-5"', "-5", "true", "[]", "{}", "null"])
def test_a_life_that_nobody_understands_is_one_that_nobody_knows_and_the_token_is_good(said: str) -> None:
    body = f'{{"access_token": "t", "token_type": "Bearer", "expires_in": {said}}}'
    tokens = kept(read_answer(200, body.encode(), []))
    assert tokens.access_token == "t"  # noqa: S105  # made up
    assert tokens.expires_at is tokens.renew_at is None


def test_a_life_without_end_is_a_long_one() -> None:
    body = b'{"access_token": "t", "token_type": "Bearer", "expires_in": "inf"}'
    assert kept(read_answer(200, body, [])).expires_at == 1000.0 + MAX_LIFE
