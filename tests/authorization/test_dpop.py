"""Tokens that are bound to a key: what counts as proof of it. Mostly as the draft of the conformance suite has it."""

import hashlib
import secrets
from typing import Any

import attrs
import pytest
import trio
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from trio.testing import MockClock

from callboard.codecs.oauth.dpop import NONCE_LIFE, PROOF_WINDOW, DpopProof, Nonces, SeenProofs, plain_url
from callboard.codecs.oauth.jwt import ProofKey
from callboard.codecs.oauth.presented import PresentedToken
from callboard.codecs.oauth.signed import thumbprint
from callboard.errors import BadToken, IssuerUnavailable
from tests.authorization.authority import EC, RESOURCE, START, STRANGER, Gate, bearer, open_gate, public, sign
from tests.oauth.house import Said

HOLDER = ECKey.generate_key("P-256")


def bound(gate: Gate, key: Any = HOLDER) -> str:
    return gate.token(cnf={"jkt": key.thumbprint()})


def prove(gate: Gate, token: str, key: Any = HOLDER, algorithm: str = "ES256", **changes: Any) -> str:
    """A proof, and what is wrong with it. A header's name begins with `header_`."""
    header = {"typ": "dpop+jwt", "kid": None, "jwk": _jwk(key)}
    header |= {name.removeprefix("header_"): value for name, value in changes.items() if name.startswith("header_")}
    claims: dict[str, Any] = {
        "jti": secrets.token_urlsafe(12),
        "htm": "POST",
        "htu": RESOURCE,
        "iat": int(gate.verifier.clock()),
        "ath": thumbprint(hashlib.sha256(token.encode()).digest()),
    } | {name: value for name, value in changes.items() if not name.startswith("header_")}
    claims = {name: value for name, value in claims.items() if value is not None}
    return sign(claims, key, algorithm, **header)


def _jwk(key: Any) -> dict[str, Any]:
    return {name: value for name, value in public(key).items() if name != "kid"}


def shown(token: str, proof: str | None, **more: Any) -> PresentedToken:
    return attrs.evolve(PresentedToken(token=token, scheme="dpop", proof=proof, url=RESOURCE), **more)


async def refused(gate: Gate, presented: PresentedToken) -> BadToken:
    with pytest.raises(BadToken) as caught:
        await gate.verifier.verify(presented)
    assert caught.value.scheme == "DPoP"
    return caught.value


async def test_a_bound_token_is_good_with_its_proof_which_is_looked_at_each_time(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = bound(gate)
        for _ in range(3):
            presented = shown(token, prove(gate, token))
            assert gate.verifier.known(presented.token) is None
            assert (await gate.verifier.verify(presented)).principal == "alice"
        assert gate.verifier.checked == 1  # the token itself is checked once


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(OKPKey.generate_key("Ed25519"), "Ed25519"), (RSAKey.generate_key(2048), "PS256")],
)
async def test_keys_of_other_kinds_may_prove(key: Any, algorithm: str, autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = bound(gate, key)
        await gate.verifier.verify(shown(token, prove(gate, token, key, algorithm)))


async def test_the_proof_of_our_own_client_is_good(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        key = ProofKey.make()
        token = gate.token(cnf={"jkt": ECKey.import_key(key.written()).thumbprint()})
        proof = key.prove("POST", f"{RESOURCE}?query=1", now=gate.verifier.clock(), jti="1", token=token)
        await gate.verifier.verify(shown(token, proof))


BAD: dict[str, dict[str, Any]] = {
    "no typ": {"header_typ": ""},
    "another typ": {"header_typ": "JWT"},
    "no key": {"header_jwk": None},
    "a key that is a text": {"header_jwk": "x"},
    "a private key": {"header_jwk": HOLDER.as_dict(private=True)},
    "a shared key": {"header_jwk": {"kty": "oct", "k": "c2VjcmV0"}},
    "the key of another": {"header_jwk": _jwk(EC)},
    "a curve that is none": {"header_jwk": {**_jwk(HOLDER), "crv": "P-999"}},
    "a critical header": {"header_crit": ["htm"]},
    "no jti": {"jti": None},
    "an empty jti": {"jti": ""},
    "a jti that is a number": {"jti": 7},
    "a jti too long": {"jti": "j" * 257},
    "no htm": {"htm": None},
    "another htm": {"htm": "GET"},
    "htm in lower case": {"htm": "post"},
    "no htu": {"htu": None},
    "another path": {"htu": "http://127.0.0.1:9000/other"},
    "another host": {"htu": "http://127.0.0.2:9000/mcp"},
    "another port": {"htu": "http://127.0.0.1:9001/mcp"},
    "another scheme": {"htu": "https://127.0.0.1:9000/mcp"},
    "an htu that is none": {"htu": "http://[/mcp"},
    "no iat": {"iat": None},
    "too old": {"iat": (1_900_000_000 - 303)},
    "too new": {"iat": (1_900_000_000 + 303)},
    "an iat that is a text": {"iat": "1900000000"},
    "no ath": {"ath": None},
    "the ath of another token": {"ath": thumbprint(hashlib.sha256(b"other").digest())},
    "an ath in another alphabet": {"ath": "\u00e4\u20ac"},
    "a nonce that is a number": {"nonce": 1},
}


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
async def test_a_proof_with_one_fault_is_refused(changes: dict[str, Any], autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = bound(gate)
        error = await refused(gate, shown(token, _lenient(gate, token, changes)))
        assert error.error == "invalid_dpop_proof"
        await gate.verifier.verify(shown(token, prove(gate, token)))


def _lenient(gate: Gate, token: str, changes: dict[str, Any]) -> str:
    """As `prove`, with headers that the signing library would not write."""
    good = prove(gate, token, **{name: value for name, value in changes.items() if not name.startswith("header_")})
    if not any(name.startswith("header_") for name in changes):
        return good
    header = {"alg": "ES256", "typ": "dpop+jwt", "jwk": _jwk(HOLDER)}
    header |= {name.removeprefix("header_"): value for name, value in changes.items()}
    text = f"{thumbprint(Said.json(header).body)}.{good.split('.')[1]}"
    return f"{text}.{thumbprint(JWSRegistry.algorithms['ES256'].sign(text.encode(), HOLDER))}"


async def test_a_proof_is_good_for_five_minutes_before_and_after(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = bound(gate)
        for off in (-PROOF_WINDOW, PROOF_WINDOW):
            await gate.verifier.verify(shown(token, prove(gate, token, iat=int(gate.verifier.clock() + off))))


async def test_a_proof_is_good_once_for_as_long_as_it_is_good(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = bound(gate)
        proof = prove(gate, token, iat=int(gate.verifier.clock() + PROOF_WINDOW))
        await gate.verifier.verify(shown(token, proof))
        for _ in range(6):
            assert (await refused(gate, shown(token, proof))).reason == "DPoP: used before"
            await trio.sleep(99)
        await trio.sleep(60)
        assert (await refused(gate, shown(token, proof))).reason == "DPoP: iat is not now"


@pytest.mark.parametrize(
    "proof", [None, "", "x", "a.b.c", "." * 4, "x" * 10_000], ids=["none", "empty", "x", "parts", "dots", "long"]
)
async def test_what_is_no_proof_is_refused(proof: str | None, autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        await refused(gate, shown(bound(gate), proof))


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
async def test_a_proof_by_no_key_pair_is_refused(algorithm: str, autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = bound(gate)
        await refused(gate, shown(token, _lenient(gate, token, {"header_alg": algorithm})))


async def test_a_proof_with_a_wrong_signature_is_refused(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = bound(gate)
        mine, other = prove(gate, token), prove(gate, token)
        mixed = f"{mine.rpartition('.')[0]}.{other.rpartition('.')[2]}"
        await refused(gate, shown(token, mixed))
        await gate.verifier.verify(shown(token, mine))  # what was refused is not used


async def test_a_faultless_proof_by_another_key_is_refused(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = bound(gate)
        error = await refused(gate, shown(token, prove(gate, token, EC)))
        assert error.reason == "DPoP: another key than the token's"


async def test_a_bound_token_as_bearer_is_told_to_use_dpop(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = bound(gate)
        for presented in (bearer(token), bearer(token, proof=prove(gate, token))):
            assert (await refused(gate, presented)).error == "invalid_token"
            assert gate.verifier.known(presented.token) is None


async def test_an_unbound_token_is_no_dpop_token(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = gate.token()
        await refused(gate, shown(token, prove(gate, token)))
        await gate.verifier.verify(bearer(token))


async def test_only_bound_tokens_where_that_is_wanted(autojump_clock: MockClock) -> None:
    async with open_gate(verifier={"requires_proof": True}) as gate:
        token = bound(gate)
        await gate.verifier.verify(shown(token, prove(gate, token)))
        await refused(gate, bearer(gate.token()))


async def test_a_bad_token_with_a_good_proof_is_a_bad_token(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = gate.token(STRANGER, cnf={"jkt": HOLDER.thumbprint()})
        with pytest.raises(BadToken) as caught:
            await gate.verifier.verify(shown(token, prove(gate, token)))
        assert caught.value.error == "invalid_token"


async def test_a_nonce_is_told_and_then_taken_for_two_lives(autojump_clock: MockClock) -> None:
    async with open_gate(verifier={"nonces": Nonces(b"secret")}) as gate:
        token = bound(gate)
        error = await refused(gate, shown(token, prove(gate, token)))
        assert error.error == "use_dpop_nonce"
        assert error.nonce
        await gate.verifier.verify(shown(token, prove(gate, token, nonce=error.nonce)))
        await trio.sleep(NONCE_LIFE)
        await gate.verifier.verify(shown(token, prove(gate, token, nonce=error.nonce)))
        await trio.sleep(NONCE_LIFE)
        later = await refused(gate, shown(token, prove(gate, token, nonce=error.nonce)))
        assert later.nonce not in (None, error.nonce)


async def test_when_no_more_proofs_can_be_remembered_further_ones_wait(autojump_clock: MockClock) -> None:
    async with open_gate(verifier={"proofs": SeenProofs(b"key", most=3, most_of_key=2)}) as gate:
        one, other = bound(gate), bound(gate, EC)
        proof = prove(gate, one)
        await gate.verifier.verify(shown(one, proof))
        await gate.verifier.verify(shown(one, prove(gate, one)))
        with pytest.raises(IssuerUnavailable):  # one key has its share, and others theirs
            await gate.verifier.verify(shown(one, prove(gate, one)))
        await gate.verifier.verify(shown(other, prove(gate, other, EC)))
        with pytest.raises(IssuerUnavailable):
            await gate.verifier.verify(shown(other, prove(gate, other, EC)))
        await refused(gate, shown(one, proof))  # none is forgotten
        await trio.sleep(PROOF_WINDOW + 60)
        await gate.verifier.verify(shown(one, prove(gate, one)))
        assert gate.verifier.proofs.count == 1


@pytest.mark.parametrize("issued", [START, START + 0.5, START + 59, START + 59.9])
def test_a_proof_is_remembered_for_as_long_as_it_is_good(issued: float) -> None:
    seen = SeenProofs(b"key")
    proof = DpopProof("a", "1", issued)
    assert seen.take(proof, issued)
    assert not seen.take(proof, issued + PROOF_WINDOW)
    assert seen.take(DpopProof("a", "2", issued + 1000), issued + 1000)
    assert seen.count == 1


def test_proofs_of_two_keys_may_have_one_name() -> None:
    seen = SeenProofs(b"key")
    assert seen.take(DpopProof("a", "1", 0.0), 0.0)
    assert seen.take(DpopProof("b", "1", 0.0), 0.0)
    assert not seen.take(DpopProof("b", "1", 0.0), 0.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTPS://Example.COM/mcp", "https://example.com/mcp"),
        ("https://example.com:443/mcp", "https://example.com/mcp"),
        ("http://example.com:80", "http://example.com/"),
        ("https://example.com/mcp?a=b#c", "https://example.com/mcp"),
        ("https://example.com/%7euser/%2f", "https://example.com/~user/%2F"),
        ("https://[::1]:8443/mcp", "https://[::1]:8443/mcp"),
    ],
)
def test_urls_that_are_spelled_differently_are_the_same(one: str, other: str) -> None:
    assert plain_url(one) == plain_url(other) is not None


@pytest.mark.parametrize(
    "url", ["", "mcp", "ftp://example.com/", "https://", "https://a@example.com/", "https://[", "https://a:x/"]
)
def test_what_is_no_url_is_the_same_as_nothing(url: str) -> None:
    assert plain_url(url) is None
