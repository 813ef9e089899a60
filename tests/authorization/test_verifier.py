"""Which tokens are good, whose they are, and what a good one costs the second time."""

import hashlib
from typing import Any

import pytest
import trio
from joserfc.jwk import OctKey
from joserfc.jws import JWSRegistry
from trio.testing import MockClock

from callboard.authorization.keys import KeySource
from callboard.codecs.oauth.issuer import IssuerSettings
from callboard.codecs.oauth.jwks import IssuerKeys
from callboard.codecs.oauth.signed import thumbprint
from callboard.codecs.oauth.token_cache import KNOWN_FOR, TokenCache
from callboard.errors import BadToken
from tests.authorization.authority import EC, ED, ISSUER, RSA, STRANGER, Authority, bearer, open_gate, public, sign
from tests.oauth.house import Said

SECRET = "a secret that is shared with the issuer"  # noqa: S105  # of a test


async def test_a_good_token_says_who_calls(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        caller = await gate.verifier.verify(bearer(gate.token(org="acme")))
        assert (caller.principal, caller.issuer, caller.client_id) == ("alice", ISSUER, "app")
        assert caller.scopes == {"read", "write"}
        assert caller.claims["org"] == "acme"
        assert caller.expires == gate.verifier.clock() + 3600


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS256"), (EC, "ES256"), (ED, "Ed25519")])
async def test_keys_of_each_kind_are_understood(key: Any, algorithm: str, autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        await gate.verifier.verify(bearer(gate.token(key, algorithm)))


BAD: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://login.example.com/"},
    "no issuer": {"iss": None},
    "a list of issuers": {"iss": [ISSUER]},
    "another audience": {"aud": "http://127.0.0.1:9000/other"},
    "an audience with a slash": {"aud": "http://127.0.0.1:9000/mcp/"},
    "no audience": {"aud": None},
    "an empty audience": {"aud": []},
    "audiences of other kinds": {"aud": [1, None, {"a": 1}]},
    "no end": {"exp": None},
    "an end that is a text": {"exp": "1900003600"},
    "an end that is true": {"exp": True},
    "an end that is a list": {"exp": [1900003600]},
    "an end beyond all time": {"exp": 10**300},
    "an end before all time": {"exp": -1},
    "not yet": {"nbf": 1_900_000_300},
    "issued later": {"iat": 1_900_000_300},
    "nobody": {"sub": None, "client_id": None},
    "an empty name": {"sub": "", "client_id": None},
    "a name that is a number": {"sub": 7},
    "a name with a line end": {"sub": "alice\nbob"},
    "a name too long": {"sub": "a" * 513},
    "an ID token of Keycloak": {"typ": "ID"},
    "an ID token of Cognito": {"token_use": "id"},
    "an ID token": {"at_hash": "x"},
    "an unknown binding": {"cnf": {"kid": "x"}},
    "an empty binding": {"cnf": {}},
    "a binding that is a text": {"cnf": "x"},
}


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
async def test_a_token_with_a_wrong_claim_is_refused(changes: dict[str, Any], autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        with pytest.raises(BadToken) as refused:
            await gate.verifier.verify(bearer(gate.token(**changes)))
        assert refused.value.description == "the token is invalid"
        assert refused.value.reason


HEADERS: dict[str, dict[str, Any]] = {
    "an ID token": {"typ": "id_token"},
    "a proof": {"typ": "dpop+jwt"},
    "a logout token": {"typ": "application/logout+jwt"},
    "a critical header": {"crit": ["exp"]},
    "a key that is no text": {"kid": 3},
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
async def test_a_token_with_a_wrong_header_is_refused(header: dict[str, Any], autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        good = gate.token()
        await gate.verifier.verify(bearer(good))
        head = thumbprint(_json({"alg": "RS256", "kid": "rsa", "typ": "at+jwt"} | header))
        body = good.split(".")[1]
        signature = thumbprint(_signature(f"{head}.{body}"))
        with pytest.raises(BadToken):
            await gate.verifier.verify(bearer(f"{head}.{body}.{signature}"))
        same = thumbprint(_json({"alg": "RS256", "kid": "rsa", "typ": "JWT"}))  # and it is by the header alone
        await gate.verifier.verify(bearer(f"{same}.{body}.{thumbprint(_signature(f'{same}.{body}'))}"))


async def test_an_expired_token_says_so_and_its_leeway_is_a_minute(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = gate.token()
        await trio.sleep(3600 + 59)
        await gate.verifier.verify(bearer(token))
        await trio.sleep(2)
        assert gate.verifier.known(bearer(token).token) is None
        with pytest.raises(BadToken) as refused:
            await gate.verifier.verify(bearer(token))
        assert refused.value.description == "the token has expired"


async def test_only_type_at_jwt_where_that_is_wanted(autojump_clock: MockClock) -> None:
    async with open_gate(typ="at+jwt") as gate:
        claims = gate.authority.claims(gate.verifier.clock())
        await gate.verifier.verify(bearer(sign(claims, typ="application/AT+JWT")))
        for other in ("JWT", None):
            with pytest.raises(BadToken):
                await gate.verifier.verify(bearer(sign(claims, typ=other or "")))


@pytest.mark.parametrize(
    ("settings", "claims"),
    [
        ({"audiences": ("api://tools",)}, {"aud": ["x", "api://tools"]}),
        ({"audiences": ("6f3b-guid",)}, {"aud": "6f3b-guid"}),
        ({"audiences": (), "client_ids": ("app",)}, {"aud": None}),
        ({"audiences": (), "client_ids": ("app",)}, {"aud": None, "client_id": None, "azp": "app"}),
    ],
)
async def test_an_audience_need_not_be_the_resource(
    settings: dict[str, Any], claims: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with open_gate(**settings) as gate:
        await gate.verifier.verify(bearer(gate.token(**claims)))
        with pytest.raises(BadToken):
            await gate.verifier.verify(bearer(gate.token(**{**claims, "aud": "other", "client_id": "other"})))


@pytest.mark.parametrize(
    ("settings", "claims", "principal", "tenant"),
    [
        ({}, {"sub": None}, "app", ""),
        ({"principal": ("email",)}, {"email": "a@example.com"}, "a@example.com", ""),
        ({"principal": ("tid", "oid")}, {"tid": "a/b", "oid": "c"}, "a%2Fb/c", ""),
        ({"tenant": "claim:org"}, {"org": "acme"}, "alice", "acme"),
        ({"tenant": "issuer"}, {}, "alice", ISSUER),
        ({"tenant": "acme"}, {}, "alice", "acme"),
    ],
)
async def test_claims_name_the_caller_and_its_tenant(
    settings: dict[str, Any], claims: dict[str, Any], principal: str, tenant: str, autojump_clock: MockClock
) -> None:
    async with open_gate(**settings) as gate:
        caller = await gate.verifier.verify(bearer(gate.token(**claims)))
        assert (caller.principal, caller.tenant) == (principal, tenant)


@pytest.mark.parametrize("org", [None, "", ["acme"], {"name": "acme"}])
async def test_a_token_without_the_claim_of_its_tenant_is_refused(org: object, autojump_clock: MockClock) -> None:
    async with open_gate(tenant="claim:org") as gate:
        with pytest.raises(BadToken):
            await gate.verifier.verify(bearer(gate.token(org=org)))


async def test_required_claims_are_required(autojump_clock: MockClock) -> None:
    async with open_gate(required_claims=("groups",)) as gate:
        await gate.verifier.verify(bearer(gate.token(groups=["a"])))
        absent: list[dict[str, Any]] = [{}, {"groups": []}, {"groups": ""}]
        for without in absent:
            with pytest.raises(BadToken):
                await gate.verifier.verify(bearer(gate.token(**without)))


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a b"}, {"a", "b"}),
        ({"scope": None, "scp": ["a", "b"]}, {"a", "b"}),
        ({"scope": None, "scp": "a b"}, {"a", "b"}),
        ({"scope": ["a"], "scp": "b"}, {"a", "b"}),
        ({"scope": None}, set()),
        ({"scope": 7, "scp": {"a": 1}}, set()),
        ({"scope": 'a "b\\ c'}, {"a", "c"}),
        ({"scope": ["a b", 3, None]}, set()),
    ],
)
async def test_scopes_are_read_as_issuers_write_them(
    claims: dict[str, Any], scopes: set[str], autojump_clock: MockClock
) -> None:
    async with open_gate() as gate:
        assert (await gate.verifier.verify(bearer(gate.token(**claims)))).scopes == scopes


async def test_a_shared_secret_signs_where_there_is_one(autojump_clock: MockClock) -> None:
    async with open_gate(secret=SECRET) as gate:
        claims = gate.authority.claims(gate.verifier.clock())
        await gate.verifier.verify(bearer(_shared(claims, SECRET)))
        for bad in (_shared(claims, "another secret, long enough to be one"), gate.token()):
            with pytest.raises(BadToken):
                await gate.verifier.verify(bearer(bad))
        assert gate.authority.house.asked == []


async def test_the_keys_of_one_issuer_are_no_keys_of_another(autojump_clock: MockClock) -> None:
    other = "https://other.example.com"
    mine = IssuerSettings(issuer=other, jwks={"keys": [public(EC)]}, tenant="issuer")
    async with open_gate(Authority(keys=[public(RSA)]), more=(mine,)) as gate:
        assert (await gate.verifier.verify(bearer(gate.token()))).tenant == ""
        assert (await gate.verifier.verify(bearer(gate.token(EC, "ES256", iss=other)))).tenant == other
        for key, algorithm, issuer in ((RSA, "RS256", other), (EC, "ES256", ISSUER)):
            with pytest.raises(BadToken):
                await gate.verifier.verify(bearer(gate.token(key, algorithm, iss=issuer)))


# What a good token costs.


async def test_a_good_token_costs_one_signature_check(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        presented = bearer(gate.token())
        assert gate.verifier.known(presented.token) is None
        caller = await gate.verifier.verify(presented)
        for _ in range(100):
            assert gate.verifier.known(presented.token) is caller
            assert await gate.verifier.verify(presented) is caller
        assert gate.verifier.checked == 1
        await trio.sleep(KNOWN_FOR)
        assert gate.verifier.known(presented.token) is None
        await gate.verifier.verify(presented)
        assert gate.verifier.checked == 2


async def test_a_token_is_not_known_beyond_its_end(autojump_clock: MockClock) -> None:
    async with open_gate(leeway=0) as gate:
        presented = bearer(gate.token(exp=gate.verifier.clock() + 10))
        await gate.verifier.verify(presented)
        await trio.sleep(9.5)
        assert gate.verifier.known(presented.token) is not None
        await trio.sleep(0.5)
        assert gate.verifier.known(presented.token) is None


async def test_known_tokens_are_bounded_and_strangers_drive_none_out(autojump_clock: MockClock) -> None:
    async with open_gate(verifier={"cache": TokenCache(b"key", most=3, most_bytes=10_000)}) as gate:
        good = [gate.token(jti=str(number)) for number in range(5)]
        for token in good:
            await gate.verifier.verify(bearer(token))
        assert len(gate.verifier.cache) == 3
        assert [gate.verifier.known(bearer(token).token) is not None for token in good] == [
            False,
            False,
            True,
            True,
            True,
        ]
        for number in range(10):
            with pytest.raises(BadToken):
                await gate.verifier.verify(bearer(gate.token(STRANGER, jti=str(number))))
        assert [gate.verifier.known(bearer(token).token) is not None for token in good] == [
            False,
            False,
            True,
            True,
            True,
        ]
        await gate.verifier.verify(bearer(gate.token(more="x" * 6500)))  # 9 KiB of 10
        assert len(gate.verifier.cache) == 2


async def test_nobody_changes_the_claims_that_others_go_by(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        caller = await gate.verifier.verify(bearer(gate.token()))
        with pytest.raises(TypeError):
            caller.claims["sub"] = "bob"  # type: ignore[index]


async def test_a_caller_may_be_forgotten(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        alice, bob = bearer(gate.token()), bearer(gate.token(sub="bob"))
        key = (await gate.verifier.verify(alice)).key
        await gate.verifier.verify(bob)
        assert gate.verifier.forget(key) == 1
        assert gate.verifier.known(alice.token) is None
        assert gate.verifier.known(bob.token) is not None
        gate.verifier.clear()
        assert gate.verifier.known(bob.token) is None


async def test_a_token_bound_to_a_certificate_needs_it(autojump_clock: MockClock) -> None:
    mine, other = b"a certificate", b"another"
    async with open_gate() as gate:
        token = gate.token(cnf={"x5t#S256": thumbprint(hashlib.sha256(mine).digest())})
        await gate.verifier.verify(bearer(token, certificate=mine))
        assert gate.verifier.known(bearer(token, certificate=mine).token) is None
        for shown in (other, None, b""):
            with pytest.raises(BadToken) as refused:
                await gate.verifier.verify(bearer(token, certificate=shown))
            assert refused.value.scheme == "Bearer"


# What changes while it runs.


async def test_issuers_are_replaced_and_those_that_stay_keep_their_keys(autojump_clock: MockClock) -> None:
    other = IssuerSettings(issuer="https://other.example.com", jwks={"keys": [public(EC)]})
    async with open_gate(more=(other,)) as gate:
        stays = bearer(gate.token())
        goes = bearer(gate.token(EC, "ES256", iss=other.issuer))
        await gate.verifier.verify(stays)
        await gate.verifier.verify(goes)
        await gate.verifier.use([IssuerSettings(issuer=ISSUER)])
        assert gate.verifier.known(stays.token) is not None
        assert gate.verifier.known(goes.token) is None
        with pytest.raises(BadToken):
            await gate.verifier.verify(goes)
        assert gate.authority.visits("/jwks") == 1
        assert [child.name for child in gate.root.tree().children[0].children] == ["issuer-1"]


async def test_a_changed_issuer_forgets_what_it_believed(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = bearer(gate.token())
        await gate.verifier.verify(token)
        await gate.verifier.use([IssuerSettings(issuer=ISSUER, audiences=("other",))])
        assert gate.verifier.known(token.token) is None
        with pytest.raises(BadToken):
            await gate.verifier.verify(token)


async def test_what_was_believed_by_old_settings_is_not_kept(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_gate() as gate:
        found = KeySource.keys

        async def keys(self: KeySource) -> tuple[IssuerKeys, bool]:
            keys = await found(self)
            await gate.verifier.use([IssuerSettings(issuer=ISSUER, audiences=("other",))])
            return keys

        monkeypatch.setattr(KeySource, "keys", keys)
        token = bearer(gate.token())
        await gate.verifier.verify(token)  # which was on its way
        assert gate.verifier.known(token.token) is None


async def test_two_issuers_of_one_name_change_nothing(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        with pytest.raises(ValueError, match="one name"):
            await gate.verifier.use([IssuerSettings(issuer="a", secret=SECRET), IssuerSettings(issuer="a")])
        await gate.verifier.verify(bearer(gate.token()))


async def test_no_repr_and_no_refusal_has_anything_of_a_token_in_it(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        token = gate.token(sub="canary-sub", more="canary-more")
        caller = await gate.verifier.verify(bearer(token))
        shown = [repr(gate.verifier), repr(bearer(token)), str(gate.root.tree())]
        for bad in (token[:-8] + "AAAAAAAA", gate.token(STRANGER, sub="canary-sub"), gate.token(aud="canary-aud")):
            with pytest.raises(BadToken) as refused:
                await gate.verifier.verify(bearer(bad))
            shown += [str(refused.value), refused.value.reason]
        assert "canary-more" not in repr(caller)
        assert not [text for text in shown if "canary" in text or token.split(".")[2][:20] in text]


def _json(value: object) -> bytes:
    return Said.json(value).body


def _signature(text: str) -> bytes:
    return JWSRegistry.algorithms["RS256"].sign(text.encode(), RSA)


def _shared(claims: dict[str, Any], secret: str) -> str:
    return sign(claims, OctKey.import_key(secret), "HS256", kid=None)
