"""OAuth to a backend, as a file says it: tokens are had by it, and no secret stands in the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey

from callboard.client import connect
from callboard.config import UpstreamAuth
from callboard.config.auth import oauth_for
from callboard.oauth import AuthorizationCode, FileStore, OAuth, RegisteredClient
from tests.config.files import mistakes, read_one
from tests.oauth.town import Town, basic, look, open_town

SECRET = "CALLBOARD_TEST_SECRET"  # noqa: S105  # its name


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "hush")


@pytest.mark.parametrize("said", [{"client_secret_env": SECRET}, {"client_secret": f"${{{SECRET}}}"}])
async def test_a_backend_is_shown_a_token_that_its_secret_in_the_environment_gets(
    tmp_path: Path, said: dict[str, str]
) -> None:
    async with open_town(Town()) as town:
        spec = read_one(tmp_path, url=town.url, callboard={"oauth": {"client_id": "me", "scope": "read", **said}})
        assert spec.auth is not None
        assert "hush" not in repr(spec)
        async with connect(town.url, auth=oauth_for(spec.auth)) as client:
            await look(client)
        [asked] = town.giver.visits("/token")
        assert basic(asked) == ("me", "hush")
        wanted = {"grant_type": "client_credentials", "resource": town.url, "scope": "read"}
        assert asked.form == {"client_id": "me", **wanted}  # the id, for servers that look there; never the secret


async def test_a_key_is_read_from_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(ECKey.generate_key("P-256").as_pem(private=True))
    async with open_town() as town:
        town.giver.changes = {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}
        oauth = {"client_id": "me", "private_key_file": "key.pem"}
        spec = read_one(tmp_path, url=town.url, callboard={"oauth": oauth})
        assert spec.auth is not None
        assert "PRIVATE KEY" not in repr(spec)
        async with connect(town.url, auth=oauth_for(spec.auth)) as client:
            await look(client)
        assert "client_assertion" in town.giver.visits("/token")[0].form


async def test_a_platform_vouches_by_a_file_that_is_read_each_time(tmp_path: Path) -> None:
    oauth = {"grant": "workload_identity", "client_id": "me", "assertion_file": "token"}
    async with open_town() as town:
        spec = read_one(tmp_path, url=town.url, callboard={"oauth": oauth})
        assert spec.auth is not None
        auth = oauth_for(spec.auth)
        _write(tmp_path / "token", "platform's word\n")
        async with connect(town.url, auth=auth) as client:
            await look(client)
        assert town.giver.visits("/token")[0].form["assertion"] == "platform's word"


def _write(file: Path, text: str) -> None:
    file.write_text(text)


def test_a_person_gives_leave_once_and_it_is_kept(tmp_path: Path) -> None:
    oauth = {"grant": "authorization_code", "client_id": "me", "issuer": "https://as", "trust": ["as"], "bind": True}
    auth = read_one(tmp_path, url="https://h/", callboard={"oauth": {**oauth, "scope": ["a", "b"]}}).auth
    assert auth is not None
    made = oauth_for(auth)
    assert isinstance(made, OAuth)
    assert isinstance(made.grant, AuthorizationCode)
    assert made.grant.identity.registered == RegisteredClient(client_id="me", issuer="https://as")
    assert made.store == FileStore.at_home()
    assert (made.scopes, made.trust, made.binds) == (("a", "b"), ("as",), True)
    anybody = read_one(tmp_path, url="https://h/", callboard={"oauth": {"grant": "authorization_code"}}).auth
    assert anybody == UpstreamAuth(grant="authorization_code")


@pytest.mark.parametrize(
    ("oauth", "where", "why"),
    [
        ({}, "", "client_credentials needs a `client_id`"),
        ({"client_id": "me"}, "", "client_credentials needs `client_secret_env`"),
        ({"client_id": "me", "client_secret": "hush"}, ".client_secret", "must not be a secret in plain text"),
        ({"client_id": "me", "client_secret": 5}, ".client_secret", "must be a string"),
        (
            {"client_id": "me", "client_secret_env": "NOT_SET_ANYWHERE"},
            ".client_secret_env",
            "environment variable not set: NOT_SET_ANYWHERE",
        ),
        ({"client_id": "me", "client_secret_env": "a b"}, ".client_secret_env", "the name of an environment variable"),
        (
            {"client_id": "me", "client_secret_env": SECRET, "client_secret": "${X:-}"},
            ".client_secret",
            "excludes `client_secret_env`: use one",
        ),
        ({"client_id": "me", "private_key_env": SECRET}, ".private_key_env", "is not a private key"),
        ({"client_id": "me", "private_key_file": "none.pem"}, ".private_key_file", "No such file"),
        (
            {"client_id": "me", "private_key_file": "none.pem", "private_key_env": SECRET},
            ".private_key_env",
            "excludes `private_key_file`",
        ),
        (
            {"client_id": "me", "client_secret_env": SECRET, "private_key_env": SECRET},
            "",
            "a secret and a private key",
        ),
        ({"client_id": "me", "client_secret_env": SECRET, "algorithm": "HS256"}, ".algorithm", "is not one of"),
        ({"grant": "password"}, ".grant", "is not one of client_credentials, authorization_code, workload_identity"),
        ({"grant": "workload_identity", "client_id": "me"}, "", "needs an `assertion_file`"),
        ({"grant": "authorization_code", "scope": 5}, ".scope", "must be a string"),
        ("no", "", "must be an object"),
    ],
)
def test_what_cannot_work_is_told(tmp_path: Path, oauth: Any, where: str, why: str) -> None:
    text = json.dumps({"servers": {"it": {"url": "https://h/", "callboard": {"oauth": oauth}}}})
    found = mistakes(tmp_path, text, "mcp.json")
    assert [one.where for one in found if why in one.message] == [f"servers.it.callboard.oauth{where}"], found
    assert "hush" not in repr(found)


def test_a_token_is_not_sent_where_it_could_be_overheard_nor_beside_another(tmp_path: Path) -> None:
    oauth = {"grant": "authorization_code"}

    def told(**entry: Any) -> str:
        text = json.dumps({"servers": {"it": {**entry, "callboard": {"oauth": oauth}}}})
        return "".join(map(str, mistakes(tmp_path, text, "mcp.json")))

    assert "in clear text" in told(url="http://example.com/mcp")
    assert "excludes a header `Authorization`: use one" in told(
        url="https://example.com/mcp", headers={"authorization": "Bearer x"}
    )
    assert told(url="http://127.0.0.1/mcp") == ""
    assert told(url="unix:/run/a.sock") == ""
