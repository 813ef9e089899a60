"""Issuers, as a file says them: what is wrong is told with its line, and no secret stands in the file."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey

from callboard.codecs.oauth.issuer import IntrospectionSettings, IssuerSettings
from callboard.config.issuers import INTROSPECTION_KEYS, ISSUER_KEYS, read_issuers
from callboard.config.reader import Place, Table
from callboard.config.report import Report
from callboard.config.toml import read_toml
from tests.shared import ROOT

VARIABLE = "CALLBOARD_TEST_SECRET"
SECRET = "hush, this is a secret of more than 32 bytes"  # noqa: S105  # of a test
KEY = ECKey.generate_key("P-256", {"kid": "k"})


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)


def read(text: str, folder: Path = Path("/etc")) -> tuple[list[IssuerSettings], list[str]]:
    """What is read, and what is told."""
    report = Report(folder / "guard.toml", "a table")
    place = Table.of(Place(read_toml(text), "", report)).table("authorization").members["issuers"]
    found = read_issuers(place)
    return found, [str(mistake).removeprefix(f"{folder}/") for mistake in (*report.mistakes, *report.warnings)]


def only(text: str, folder: Path = Path("/etc")) -> IssuerSettings:
    found, told = read(f"[[authorization.issuers]]\n{text}", folder)
    assert told == []
    [issuer] = found
    return issuer


def test_an_issuer_needs_only_its_name() -> None:
    assert only('issuer = "https://login.example.com"') == IssuerSettings(issuer="https://login.example.com")


def test_every_setting_can_be_written(tmp_path: Path) -> None:
    issuer = only(
        """
        issuer = "https://login.example.com"
        audiences = ["api://tools"]
        client_ids = ["app"]
        jwks = "keys.json"
        algorithms = ["ES256", "EdDSA"]
        leeway = 5
        required_claims = ["groups"]
        typ = "at+jwt"
        principal = ["tid", "oid"]
        tenant = "claim:tid"
        trust = ["login.intern"]
        """,
        tmp_path,
    )
    assert issuer == IssuerSettings(
        issuer="https://login.example.com",
        audiences=("api://tools",),
        client_ids=("app",),
        jwks=tmp_path / "keys.json",
        algorithms=("ES256", "EdDSA"),
        leeway=5,
        required_claims=("groups",),
        typ="at+jwt",
        principal=("tid", "oid"),
        tenant="claim:tid",
        trust=("login.intern",),
    )


def test_keys_may_be_at_a_url_or_in_the_file_itself() -> None:
    at = only('issuer = "https://a.example.com"\njwks = "https://a.example.com/keys"')
    assert at.jwks == "https://a.example.com/keys"
    public = KEY.as_dict(private=False)
    inline = ", ".join(f"{name} = {json.dumps(value)}" for name, value in public.items())
    assert only(f'issuer = "a"\njwks = {{ keys = [{{ {inline} }}] }}').jwks == {"keys": [public]}


def test_a_single_claim_need_not_be_a_list() -> None:
    assert only('issuer = "https://a.example.com"\nprincipal = "email"').principal == ("email",)


def test_secrets_come_from_the_environment_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(KEY.as_pem(private=True))
    shared = only(f'issuer = "a"\nsecret_env = "{VARIABLE}"')
    assert shared.secret == SECRET
    start = 'issuer = "https://a.example.com"\n[authorization.issuers.introspection]\nclient_id = "gate"\n'
    asking = only(f'{start}client_secret = "${{{VARIABLE}}}"\nmethod = "client_secret_post"')
    assert asking.introspection == IntrospectionSettings(
        client_id="gate", client_secret=SECRET, method="client_secret_post"
    )
    by_key = only(f'{start}private_key_file = "key.pem"\nalgorithm = "ES256"', tmp_path)
    assert "PRIVATE KEY" in str(by_key.introspection and by_key.introspection.private_key)
    assert not [each for each in (shared, asking, by_key) if "hush" in repr(each) or "PRIVATE" in repr(each)]


GOOD = 'issuer = "https://a.example.com"'
ASKS = f'{GOOD}\nintrospection = {{ client_id = "a", client_secret_env = "{VARIABLE}"'
WRONG = {
    "": "needs an `issuer`",
    "issuer = 3": "[0].issuer: must be a string",
    'issuer = "http://a.example.com"': "[0].issuer: http://a.example.com is not https",
    'issuer = "login"': "[0].issuer: URL scheme '' is not https",
    'issuer = "https://user@a.example.com"': "[0].issuer: URL with a user name",
    f'{GOOD}\njwks = "http://a.example.com/keys"': "[0].jwks: http://a.example.com is not https",
    f"{GOOD}\njwks = {{ keys = [] }}": "[0].jwks: the keys of the issuer have none that is understood",
    f"{GOOD}\njwks = 3": "[0].jwks: must be a URL, a file, or the keys themselves",
    f'{GOOD}\nalgorithms = ["none"]': '[0].algorithms: "none" is not one of',
    f'{GOOD}\nalgorithms = ["HS256"]': "[0]: HS256 needs a `secret`",
    f"{GOOD}\nalgorithms = []": "[0].algorithms: must have one algorithm or more",
    f'{GOOD}\nsecret_env = "{VARIABLE}"\nalgorithms = ["HS256", "RS256"]': "[0]: a `secret` is for HS256",
    f'{GOOD}\nsecret = "in the clear"': "[0].secret: must not be a secret in plain text",
    f'{GOOD}\nsecret_env = "NOT_SET_AT_ALL"': "[0].secret_env: environment variable not set",
    f'{GOOD}\nsecret_env = "{VARIABLE}"\njwks = "a.json"': "[0].jwks: excludes `secret`",
    f"{GOOD}\naudiences = []": "[0]: without `audiences` it needs `client_ids`",
    f"{GOOD}\nleeway = 301": "[0].leeway: must be 300 or less",
    f"{GOOD}\nleeway = -1": "[0].leeway: must be 0 or more",
    f'{GOOD}\ntenant = "claim:"': "[0].tenant: must be `claim:NAME`",
    f'{GOOD}\ntenant = "clam:org"': "[0].tenant: must be `claim:NAME`",
    f"{GOOD}\nprincipal = 3": "[0].principal: must be the name of a claim, or a list of these",
    f"{GOOD}\nintrospection = {{ client_secret_env = '{VARIABLE}' }}": "[0].introspection: needs a `client_id`",
    f'{GOOD}\nintrospection = {{ client_id = "a" }}': "[0].introspection: needs `client_secret_env` or",
    f'{ASKS}, method = "x" }}': "[0].introspection.method:",
    f'{ASKS}, endpoint = "ftp://a" }}': "[0].introspection.endpoint:",
    f'{ASKS} }}\njwks = "a.json"': "[0].introspection: excludes `jwks`",
    f'{GOOD}\naudience = ["a"]': "warning: authorization.issuers[0].audience: is unknown and ignored; did you mean",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_what_is_wrong_is_told_with_its_line(text: str, message: str) -> None:
    found, [told] = read(f"[[authorization.issuers]]\n{text}\n")
    assert message in told
    assert told.startswith("guard.toml:")
    assert "hush" not in told
    assert (found == []) != ("warning" in told)


def test_a_secret_is_long_enough_and_no_public_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in ("tiny-one", KEY.as_pem(private=False).decode()):
        monkeypatch.setenv(VARIABLE, bad)
        found, [told] = read(f'[[authorization.issuers]]\nissuer = "a"\nsecret_env = "{VARIABLE}"')
        assert found == []
        assert bad not in told


def test_two_issuers_of_one_name_are_told() -> None:
    _, told = read(f"[[authorization.issuers]]\n{GOOD}\n[[authorization.issuers]]\n{GOOD}")
    assert told == ['guard.toml:3: authorization.issuers[1]: is the second issuer "https://a.example.com"']


def test_two_issuers_that_are_asked_are_worth_a_warning() -> None:
    each = '[[authorization.issuers]]\nissuer = "https://{}.example.com"\n'
    each += f'introspection = {{{{ client_id = "a", client_secret_env = "{VARIABLE}" }}}}\n'
    found, [told] = read(each.format("a") + each.format("b"))
    assert len(found) == 2
    assert "several issuers have `introspection`" in told


@pytest.mark.parametrize("text", ["issuers = 3", "issuers = ['a']", "[authorization.issuers]\nissuer = 'a'"])
def test_what_is_no_list_of_issuers_is_told(text: str) -> None:
    if not text.startswith("["):
        text = f"[authorization]\n{text}"
    assert tomllib.loads(text)
    found, told = read(text)
    assert found == []
    assert told


def test_the_keys_are_those_of_the_settings() -> None:
    def names(kind: Any) -> set[str]:
        return {field.name for field in kind.__attrs_attrs__}

    assert names(IssuerSettings) == set(ISSUER_KEYS) - {"secret_env"}
    extra = {"client_secret_env", "private_key_env", "private_key_file"}
    assert names(IntrospectionSettings) == set(INTROSPECTION_KEYS) - extra


def test_every_key_is_documented_and_the_example_is_read() -> None:
    page = (ROOT / "docs" / "reference" / "issuers.md").read_text()
    assert [key for key in (*ISSUER_KEYS, *INTROSPECTION_KEYS) if f"`{key}`" not in page] == []
    _, example, *_ = page.split("```")
    found, told = read(example.removeprefix("toml\n"))
    assert (len(found), told) == (1, [])
