"""The tables `authorization` and `quotas` of a file: read, and explained where they are wrong."""

from pathlib import Path

import attrs
import pytest

from callboard.actors.quotas import QuotaSettings
from callboard.actors.rate import Rate
from callboard.actors.rules import Condition, Rule
from callboard.actors.server.approvals import APPROVAL_TIME
from callboard.codecs.caller import Caller
from callboard.config.authorization import AuthorizationSettings, read_authorization
from callboard.config.load import read_configuration
from callboard.config.report import BadConfiguration

FULL = """\
[authorization]
resource = "https://tools.example.com/mcp"
scopes = ["mcp:use"]
resource_name = "Tools"
documentation = "https://tools.example.com/docs"
default = "deny"

[[authorization.issuers]]
issuer = "https://login.example.com"

[authorization.implies]
"mcp:admin" = ["mcp:*"]

[[authorization.rules]]
tools = ["files__delete_*"]
needs = ["files:write"]
hide = true
approve = "operator"

[[authorization.rules]]
servers = ["payroll"]
only = { claim = "groups", has = "hr" }

[[authorization.rules]]
prompts = ["*"]
deny = [{ tenant = ["a", "b"] }, { principal = "x", scope = "y" }]

[quotas]
principal = { count = 600, per = 60 }
tools = { "slow_*" = { count = 1, per = 10 } }
"""


def read(path: Path, text: str, name: str = "a.toml") -> AuthorizationSettings | None:
    file = path / name
    file.write_text(text)
    return read_authorization(file)


def mistakes(path: Path, text: str, name: str = "a.toml") -> list[str]:
    with pytest.raises(BadConfiguration) as caught:
        read(path, text, name)
    return [f"{one.line}: {one.where}: {one.message}" for one in caught.value.mistakes]


def test_all_of_it_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, FULL)
    assert found is not None
    assert [one.issuer for one in found.issuers] == ["https://login.example.com"]
    assert attrs.evolve(found, issuers=()) == AuthorizationSettings(
        file=tmp_path / "a.toml",
        resource="https://tools.example.com/mcp",
        scopes=("mcp:use",),
        resource_name="Tools",
        documentation="https://tools.example.com/docs",
        default="deny",
        implies={"mcp:admin": ("mcp:*",)},
        rules=(
            Rule(tools=("files__delete_*",), needs=frozenset({"files:write"}), hide=True, approve="operator"),
            Rule(servers=("payroll",), only=(Condition(claim="groups", has=("hr",)),)),
            Rule(
                prompts=("*",),
                deny=(Condition(tenant=("a", "b")), Condition(principal=("x",), scope=("y",))),
            ),
        ),
        quotas=QuotaSettings(principal=Rate(600, 60), tools={"slow_*": Rate(1, 10)}),
    )
    assert found.make_rules() is not None


def test_a_file_without_the_tables_has_no_settings(tmp_path: Path) -> None:
    assert read(tmp_path, '[servers.a]\ncommand = "x"\n') is None


def test_without_rules_nothing_is_checked(tmp_path: Path) -> None:
    found = read(tmp_path, '[authorization]\nresource = "https://a.example/mcp"\n')
    assert found is not None
    assert found.make_rules() is None
    assert found.quotas is None


def test_the_least_scopes_are_needed_for_every_method(tmp_path: Path) -> None:
    found = read(tmp_path, '[authorization]\nscopes = ["x"]\n')
    assert found is not None
    rules = found.make_rules()
    assert rules is not None
    assert rules.decide_method(Caller(principal="a"), "tools/list").needs == ("x",)
    assert rules.decide_method(Caller(principal="a", scopes=["x"]), "tools/list").needs == ()


def test_the_file_of_the_servers_may_have_the_tables(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"command": "sh"}}, "authorization": {"rules": [{"servers": ["a"], "needs": ["x"]}]}}'
    found = read(tmp_path, text, "a.json")
    assert found is not None
    assert found.rules == (Rule(servers=("a",), needs=frozenset({"x"})),)
    assert not read_configuration(tmp_path / "a.json").warnings


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[authorization]\nscope = []", "2: authorization.scope: is unknown; did you mean `scopes`?"),
        ("[authorisation]\nx = 1", "1: authorisation: is unknown; did you mean `authorization`?"),
        ("[authorization]\ndefault = 'close'", '2: authorization.default: "close" is not one of open, deny'),
        ("[authorization]\nscopes = ['a b']", '2: authorization.scopes: "a b" is not a scope'),
        ("[authorization]\nissuers = 1", "2: authorization.issuers: must be a list of issuers"),
        ("[authorization.implies]\na = ['b']\nb = ['a']", "2: authorization.implies.a: scopes imply each other: a > b"),
        ("[[authorization.rules]]\nneeds = ['a']", "1: authorization.rules[0]: names no servers"),
        ("[[authorization.rules]]\ntools = ['a']\nneed = ['a']", "3: authorization.rules[0].need: is unknown; did you"),
        ("[[authorization.rules]]\ntools = []", "2: authorization.rules[0].tools: is empty"),
        ("[[authorization.rules]]\ntools = 'a'", "2: authorization.rules[0].tools: must be a list of strings"),
        ("[[authorization.rules]]\ntools = ['a']\nonly = {}", "3: authorization.rules[0].only: is empty"),
        ("[[authorization.rules]]\ntools = ['a']\nonly = []", "3: authorization.rules[0].only: is empty"),
        (
            "[[authorization.rules]]\ntools = ['a']\nonly = {tenant = []}",
            "3: authorization.rules[0].only.tenant: is",
        ),
        (
            "[[authorization.rules]]\ntools = ['a']\nonly = {claim = 'x'}",
            "3: authorization.rules[0].only: needs",
        ),
        ("[[authorization.rules]]\ntools = ['a']\ndeny = 'x'", "3: authorization.rules[0].deny: must be a table"),
        ("[[authorization.rules]]\ntools = ['a']\napprove = 'x'", '3: authorization.rules[0].approve: "x" is not one'),
        ("[[authorization.rules]]\nresources = ['a://{b}']", "1: authorization.rules[0]: has a URI template"),
        ("[quotas]\nprincipal = 5", "2: quotas.principal: must be a table"),
        ("[quotas]\nprincipal = {per = 5}", "2: quotas.principal: needs `count`"),
        ("[quotas]\nprincipal = {count = 0}", "2: quotas.principal.count: must be 1 or more"),
        ("[quotas]\nuser = {count = 1}", "2: quotas.user: is unknown"),
        (
            "[servers.files]\ncommand = 'x'\n[[authorization.rules]]\nservers = ['flies']\ndeny = true",
            '4: authorization.rules[0].servers: "flies" matches no server of this file; did you mean `files`?',
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    found = mistakes(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith(told)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    rules = "[[authorization.rules]]\ntools = [1]\n[[authorization.rules]]\nneed = 1\n"
    text = f"[authorization]\nx = 1\n{rules}[quotas]\ny = 1"
    assert len(mistakes(tmp_path, text)) >= 4


def test_the_time_that_calls_wait_for_an_operator(tmp_path: Path) -> None:
    for said, seconds in (("approval_time = 30", 30.0), ("scopes = []", APPROVAL_TIME)):
        found = read(tmp_path, f"[authorization]\n{said}\n")
        assert found is not None
        assert found.approval_time == seconds
