"""What of a caller a file gives to a server: what may stand where, and what is refused, with its line."""

from pathlib import Path

import pytest

from callboard.codecs.caller_template import CallerField
from callboard.config import Remote
from callboard.config.load import PERSONAL_CONNECTIONS
from callboard.config.model import PersonalCommand
from callboard.transports.client.process import Command
from tests.config.files import read, read_one, told

OAUTH = """
[mcpServers.it]
url = "https://it.example.com/mcp"
[mcpServers.it.callboard.oauth]
grant = "token_exchange"
client_id = "me"
client_secret = "${CALLBOARD_TEST_SECRET}"
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_TEST_SECRET", "${principal}")
    monkeypatch.delenv("principal", raising=False)


def test_headers_may_name_the_caller(tmp_path: Path) -> None:
    headers = {"X-Who": "u-${principal}", "X-Org": "${claim:org}", "X-Plain": "$${tenant}"}
    spec = read_one(tmp_path, url="https://it.example.com/mcp", headers=headers)
    assert isinstance(spec.target, Remote)
    assert spec.target.templates == {
        "X-Who": ("u-", CallerField("principal")),
        "X-Org": (CallerField("claim:org"),),
    }
    assert spec.target.headers == {"X-Plain": "${tenant}"}
    assert spec.is_personal
    assert spec.settings.max_connections == PERSONAL_CONNECTIONS


def test_what_comes_from_the_environment_is_no_template(tmp_path: Path) -> None:
    value = "${CALLBOARD_TEST_SECRET}"
    spec = read_one(tmp_path, url="https://it.example.com/mcp", headers={"X-A": value, "X-B": f"{value}${{tenant}}"})
    assert isinstance(spec.target, Remote)
    assert spec.target.headers == {"X-A": "${principal}"}
    assert spec.target.templates == {"X-B": ("${principal}", CallerField("tenant"))}


def test_the_environment_of_a_program_may_name_the_caller(tmp_path: Path) -> None:
    spec = read_one(tmp_path, command="sh", env={"WHO": "${scopes}", "ALL": "1"})
    assert isinstance(spec.target, PersonalCommand)
    assert spec.target.templates == {"WHO": (CallerField("scopes"),)}
    assert spec.target.env == {"ALL": "1"}
    assert spec.settings.max_connections == 16
    plain = read_one(tmp_path, command="sh", env={"ALL": "1"})
    assert type(plain.target) is Command
    assert not plain.is_personal


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ('command = "${principal}"', "command"),
        ('command = "sh"\nargs = ["-u", "${claim:sub}"]', "args[1]"),
        ('url = "https://${tenant}.example.com/mcp"', "url"),
    ],
)
def test_a_template_elsewhere_is_refused(line: str, where: str, tmp_path: Path) -> None:
    [said] = told(tmp_path, f"[mcpServers.it]\n{line}\n")
    number = 2 + line.count("\n")
    assert said.startswith(f"servers.toml:{number}: mcpServers.it.{where}")
    assert "is only for values in `headers` and `env`" in said


@pytest.mark.parametrize("what", ['headers = { X-A = "${principal}" }', 'headers = { "X A" = "${principal}" }'])
def test_templates_exclude_a_connection_for_all(what: str, tmp_path: Path) -> None:
    text = f'[mcpServers.it]\nurl = "https://it.example.com/mcp"\n{what}\n[mcpServers.it.callboard]\nshare = "all"\n'
    said = told(tmp_path, text)
    assert any("servers.toml:3" in one and "a connection belongs to one caller" in one for one in said)
    assert any("is not a valid header name" in one for one in said) == ("X A" in what)


def test_an_exchange_says_where_tokens_go(tmp_path: Path) -> None:
    [said] = told(tmp_path, OAUTH)
    assert "token_exchange needs an `issuer`" in said
    [spec] = read(tmp_path, f'{OAUTH}issuer = "https://login.example.com"\naudience = "it"\n').backends
    assert spec.auth is not None
    assert (spec.auth.audience, spec.is_personal) == ("it", True)
    [said] = told(tmp_path, f'{OAUTH}issuer = "https://a.example"\n[mcpServers.it.callboard]\nshare = "all"\n')
    assert "a connection belongs to one caller" in said


def test_an_exchange_needs_a_client_that_can_prove_itself(tmp_path: Path) -> None:
    text = OAUTH.replace('client_secret = "${CALLBOARD_TEST_SECRET}"\n', "")
    [said] = told(tmp_path, f'{text}issuer = "https://a.example"\n')
    assert "token_exchange needs `client_secret_env`" in said


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Authorization",
            "Proxy-Authorization",
            "X-Authorization",
            "Cookie",
            "Set-Cookie",
            "DPoP",
            "Host",
            "Forwarded",
        ),
        *("X-Forwarded-For", "Connection", "Transfer-Encoding", "TE", "Upgrade", "Keep-Alive", "Trailer"),
        *("Content-Length", "Content-Type", "Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Param-X", "Origin"),
        *("X Request", "X-A:", "", "x\r\ny"),
    ],
)
def test_some_headers_are_never_passed_on(name: str, tmp_path: Path) -> None:
    written = name.replace("\r", "\\r").replace("\n", "\\n")
    text = f'[mcpServers.it]\nurl = "https://a.example/mcp"\n[mcpServers.it.callboard]\npass_headers = ["{written}"]\n'
    [said] = told(tmp_path, text)
    assert said.startswith("servers.toml:4: mcpServers.it.callboard.pass_headers")


def test_headers_that_are_passed_on_are_few_and_named_in_any_case(tmp_path: Path) -> None:
    spec = read_one(tmp_path, url="https://a.example/mcp", callboard={"pass_headers": ["X-Request-Id"]})
    assert spec.settings.pass_headers == ("x-request-id",)
    many = [f"x-{number}" for number in range(17)]
    text = f'[mcpServers.it]\nurl = "https://a.example/mcp"\n[mcpServers.it.callboard]\npass_headers = {many}\n'
    assert "at most 16" in told(tmp_path, text)[0]
