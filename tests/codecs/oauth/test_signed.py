"""Signed statements of strangers: any change to one is noticed, and none costs more than it is worth."""

import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OctKey, RSAKey
from joserfc.jws import JWSRegistry

from callboard.codecs.oauth.access_token import caller_of, check_claims, check_header, check_signature
from callboard.codecs.oauth.issuer import IssuerSettings
from callboard.codecs.oauth.jwks import IssuerKeys
from callboard.codecs.oauth.signed import (
    MAX_NESTING,
    MAX_TOKEN,
    NotSigned,
    SignedStatement,
    fits,
    read_object,
    read_signed,
)
from callboard.errors import BadToken, FetchFailed

NOW = 1_900_000_000.0
RESOURCE = "https://tools.example.com/mcp"
KEY = RSAKey.generate_key(2048, {"kid": "rsa"})
OTHER = ECKey.generate_key("P-256", {"kid": "ec"})
KEYS = IssuerKeys.read(json.dumps({"keys": [k.as_dict(private=False) for k in (KEY, OTHER)]}).encode())
ISSUER = IssuerSettings(issuer="https://login.example.com")
CLAIMS = {"iss": ISSUER.issuer, "aud": RESOURCE, "sub": "alice", "exp": NOW + 60, "groups": ["a", "ä"]}


def spelled(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(header: bytes, claims: bytes, key: Any = KEY, algorithm: str = "RS256") -> str:
    """Whatever these bytes are, they are signed."""
    text = f"{spelled(header)}.{spelled(claims)}"
    return f"{text}.{spelled(JWSRegistry.algorithms[algorithm].sign(text.encode(), key))}"


def check(text: str, issuer: IssuerSettings = ISSUER) -> SignedStatement:
    """As the verifier does it, without any waiting. Raises `BadToken`."""
    try:
        token = read_signed(text)
    except NotSigned as error:
        raise BadToken(reason=str(error)) from None
    check_header(token, issuer)
    check_claims(token.claims, issuer, RESOURCE, now=NOW)
    if not check_signature(token, KEYS):
        raise BadToken(reason="by an unknown key")
    caller_of(token.claims, issuer)
    return token


HEADER = b'{"alg":"RS256","kid":"rsa"}'
GOOD = signed(HEADER, json.dumps(CLAIMS).encode())


def test_a_good_token_is_good() -> None:
    assert check(GOOD).claims == CLAIMS


@given(at=st.integers(0, len(GOOD) - 1), bit=st.integers(0, 6))
def test_any_flipped_bit_makes_it_bad(at: int, bit: int) -> None:
    flipped = chr(ord(GOOD[at]) ^ (1 << bit))
    with pytest.raises(BadToken):
        check(GOOD[:at] + flipped + GOOD[at + 1 :])


def test_every_flipped_bit_of_its_last_letters_makes_it_bad() -> None:
    """Some bits there say nothing, and a lenient reader would not see them change."""
    ends = [len(part) + sum(len(p) + 1 for p in GOOD.split(".")[:n]) - 1 for n, part in enumerate(GOOD.split("."))]
    for at in ends:
        for bit in range(7):
            with pytest.raises(BadToken):
                check(GOOD[:at] + chr(ord(GOOD[at]) ^ (1 << bit)) + GOOD[at + 1 :])


@given(st.data())
def test_any_cut_or_added_letters_make_it_bad(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(GOOD)))
    added = data.draw(st.text(min_size=1, max_size=5))
    cut = data.draw(st.integers(0, len(GOOD) - 1))
    for changed in (GOOD[:at] + added + GOOD[at:], GOOD[:cut]):
        with pytest.raises(BadToken):
            check(changed)


@given(st.text(max_size=200) | st.lists(st.binary(max_size=60).map(spelled), min_size=1, max_size=5).map(".".join))
def test_garbage_is_bad_and_nothing_else(text: str) -> None:
    with pytest.raises(NotSigned):
        read_signed(text)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_names = ("iss", "aud", "sub", "exp", "nbf", "iat", "client_id", "scope", "scp", "cnf", "typ", "azp", "token_use")


@given(st.dictionaries(st.sampled_from(_names), _json, max_size=3))
def test_claims_of_any_shape_are_good_or_bad(changes: dict[str, Any]) -> None:
    claims = json.dumps(CLAIMS | changes).encode("utf-8", "surrogatepass")
    try:
        token = check(signed(b'{"alg":"ES256","kid":"ec"}', claims, OTHER, "ES256"))
    except BadToken as error:
        assert error.description in ("the token is invalid", "the token has expired")  # noqa: PT017
    else:
        assert token.claims["iss"] == ISSUER.issuer
        assert not isinstance(token.claims["exp"], bool)


@given(st.dictionaries(st.sampled_from(("alg", "kid", "typ", "crit", "jwk", "jku", "x5u", "x5c", "b64", "cty")), _json))
def test_headers_of_any_shape_are_good_or_bad(changes: dict[str, Any]) -> None:
    header = json.dumps({"alg": "ES256", "kid": "ec"} | changes).encode("utf-8", "surrogatepass")
    try:
        token = check(signed(header, json.dumps(CLAIMS).encode(), OTHER, "ES256"))
    except BadToken:
        return
    assert token.algorithm == "ES256"


@given(st.lists(_json | st.dictionaries(st.sampled_from(("kty", "crv", "x", "y", "n", "e", "alg", "kid")), _json)))
def test_key_sets_of_any_shape_are_read_or_refused(entries: list[Any]) -> None:
    body = json.dumps({"keys": entries}).encode("utf-8", "surrogatepass")
    with pytest.raises(FetchFailed):
        IssuerKeys.read(body)


@given(
    st.sampled_from(["n", "e", "x", "y", "crv"]),
    st.text(max_size=40) | st.binary(max_size=300).map(spelled),
)
def test_keys_with_a_part_of_any_shape_are_left_out_or_work(name: str, value: str) -> None:
    entries = [{**key.as_dict(private=False), name: value} for key in (KEY, OTHER)]
    spare = ECKey.generate_key("P-256", {"kid": "spare"}).as_dict(private=False)
    keys = IssuerKeys.read(json.dumps({"keys": [*entries, spare]}).encode("utf-8", "surrogatepass"))
    token = read_signed(GOOD)
    if name in ("n", "e") and value != KEY.as_dict(private=False)[name]:
        assert not any(token.is_by(each.key) for each in keys.named(token))


def test_no_algorithm_is_no_signature() -> None:
    body = spelled(json.dumps(CLAIMS).encode())
    for name in ("none", "None", "NONE", "nOnE", "", "RS1", "HS256", "A128KW"):
        head = spelled(json.dumps({"alg": name}).encode())
        for signature in ("", "AA", GOOD.rpartition(".")[2]):
            with pytest.raises(BadToken):
                check(f"{head}.{body}.{signature}")
    with pytest.raises(BadToken):
        check(f"{spelled(b'{}')}.{body}.AA")


def test_a_public_key_is_no_shared_secret() -> None:
    """The old swap: HS256, with the public key, which everybody has, as the secret."""
    known = [KEY.as_pem(private=False), json.dumps(KEY.as_dict(private=False)).encode(), b"rsa"]
    for secret in known:
        text = f"{spelled(HEADER.replace(b'RS', b'HS'))}.{spelled(json.dumps(CLAIMS).encode())}"
        forged = f"{text}.{spelled(hmac.digest(secret, text.encode(), 'sha256'))}"
        for issuer in (ISSUER, IssuerSettings(issuer=ISSUER.issuer, algorithms=("RS256", "ES256"))):
            with pytest.raises(BadToken):
                check(forged, issuer)


def test_no_key_is_used_for_an_algorithm_of_another_kind() -> None:
    token = read_signed(signed(b'{"alg":"HS256","kid":"rsa"}', json.dumps(CLAIMS).encode(), _secret(), "HS256"))
    assert KEYS.named(token) == ()
    assert not token.is_by(KEY)
    assert not token.is_by(OTHER)


def test_a_key_fits_only_algorithms_of_its_kind_and_curve() -> None:
    larger = ECKey.generate_key("P-384")
    for key, fitting in ((KEY, {"RS256", "PS512"}), (OTHER, {"ES256"}), (larger, {"ES384"}), (_secret(), {"HS256"})):
        names = ("RS256", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "none")
        assert {name for name in names if fits(key, name)} == fitting


def test_an_algorithm_that_the_issuer_does_not_use_is_refused() -> None:
    only = IssuerSettings(issuer=ISSUER.issuer, algorithms=("ES256",))
    check(signed(b'{"alg":"ES256","kid":"ec"}', json.dumps(CLAIMS).encode(), OTHER, "ES256"), only)
    with pytest.raises(BadToken):
        check(GOOD, only)
    unusual = signed(b'{"alg":"RS512","kid":"rsa"}', json.dumps(CLAIMS).encode(), KEY, "RS512")
    with pytest.raises(BadToken):
        check(unusual)
    check(unusual, IssuerSettings(issuer=ISSUER.issuer, algorithms=("RS512",)))


@pytest.mark.parametrize(
    "kid", ["../../dev/null", "rsa' OR 1=1", "", "ec", "https://evil.example.com/jwks", "rsa\x00", "k" * 9000]
)
def test_the_name_of_a_key_is_a_name_and_nothing_else(kid: str) -> None:
    with pytest.raises(BadToken):
        check(signed(json.dumps({"alg": "RS256", "kid": kid}).encode(), json.dumps(CLAIMS).encode()))


def test_a_key_that_a_token_brings_along_is_not_used() -> None:
    stranger = ECKey.generate_key("P-256")
    header = {"alg": "ES256", "jwk": stranger.as_dict(private=False), "jku": "https://evil.example.com/jwks"}
    for kid in ({}, {"kid": "ec"}, {"kid": "mine"}):
        with pytest.raises(BadToken):
            check(signed(json.dumps(header | kid).encode(), json.dumps(CLAIMS).encode(), stranger, "ES256"))


ODD = {
    "a claim twice": b'{"iss":"https://evil.example.com","iss":"https://login.example.com"}',
    "a claim twice, deep": b'{"a":{"b":1,"b":2}}',
    "not a number": b'{"exp":NaN}',
    "infinite": b'{"exp":Infinity}',
    "infinite, by its size": b'{"exp":1e999}',
    "a number of 5,000 digits": b'{"exp":' + b"9" * 5000 + b"}",
    "a list": b"[]",
    "nothing": b"",
    "null": b"null",
    "two": b"{}{}",
    "not UTF-8": b'{"a":"\xff"}',
    "half a character": b'{"a":"\\ud800"}',
    "half a character in a name": b'{"\\udfff":1}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "a mark of byte order": b'\xef\xbb\xbf{"a":1}',
    "a bomb of lists": b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "a bomb of objects": b'{"a":' * 1500 + b"1" + b"}" * 1500,
    "one level too many": b'{"a":' + b"[" * MAX_NESTING + b"]" * MAX_NESTING + b"}",
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_odd_json_is_refused_although_it_is_signed(data: bytes) -> None:
    with pytest.raises(NotSigned):
        read_object(data)
    text = signed(HEADER, data)
    with pytest.raises(NotSigned):
        read_signed(text)
    with pytest.raises(NotSigned):
        read_signed(signed(data, b"{}"))


def test_a_token_has_a_largest_length() -> None:
    claims = json.dumps(CLAIMS | {"more": "x" * 9000}).encode()
    check(signed(HEADER, claims))
    long = signed(HEADER, json.dumps(CLAIMS | {"more": "x" * MAX_TOKEN}).encode())
    with pytest.raises(BadToken) as refused:
        check(long)
    assert refused.value.reason == "too long"


def test_the_deepest_nesting_is_read() -> None:
    deep = b'{"a":' + b"[" * (MAX_NESTING - 1) + b"]" * (MAX_NESTING - 1) + b"}"
    assert read_object(deep)


def _secret() -> OctKey:
    return OctKey.import_key("a secret of more than thirty-two bytes")
