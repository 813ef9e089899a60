"""The checks of protected servers that the conformance suite has as drafts, against servers as operators start them."""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from trio_websocket import open_websocket_url

from callboard.codecs.oauth.signed import thumbprint
from callboard.codecs.revisions import LEGACY
from tests.authorization.authority import EC, RSA, STRANGER, public, sign
from tests.authorization.stage import TABLES, Guarded, challenge_of, guarded, message_of, text_of
from tests.transports.server.http.sessions import HTTP_REVISIONS, initialize
from tests.transports.server.http.stage import Answer, Client, Json, request

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
EVERYWHERE: Final = ("--ws", "127.0.0.1:0", "--legacy-sse")
DOORS: Final = {
    "native": EVERYWHERE,
    "asgi": ("--ws", "localhost:0", "--legacy-sse", "--http-engine", "asgi"),
    "workers": ("--ws", "127.0.0.1:0", "--workers", "2"),
}
LOW: Final = "0123456789abcdef-low"
FULL: Final = "0123456789abcdef-full"
TOKENS: Final = f"low {LOW} mcp:use\nfull {FULL} mcp:use files:read files:write\n"
SCOPES: Final = "mcp:use files:read files:write"
ABOUT: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
OPERATIONS: Final[dict[str, tuple[str, Json]]] = {
    "tool": ("tools/call", {"name": "write", "arguments": {}}),
    "resource": ("resources/read", {"uri": "doc://one"}),
    "template": ("resources/read", {"uri": "doc://two/text"}),
    "prompt": ("prompts/get", {"name": "draft", "arguments": {}}),
}

doors = pytest.mark.parametrize("door", DOORS)


# Metadata.


@doors
async def test_the_metadata_is_at_both_paths_and_names_this_server_and_its_issuer(door: str, tmp_path: Path) -> None:
    async with guarded(tmp_path, *DOORS[door]) as here:
        for path in (WELL_KNOWN, f"{WELL_KNOWN}/mcp"):
            answer = await here.send(request("GET", path, host=urlsplit(here.url()).netloc, origin="https://x.example"))
            assert answer.status == 200
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["access-control-allow-origin"] == "*"
            said = answer.json
            assert said["resource"] == here.url()
            assert not urlsplit(said["resource"]).fragment
            assert said["authorization_servers"] == [here.authority.url]
            assert said["bearer_methods_supported"] == ["header"]
            assert said["scopes_supported"] == ["mcp:use"]
            asked = await here.send(
                request("OPTIONS", path, host=urlsplit(here.url()).netloc, origin="https://x.example")
            )
            assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, "*")
        assert here.authority.house.asked == []  # nobody is asked for keys before there is a token


async def test_the_configured_url_is_the_resource_and_a_host_header_changes_nothing(tmp_path: Path) -> None:
    tables = TABLES.replace(
        "[authorization]\n", '[authorization]\nresource = "HTTPS://Tools.Example.com:443/team/mcp/"\n'
    )
    async with guarded(tmp_path, "--allow-host", "*", tables=tables) as here:
        for path in (WELL_KNOWN, f"{WELL_KNOWN}/mcp", f"{WELL_KNOWN}/team/mcp"):
            answer = await here.send(request("GET", path, "X-Forwarded-Host: evil.example", host="evil.example"))
            assert answer.json["resource"] == "https://tools.example.com/team/mcp"
        where = "https://tools.example.com/.well-known/oauth-protected-resource/team/mcp"
        assert challenge_of(await here.call("who")).parameters["resource_metadata"] == where


# Without a token, and with a bad one.


def unauthenticated(client: Client) -> dict[str, bytes]:
    host = client.host.decode()
    found = {
        "modern": client.modern("tools/list"),
        "discover": client.modern("server/discover"),
        "get": request("GET", "/mcp", host=host, accept="text/event-stream"),
        "delete": request("DELETE", "/mcp", host=host, mcp_session_id="x" * 40),
    }
    for revision in HTTP_REVISIONS:
        found[f"initialize {revision}"] = client.post(initialize(revision))
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        found[f"session {revision}"] = client.post(ping, mcp_session_id="x" * 40, mcp_protocol_version=str(revision))
    return found


@doors
async def test_every_request_without_a_token_is_a_401_whose_challenge_leads_to_the_metadata(
    door: str, tmp_path: Path
) -> None:
    async with guarded(tmp_path, *DOORS[door]) as here:
        requests = unauthenticated(await here.connect())
        if door != "workers":
            host = urlsplit(here.url()).netloc
            requests["sse"] = request("GET", "/sse", host=host, accept="text/event-stream")
            requests["messages"] = request(
                "POST", "/messages?session=x", host=host, content_length="0", content_type="application/json"
            )
        for name, data in requests.items():
            answer = await here.send(data)
            assert answer.status == 401, name
            assert json.loads(answer.body)["error"]
            said = challenge_of(answer)
            assert said.scheme.lower() == "bearer"
            assert said.parameters["scope"] == "mcp:use"
            assert "error" not in said.parameters
        at = urlsplit(said.parameters["resource_metadata"])
        found = await here.send(request("GET", at.path, host=at.netloc))
        assert found.json["resource"] == here.url()
        answer = await shake_hands(here)
        assert (answer.status, challenge_of(answer).parameters) == (401, said.parameters)
        assert here.authority.house.asked == []


async def shake_hands(here: Guarded, token: str | None = None) -> Answer:
    """Ask for a WebSocket."""
    at = urlsplit(here.url("ws"))
    client = await here.connect(at.port)
    lines = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: mcp")
    key = f"Sec-WebSocket-Key: {base64.b64encode(secrets.token_bytes(16)).decode()}"
    await client.send(request("GET", at.path, *lines, key, *here.lines(token), host=at.netloc))
    answer = await client.head()
    await client.aclose()
    return answer


def bad_tokens(here: Guarded) -> dict[str, str]:
    good = here.token()
    head, claims, signature = good.split(".")
    now = int(time.time())
    none = sign_none(here.claims())
    return {
        "another audience": here.token(aud="https://other.example/mcp"),
        "a part of the audience": here.token(aud=here.url().rsplit("/", 1)[0]),
        "a longer audience": here.token(aud=here.url() + "/more"),
        "no audience": here.token(aud=None),
        "expired": here.token(exp=now - 61),
        "no end": here.token(exp=None),
        "not yet": here.token(nbf=now + 3600),
        "another issuer": here.token(iss="https://login.example.com"),
        "the issuer with a slash": here.token(iss=here.authority.url + "/"),
        "an unknown key": here.token(STRANGER),
        "an unknown key of a known name": sign(here.claims(), STRANGER, kid=RSA.as_dict(private=False)["kid"]),
        "alg none": none,
        "alg none, signed": none + signature,
        "alg swapped": sign_by_public_key(here.claims()),
        "the key of another": sign(here.claims(), EC, "ES256", kid="rsa"),
        "no signature": f"{head}.{claims}.",
        "a changed signature": f"{head}.{claims}.{signature[:-8]}{signature[-8:].swapcase()}",
        "an ID token": sign(here.claims(), typ="id_token"),
        "no token at all": "x",
        "no one": here.token(sub=None, client_id=None),
    }


def sign_by_public_key(claims: Json) -> str:
    """Signed by what the issuer shows to all, as if that were a secret."""
    parts = ({"alg": "HS256", "typ": "at+jwt", "kid": "rsa"}, claims)
    text = ".".join(thumbprint(json.dumps(part).encode()) for part in parts)
    return f"{text}.{thumbprint(hmac.digest(RSA.as_pem(private=False), text.encode(), 'sha256'))}"


def sign_none(claims: Json) -> str:
    parts = ({"alg": "none", "typ": "at+jwt"}, claims)
    return ".".join(thumbprint(json.dumps(part).encode()) for part in parts) + "."


@doors
async def test_only_a_token_for_this_server_is_good(door: str, tmp_path: Path) -> None:
    async with guarded(tmp_path, *DOORS[door]) as here:
        found = {}
        for name, token in bad_tokens(here).items():
            client = await here.connect()
            for data in (
                client.modern("server/discover", *here.lines(token)),
                client.post(initialize(max(LEGACY)), *here.lines(token)),
            ):
                answer = await here.send(data)
                said = challenge_of(answer).parameters
                assert (answer.status, said["error"]) == (401, "invalid_token"), name
                assert (said["scope"], said["resource_metadata"]) == (
                    "mcp:use",
                    here.url().replace("/mcp", WELL_KNOWN + "/mcp"),
                )
                found[name] = said["error_description"]
        assert len(set(found.values()) - {found["expired"]}) == 1  # one text for all other causes
        for data in (
            client.modern("server/discover", *here.lines(here.token())),
            client.post(initialize(max(LEGACY)), *here.lines(here.token(aud=["x", here.url()]))),
        ):
            assert (await here.send(data)).status == 200
        for token in ("expired", "another audience", "alg none"):
            answer = await shake_hands(here, bad_tokens(here)[token])
            assert (answer.status, challenge_of(answer).parameters["error"]) == (401, "invalid_token")
        assert (await shake_hands(here, here.token())).status == 101


async def test_keys_are_fetched_at_the_first_token_and_a_server_may_be_up_before_its_issuer(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        assert here.authority.visits("/jwks") == 0
        here.authority.house.rooms, rooms = {}, here.authority.house.rooms
        answer = await here.call("who", here.token())
        assert answer.status == 503  # a 401 would make clients throw their tokens away
        assert int(answer.headers["retry-after"]) > 0
        here.authority.house.rooms = rooms


@doors
async def test_what_is_malformed_is_a_400_and_a_token_in_the_query_is_none(door: str, tmp_path: Path) -> None:
    async with guarded(tmp_path, *DOORS[door]) as here:
        good, client = here.token(), await here.connect()
        for line in (
            ("Authorization: Bearer",),
            ("Authorization: Bearer a b",),
            (f"Authorization: Bearer {good}, Bearer {good}",),
            (f"Authorization: Bearer {good}", f"Authorization: Bearer {good}"),
            (f"Authorization: Bearer {'x' * (16 * 1024 + 1)}",),
        ):
            assert (await here.send(client.modern("tools/list", *line))).status == 400, line[0][:40]
        for _ in range(2):
            by_query = client.modern("tools/list").replace(b"POST /mcp", b"POST /mcp?access_token=" + good.encode(), 1)
            assert (await here.send(by_query)).status == 401
        if door != "workers":  # each worker says it once
            assert here.process.words.count("token_in_query_ignored") == 1
        assert good not in here.process.words


# Scopes.


@doors
@pytest.mark.parametrize("kind", ["file", "jwt"])
async def test_too_few_scopes_are_a_403_that_names_all_of_the_operation(door: str, kind: str, tmp_path: Path) -> None:
    async with guarded(tmp_path, *DOORS[door], tokens=TOKENS) as here:
        low = LOW if kind == "file" else here.token(sub="low")
        full = FULL if kind == "file" else here.token(sub="full", scope=SCOPES)
        client = await here.connect()
        for name, (method, params) in OPERATIONS.items():
            message = client.message(method, id=f"my {name}", **params)
            head = {"mcp_protocol_version": "2026-07-28", "mcp_method": method}
            head["mcp_name"] = params.get("uri") or params["name"]
            check_challenge(here, await here.send(client.post(message, *here.lines(low), **head)), f"my {name}")
            answer = await here.send(client.post(message, *here.lines(full), **head))
            assert (answer.status, "result" in message_of(answer)) == (200, True), name
        for revision in HTTP_REVISIONS:
            session, allowed = await here.session(low, revision), await here.session(full, revision)
            for name, (method, params) in OPERATIONS.items():
                check_challenge(here, await session.ask(method, id=f"my {name}", **params), f"my {name}")
                answer = await allowed.ask(method, **params)
                assert (answer.status, "result" in message_of(answer)) == (200, True), name
        none = here.token(scope=None) if kind == "jwt" else None
        if none is not None:  # the least is missing, too
            answer = await here.call("write", none)
            assert (answer.status, set(challenge_of(answer).parameters["scope"].split())) == (403, set(SCOPES.split()))


def check_challenge(here: Guarded, answer: Answer, id: str) -> None:
    assert answer.status == 403, (id, answer)
    said = challenge_of(answer)
    assert said.scheme.lower() == "bearer"
    assert said.parameters["error"] == "insufficient_scope"
    assert set(said.parameters["scope"].split()) >= {"files:read", "files:write"}
    assert "offline_access" not in said.parameters["scope"]
    assert said.parameters["resource_metadata"] == here.url().replace("/mcp", f"{WELL_KNOWN}/mcp")
    assert said.parameters["error_description"]
    assert (answer.json["id"], "result" in answer.json) == (id, False)
    assert set(answer.json["error"]["data"]["requiredScopes"]) == set(said.parameters["scope"].split())


@doors
async def test_where_no_status_is_free_the_error_names_the_scopes(door: str, tmp_path: Path) -> None:
    async with guarded(tmp_path, *DOORS[door], tokens=TOKENS) as here:
        for token, is_allowed in ((LOW, False), (FULL, True), (here.token(), False), (here.token(scope=SCOPES), True)):
            headers = [(b"Authorization", f"Bearer {token}".encode())]
            url = here.url("ws")
            async with open_websocket_url(url, subprotocols=["mcp"], extra_headers=headers) as socket:
                for method, params in OPERATIONS.values():
                    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ABOUT}}
                    await socket.send_message(json.dumps(asked))
                    check_error(json.loads(await socket.get_message()), is_allowed)
            if door != "workers":
                await over_sse(here, token, is_allowed)


def check_error(answer: Json, is_allowed: bool) -> None:
    if is_allowed:
        assert "result" in answer
    else:
        assert {"files:read", "files:write"} <= set(answer["error"]["data"]["requiredScopes"])


async def over_sse(here: Guarded, token: str, is_allowed: bool) -> None:
    reader = await here.connect()
    host = reader.host.decode()
    await reader.send(request("GET", "/sse", *here.lines(token), host=host, accept="text/event-stream"))
    stream = await reader.stream_of()
    named = await stream.event()
    assert named is not None

    async def say(message: Json) -> None:
        posted = reader.post({"jsonrpc": "2.0", **message}, *here.lines(token), accept=None)
        assert (await here.send(posted.replace(b"POST /mcp", b"POST " + named.data, 1))).status == 202

    await say(initialize("2024-11-05"))
    await stream.message()
    await say({"method": "notifications/initialized"})
    for number, (method, params) in enumerate(OPERATIONS.values(), 1):
        await say({"id": number, "method": method, "params": params})
        check_error(await stream.message(), is_allowed)
    await reader.aclose()


# Tokens that are bound to a key.

HOLDER: Final = ECKey.generate_key("P-256")
OTHER: Final = ECKey.generate_key("P-256")


@attrs.frozen
class Prover:
    """A client that holds the key of its token."""

    here: Guarded
    token: str

    def proof(self, key: Any = HOLDER, algorithm: str = "ES256", **changes: Any) -> str:
        """A proof, and what is wrong with it. A header's name begins with `header_`; None leaves something out."""
        shown = {name: value for name, value in public(key).items() if name != "kid"}
        header = {"typ": "dpop+jwt", "kid": None, "jwk": shown}
        header |= {name.removeprefix("header_"): value for name, value in changes.items() if name.startswith("header_")}
        claims: Json = {
            "jti": secrets.token_urlsafe(12),
            "htm": "POST",
            "htu": self.here.url(),
            "iat": int(time.time()),
            "ath": thumbprint(hashlib.sha256(self.token.encode()).digest()),
        } | {name: value for name, value in changes.items() if not name.startswith("header_")}
        return sign({name: value for name, value in claims.items() if value is not None}, key, algorithm, **header)

    async def ask(self, *proofs: str, scheme: str = "DPoP", token: str | None = None) -> Answer:
        lines = (f"Authorization: {scheme} {token or self.token}", *(f"DPoP: {proof}" for proof in proofs))
        return await self.here.modern("tools/call", *lines, name="who", arguments={})


def wrong_proofs() -> dict[str, Callable[[Prover], str]]:
    rsa, ed = RSAKey.generate_key(2048), OKPKey.generate_key("Ed25519")
    private = {name: value for name, value in HOLDER.as_dict(private=True).items() if name != "kid"}
    secret = b"0123456789abcdef0123456789abcdef"

    def unsigned(prover: Prover) -> str:
        _, claims, _ = prover.proof().split(".")
        jwk = {name: value for name, value in public(HOLDER).items() if name != "kid"}
        header = {"alg": "none", "typ": "dpop+jwt", "jwk": jwk}
        return f"{thumbprint(json.dumps(header).encode())}.{claims}."

    def tampered(prover: Prover) -> str:
        one, two = prover.proof(), prover.proof()
        return ".".join((*two.split(".")[:2], one.split(".")[2]))

    def symmetric(prover: Prover) -> str:
        claims = {"jti": "x", "htm": "POST", "htu": prover.here.url(), "iat": int(time.time())}
        jwk = {"kty": "oct", "k": thumbprint(secret)}
        ath = thumbprint(hashlib.sha256(prover.token.encode()).digest())
        return sign(claims | {"ath": ath}, OctKey.import_key(secret), "HS256", typ="dpop+jwt", jwk=jwk)

    return {
        "no JWT": lambda _: "x.y.z",
        "no typ": lambda prover: prover.proof(header_typ=None),
        "another typ": lambda prover: prover.proof(header_typ="JWT"),
        "alg none": unsigned,
        "a symmetric key": symmetric,
        "no jwk": lambda prover: prover.proof(header_jwk=None),
        "a private jwk": lambda prover: prover.proof(header_jwk=private),
        "another key in the header": lambda prover: prover.proof(header_jwk=public(OTHER)),
        "another signature": tampered,
        "another key": lambda prover: prover.proof(OTHER),
        "another kind of key": lambda prover: prover.proof(rsa, "RS256"),
        "another curve": lambda prover: prover.proof(ed, "Ed25519"),
        "no jti": lambda prover: prover.proof(jti=None),
        "no htm": lambda prover: prover.proof(htm=None),
        "another htm": lambda prover: prover.proof(htm="GET"),
        "htm in lower case": lambda prover: prover.proof(htm="post"),
        "no htu": lambda prover: prover.proof(htu=None),
        "another host": lambda prover: prover.proof(htu="http://evil.example/mcp"),
        "another path": lambda prover: prover.proof(htu=prover.here.url() + "/other"),
        "no iat": lambda prover: prover.proof(iat=None),
        "iat as text": lambda prover: prover.proof(iat=str(int(time.time()))),
        "too old": lambda prover: prover.proof(iat=int(time.time()) - 303),
        "too early": lambda prover: prover.proof(iat=int(time.time()) + 303),
        "no ath": lambda prover: prover.proof(ath=None),
        "another ath": lambda prover: prover.proof(ath=thumbprint(hashlib.sha256(b"other").digest())),
    }


@doors
async def test_a_bound_token_needs_its_proof_anew_each_time(door: str, tmp_path: Path) -> None:
    async with guarded(tmp_path, *DOORS[door]) as here:
        prover = Prover(here, here.token(cnf={"jkt": HOLDER.thumbprint()}))
        for good in (
            {},
            {"htu": here.url() + "?a=b#c"},
            {"iat": int(time.time()) - 290},
            {"iat": int(time.time()) + 290},
        ):
            assert text_of(await prover.ask(prover.proof(**good)))
        for name, make in wrong_proofs().items():
            answer = await prover.ask(make(prover))
            said = challenge_of(answer)
            assert (answer.status, said.scheme.lower()) == (401, "dpop"), name
            assert said.parameters["error"] == "invalid_dpop_proof", name
            assert "ES256" in said.parameters["algs"]
            assert not {"none", "HS256"} & set(said.parameters["algs"].split())
        assert (await prover.ask()).status == 401
        two = await prover.ask(prover.proof(), prover.proof())
        assert two.status in (400, 401)
        as_bearer = await prover.ask(prover.proof(), scheme="Bearer")
        assert (as_bearer.status, challenge_of(as_bearer).scheme.lower()) == (401, "dpop")
        assert challenge_of(as_bearer).parameters["error"] == "invalid_token"
        unbound = await prover.ask(prover.proof(), token=here.token())
        assert unbound.status == 401
        other = here.token(cnf={"jkt": HOLDER.thumbprint()}, aud="https://other.example")
        assert (await Prover(here, other).ask(Prover(here, other).proof())).status == 401
        assert text_of(await prover.ask(prover.proof()))


@doors
async def test_a_proof_is_good_once(door: str, tmp_path: Path) -> None:
    async with guarded(tmp_path, *DOORS[door]) as here:
        prover = Prover(here, here.token(cnf={"jkt": HOLDER.thumbprint()}))
        statuses = []
        for _ in range(8):
            proof = prover.proof()
            statuses.append([(await prover.ask(proof)).status for _ in range(3)])
        if door == "workers":  # each worker remembers the proofs that it took: once each, and never more often
            assert all(each.count(200) in (1, 2) and each.count(401) == 3 - each.count(200) for each in statuses)
        else:
            assert statuses == [[200, 401, 401]] * 8
