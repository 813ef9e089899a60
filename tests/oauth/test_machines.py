"""Machines come by their tokens without a user; and tokens are bound to keys."""

import hashlib
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from callboard.client import connect
from callboard.codecs.oauth.tokens import ID_JAG
from callboard.oauth import (
    ClientCredentials,
    EnterpriseManaged,
    FileStore,
    MemoryStore,
    OAuth,
    RegisteredClient,
    WorkloadIdentity,
)
from tests.oauth.house import Asked, House, Said, open_house
from tests.oauth.town import Town, basic, look, open_town, refused


async def test_a_client_acts_in_its_own_right_by_a_secret() -> None:
    async with open_town(Town(scope="read")) as town:
        grant = ClientCredentials(client_id="me", client_secret="hush")  # noqa: S106  # made up
        async with connect(town.url, auth=OAuth(grant=grant)) as client:
            await look(client)
        [asked] = town.giver.visits("/token")
        assert basic(asked) == ("me", "hush")
        form = {"client_id": "me", "grant_type": "client_credentials", "resource": town.url, "scope": "read"}
        assert asked.form == form
        assert town.giver.visits("/authorize") == town.giver.visits("/register") == []


@pytest.mark.parametrize(
    ("key", "algorithm"), [(ECKey.generate_key("P-256"), "ES256"), (RSAKey.generate_key(2048), "RS256")]
)
async def test_a_client_acts_in_its_own_right_by_a_key(key: Any, algorithm: str) -> None:
    async with open_town() as town:
        town.giver.changes = {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}
        pem = key.as_pem(private=True).decode()
        grant = ClientCredentials(client_id="me", private_key=pem, algorithm=algorithm)
        async with connect(town.url, auth=OAuth(grant=grant, clock=lambda: 1000.0)) as client:
            await look(client)
            town.revoked = set(town.giver.tokens)
            await look(client)
        asked, again = town.giver.visits("/token")
        assert asked.form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        claims = jwt.decode(asked.form["client_assertion"], key, algorithms=[algorithm]).claims
        assert claims["iss"] == claims["sub"] == "me"
        assert claims["aud"] == town.giver.house.url
        assert (claims["iat"], claims["exp"]) == (1000, 1060)
        assert claims["jti"] != jwt.decode(again.form["client_assertion"], key, algorithms=[algorithm]).claims["jti"]
        assert asked.header("authorization") is None


@pytest.mark.parametrize(
    ("key", "algorithm", "why"),
    [
        ("not a key", "ES256", "invalid private key"),
        (ECKey.generate_key("P-256").as_pem(private=False).decode(), "ES256", "invalid private key"),
        (ECKey.generate_key("P-256").as_pem(private=True).decode(), "RS256", "does not support RS256"),
        (ECKey.generate_key("P-256").as_pem(private=True).decode(), "none", "unsupported signature algorithm 'none'"),
        (ECKey.generate_key("P-256").as_pem(private=True).decode(), "HS256", "unsupported signature algorithm 'HS256'"),
    ],
)
async def test_a_key_that_is_none_is_named_and_not_shown(key: str, algorithm: str, why: str) -> None:
    async with open_town() as town:
        grant = ClientCredentials(client_id="me", private_key=key, algorithm=algorithm)
        said = await refused(town, OAuth(grant=grant))
        assert why in said
        assert key not in said
        assert town.giver.visits("/token") == []


async def test_a_platform_vouches_for_its_program_and_a_refusal_is_the_end() -> None:
    async with open_town() as town:
        words = ["first", "second"]
        grant = WorkloadIdentity(client=RegisteredClient(client_id="me"), assertion=lambda: words.pop(0))
        town.giver.refusals = [Said.json({"error": "invalid_grant"}, 400)]
        assert "invalid_grant" in await refused(town, OAuth(grant=grant))
        assert len(town.giver.visits("/token")) == 1
        async with connect(town.url, auth=OAuth(grant=grant)) as client:
            await look(client)
        assert [asked.form["assertion"] for asked in town.giver.visits("/token")] == ["first", "second"]
        assert {asked.form["grant_type"] for asked in town.giver.visits("/token")} == {
            "urn:ietf:params:oauth:grant-type:jwt-bearer"
        }


async def test_an_identity_provider_gives_leave_in_the_user_s_place() -> None:
    kinds = [ID_JAG, "urn:ietf:params:oauth:token-type:access_token"]

    def give(_: Asked) -> Said:
        return Said.json({"access_token": "leave", "issued_token_type": kinds.pop(0), "token_type": "N_A"})

    async def id_token() -> str:
        return "who-i-am"

    async with (
        open_town(Town(scope="read")) as town,
        open_house(House({"/token": give})) as provider,
    ):
        grant = EnterpriseManaged(
            client=RegisteredClient(client_id="me", client_secret="hush"),  # noqa: S106  # made up
            idp_token_endpoint=f"{provider.url}/token",
            idp_client_id="me-there",
            id_token=id_token,
        )
        async with connect(town.url, auth=OAuth(grant=grant)) as client:
            await look(client)
        [asked] = provider.asked
        assert asked.form == {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": ID_JAG,
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "subject_token": "who-i-am",
            "audience": town.giver.house.url,
            "resource": town.url,
            "client_id": "me-there",
            "scope": "read",
        }
        [redeemed] = town.giver.visits("/token")
        assert redeemed.form["assertion"] == "leave"
        assert basic(redeemed) == ("me", "hush")
        assert "another type of token" in await refused(town, OAuth(grant=grant))


# Tokens that are bound to a key.


class Bound:
    """A town whose tokens are bound: it looks at every proof."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.nonces: dict[str, str] = {}
        self.seen: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        town.giver.changes = {"dpop_signing_alg_values_supported": ["ES256"]}
        town.giver.token_type = "DPoP"  # noqa: S105  # a type
        self._token, self._mcp = town.giver.house.rooms["/token"], town.house.rooms["/mcp"]
        town.giver.house.rooms["/token"] = self.token
        town.house.rooms["/mcp"] = self.mcp

    def check(self, asked: Asked, url: str) -> dict[str, Any]:
        proof = asked.header("dpop")
        assert proof is not None
        header = jwt.decode(proof, lambda obj: ECKey.import_key(obj.headers()["jwk"]), algorithms=["ES256"]).header
        key = ECKey.import_key(header["jwk"])
        assert header["typ"] == "dpop+jwt"
        assert not key.is_private
        claims: dict[str, Any] = jwt.decode(proof, key, algorithms=["ES256"]).claims
        assert (claims["htm"], claims["htu"]) == (asked.head.method, url)
        assert claims["jti"] not in [seen["jti"] for seen in self.seen]
        self.seen.append(claims)
        self.keys.add(key.thumbprint())
        return claims

    def token(self, asked: Asked) -> Said:
        claims = self.check(asked, f"{self.town.giver.house.url}/token")
        if "token" in self.nonces and claims.get("nonce") != self.nonces["token"]:
            return Said.json({"error": "use_dpop_nonce"}, 400, dpop_nonce=self.nonces["token"])
        return self._token(asked)

    def mcp(self, asked: Asked) -> Said:
        shown = asked.header("authorization")
        if shown is None or not shown.startswith("DPoP "):
            return Said(401, b"", {"www-authenticate": "DPoP"})
        claims = self.check(asked, self.town.url)
        digest = hashlib.sha256(shown.removeprefix("DPoP ").encode()).digest()
        assert claims["ath"] == urlsafe_b64encode(digest).rstrip(b"=").decode()
        if "mcp" in self.nonces and claims.get("nonce") != self.nonces["mcp"]:
            challenge = {"www-authenticate": 'DPoP error="use_dpop_nonce"', "dpop-nonce": self.nonces["mcp"]}
            return Said(401, b"", challenge)
        return self._mcp(asked)


async def test_a_bound_token_is_shown_with_a_fresh_proof_each_time() -> None:
    async with open_town() as town:
        bound = Bound(town)
        async with connect(town.url, auth=town.auth()) as client:
            await look(client)
            await look(client)
        assert len(bound.seen) == 4
        assert len(bound.keys) == 1


async def test_servers_that_want_a_nonce_get_it() -> None:
    async with open_town() as town:
        bound = Bound(town)
        bound.nonces = {"token": "n1", "mcp": "n2"}
        async with connect(town.url, auth=town.auth()) as client:
            await look(client)
            bound.nonces["mcp"] = "n3"
            await look(client)
        assert len(town.giver.visits("/authorize")) == 1
        assert len(town.giver.visits("/token")) == 2


@pytest.mark.parametrize("place", ["token", "mcp"])
async def test_a_server_that_wants_one_nonce_after_the_other_is_given_up(place: str) -> None:
    async with open_town() as town:
        bound = Bound(town)

        class Changing(dict[str, str]):
            def __getitem__(self, name: str) -> str:
                return f"nonce-{len(bound.seen)}"

        bound.nonces = Changing({place: ""})
        assert {"token": "asking for a new DPoP nonce", "mcp": "7 different tokens"}[place] in await refused(
            town, town.auth()
        )
        assert len(bound.seen) < 12


async def test_a_bound_token_is_refreshed_with_its_own_key_also_after_a_restart(tmp_path: Any) -> None:
    async with open_town() as town:
        town.giver.refreshes = True
        bound = Bound(town)
        for _ in range(2):
            town.revoked = set(town.giver.tokens)
            async with connect(town.url, auth=town.auth(FileStore(tmp_path))) as client:
                await look(client)
        assert len(bound.keys) == 1
        assert [asked.form["grant_type"] for asked in town.giver.visits("/token")][1:] == ["refresh_token"]


async def test_a_nonce_that_is_wanted_first_does_not_keep_a_token_from_being_refreshed() -> None:
    async with open_town() as town:
        town.giver.refreshes = True
        bound = Bound(town)
        async with connect(town.url, auth=town.auth()) as client:
            town.revoked = set(town.giver.tokens)
            bound.nonces = {"mcp": "n"}
            await look(client)
        assert len(town.giver.visits("/authorize")) == 1


async def test_tokens_are_bound_on_demand_where_that_is_possible() -> None:
    async with open_town() as town:
        town.giver.changes = {"dpop_signing_alg_values_supported": ["ES256"]}
        async with connect(town.url, auth=town.auth(MemoryStore(), binds=True)) as client:
            await look(client)
        assert town.giver.visits("/token")[0].header("dpop") is not None
        town.giver.changes = {}
        async with connect(town.url, auth=town.auth(MemoryStore(), binds=True)) as client:
            await look(client)
        assert town.giver.visits("/token")[1].header("dpop") is None
