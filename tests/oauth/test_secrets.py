"""Secrets are for those they are meant for: they stand in no log, no error, and no picture of an object."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey

from callboard.client import connect
from callboard.codecs.oauth.tokens import ID_JAG
from callboard.errors import CallboardError
from callboard.oauth import (
    AuthorizationCode,
    BearerToken,
    ClientCredentials,
    EnterpriseManaged,
    FileStore,
    Headless,
    Identity,
    MemoryStore,
    OAuth,
    RegisteredClient,
    WorkloadIdentity,
)
from tests.oauth.house import Asked, House, Said, open_house
from tests.oauth.town import Town, basic, look, open_town, visit

KEY = ECKey.generate_key("P-256").as_pem(private=True).decode()
CANARY = "c4n4ry"
"""Stands in every secret that a test makes up; others are looked for as they are."""


class Watch:
    """Looks at everything that is said, for everything that must not be said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.secrets = {CANARY, KEY.splitlines()[1]}

    def see(self, thing: object) -> None:
        self.said += [repr(thing), str(thing)]
        if isinstance(thing, BaseException):
            self.said += traceback.format_exception(thing)
            self.see(vars(thing))

    def hears(self, asked: Asked) -> None:
        """Whatever a client sends in secret, a server could be made to tell."""
        secret = ("code", "code_verifier", "state", "code_challenge", "refresh_token", "client_assertion")
        sent = {**asked.query, **(asked.form if asked.head.method == "POST" and asked.path == "/token" else {})}
        self.secrets |= {sent[name] for name in secret if name in sent}
        for header in ("authorization", "dpop"):
            value = asked.header(header)
            if value is not None:
                self.secrets |= {value, value.split(" ")[-1]}

    def check(self, output: str) -> None:
        text = "\n".join([*self.said, output])
        assert len(text) > 200
        assert [secret for secret in sorted(self.secrets) if len(secret) > 3 and secret in text] == []


async def run(town: Town, auth: OAuth | BearerToken, watch: Watch) -> None:
    """Use the town, come what may, and look at everything."""
    watch.see(auth)
    credentials = auth.credentials(town.url)
    try:
        async with connect(town.url, auth=Given(credentials)) as client:
            await look(client)
            town.revoked = set(town.giver.tokens)
            await look(client)
            watch.see(client)
    except CallboardError as error:
        watch.see(error)
    watch.see(credentials)
    watch.see(await credentials.prove(b"POST"))
    for house in (town.house, town.giver.house):
        for asked in house.asked:
            watch.hears(asked)


class Given:
    """Credentials that are at hand, so that they can be looked at."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    def credentials(self, url: str) -> Any:
        return self._credentials


REGISTERED = RegisteredClient(client_id="me", client_secret=f"{CANARY}-secret")

GRANTS: dict[str, Callable[[str], Any]] = {
    "registered on the spot": lambda _: AuthorizationCode(consent=Headless(visit)),
    "registered by hand": lambda _: AuthorizationCode(
        consent=Headless(visit), identity=Identity(registered=REGISTERED)
    ),
    "by a secret": lambda _: ClientCredentials(client_id="me", client_secret=f"{CANARY}-secret"),
    "by a key": lambda _: ClientCredentials(client_id="me", private_key=KEY),
    "by a platform's word": lambda _: WorkloadIdentity(client=REGISTERED, assertion=f"{CANARY}-word"),
    "by an identity provider": lambda provider: EnterpriseManaged(
        client=REGISTERED, idp_token_endpoint=f"{provider}/token", idp_client_id="me", id_token=f"{CANARY}-id"
    ),
}


def echo(asked: Asked) -> Said:
    """A server that says back all that it was told, in every place where it can say something."""
    sent = {**asked.form, "authorization": asked.header("authorization") or ""}
    said = " ".join(sent.values())
    return Said.json({"error": said[:60] or "x", "error_description": said}, 400)


def tell(asked: Asked) -> Said:
    """A server that says a secret as if it were the name of an error, and what it was told in confidence, unpacked."""
    name = next((asked.form[name] for name in ("refresh_token", "code", "assertion") if name in asked.form), "x")
    secret = (basic(asked) or ("", asked.form.get("client_secret", "")))[1]
    return Said.json({"error": name, "error_description": f"no such secret: {secret}"}, 400)


@pytest.mark.parametrize("fault", ["none", "echoes", "echoes later", "tells", "breaks off", "is no JSON", "is bound"])
@pytest.mark.parametrize("grant", GRANTS)
@pytest.mark.requirement("M354")
async def test_no_secret_is_said_whatever_goes_wrong(
    grant: str, fault: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    leave = {"access_token": f"{CANARY}-leave", "issued_token_type": ID_JAG, "token_type": "N_A"}
    watch = Watch()
    async with open_town() as town, open_house(House({"/token": lambda _: Said.json(leave)})) as provider:
        town.giver.name = CANARY
        town.giver.refreshes = True
        town.giver.registration = {"client_id": "on-the-spot", "client_secret": f"{CANARY}-registered"}
        town.giver.changes = {"token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"]}
        match fault:
            case "echoes":
                town.giver.house.rooms["/token"] = echo
                provider.rooms["/token"] = echo
            case "echoes later":
                first = town.giver.house.rooms["/token"]
                answers = [first, echo, echo, echo, echo]
                town.giver.house.rooms["/token"] = lambda asked: answers.pop(0)(asked)
            case "tells":
                first = town.giver.house.rooms["/token"]
                answers = [first, tell, tell, tell, tell] if "registered" in grant else [tell]
                town.giver.house.rooms["/token"] = lambda asked: answers.pop(0)(asked)
                town.giver.changes = {"token_endpoint_auth_methods_supported": ["client_secret_basic"]}
            case "breaks off":
                town.giver.refusals = [Said(500, f"{CANARY} trace".encode())]
            case "is no JSON":
                town.giver.refusals = [Said(200, f'{{"access_token": "{CANARY}", "token_type": 7}}'.encode())]
            case "is bound":
                town.giver.changes |= {"dpop_signing_alg_values_supported": ["ES256"]}
        store = FileStore(tmp_path) if fault == "none" else MemoryStore()
        auth = OAuth(grant=GRANTS[grant](provider.url), store=store, binds=fault == "is bound")
        await run(town, auth, watch)
        watch.see(store)
        assert town.giver.house.asked
    captured = capfd.readouterr()
    watch.check(captured.out + captured.err)


async def test_a_key_in_the_url_of_a_server_stands_in_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    now = 1000.0
    watch = Watch()
    async with open_town() as town:
        town.giver.refreshes = True
        async with connect(f"{town.url}?key={CANARY}-key", auth=town.auth(clock=lambda: now)) as client:
            await look(client)
            for refusals in ([], [Said(503)], [Said.json({"error": "invalid_grant"}, 400)]):
                now += 3600 - 29
                town.giver.refusals = refusals
                await look(client)
    captured = capfd.readouterr()
    assert "refresh_failed" in captured.err
    watch.check(captured.out + captured.err)


async def test_a_token_from_elsewhere_is_said_to_nobody_else(capfd: pytest.CaptureFixture[str]) -> None:
    watch = Watch()
    async with open_town() as town:
        await run(town, BearerToken(f"{CANARY}-mine"), watch)
        with pytest.raises(CallboardError) as caught:
            BearerToken(f"{CANARY} with a blank").credentials(town.url)
        watch.see(caught.value)
    captured = capfd.readouterr()
    watch.check(captured.out + captured.err)


def test_the_watch_sees_what_it_should() -> None:
    """A test of secrets that sees none is worth nothing."""
    watch = Watch()
    watch.see(ValueError(f"{CANARY}-here"))
    with pytest.raises(AssertionError):
        watch.check("x" * 200)
