"""Rules as arithmetic: what matches, what a caller must have, and what a thousand rules cost."""

from timeit import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.rules import (
    HIDDEN,
    OPEN,
    AccessRules,
    Approval,
    Condition,
    ImpliedInCircle,
    Rule,
    ScopeHierarchy,
    plain_uri,
)
from callboard.codecs.caller import ANONYMOUS, TRUSTED, Caller
from callboard.errors import InsufficientScope

HR = (Condition(claim="groups", has=("hr",)),)
ALICE = Caller(principal="alice", tenant="acme", scopes=["files:read"], claims={"groups": ["hr", "it"]})
BOB = Caller(principal="bob", tenant="other", scopes=["files:read", "files:write"])


def test_what_no_rule_matches_is_open() -> None:
    rules = AccessRules([Rule(tools=["files__*"], deny=True)])
    assert rules.decide(ANONYMOUS, "tool", "web", "web__get") is OPEN
    assert rules.decide(ANONYMOUS, "tool", "files", "files__get") is HIDDEN
    assert rules.decide(ANONYMOUS, "prompt", "files", "files__get") is OPEN


def test_with_default_deny_what_no_rule_matches_is_hidden() -> None:
    rules = AccessRules([Rule(tools=["web__*"])], default="deny")
    assert rules.decide(ANONYMOUS, "tool", "web", "web__get") is OPEN
    assert rules.decide(ANONYMOUS, "tool", "files", "files__get") is HIDDEN
    assert rules.decide(ANONYMOUS, "prompt", "web", "web__get") is HIDDEN
    assert rules.decide_method(ANONYMOUS, "tools/list") is OPEN  # methods are no entries


def test_a_rule_about_a_method_opens_no_tool() -> None:
    rules = AccessRules([Rule(methods=["tools/*"], needs=["use"])], default="deny")
    assert rules.decide(Caller(scopes=["use"]), "tool", "web", "web__get") is HIDDEN


def test_scopes_of_all_rules_are_added_up() -> None:
    rules = AccessRules(
        [
            Rule(methods=["tools/call"], needs=["tools:call"]),
            Rule(servers=["files"], needs=["files:read"]),
            Rule(tools=["*delete*"], needs=["files:write"]),
        ]
    )
    found = rules.decide(ALICE, "tool", "files", "files__delete")
    assert found.needs == ("files:read", "files:write", "tools:call")
    assert not found.is_hidden
    assert found.is_listed
    with pytest.raises(InsufficientScope, match="files:read files:write tools:call"):
        found.check()


def test_who_another_rule_refuses_learns_of_no_scope() -> None:
    rules = AccessRules([Rule(tools=["pay"], needs=["pay:run"]), Rule(tools=["pay"], only=HR)])
    assert rules.decide(BOB, "tool", "", "pay") is HIDDEN
    assert rules.decide(ALICE, "tool", "", "pay").needs == ("pay:run",)


def test_servers_narrow_what_tools_say() -> None:
    rules = AccessRules([Rule(servers=["pay*"], tools=["*__run"], deny=True)])
    assert rules.decide(ALICE, "tool", "payroll", "payroll__run").is_hidden
    assert not rules.decide(ALICE, "tool", "payroll", "payroll__show").is_hidden
    assert not rules.decide(ALICE, "tool", "web", "web__run").is_hidden
    assert rules.sees_server(ALICE, "payroll")


def test_a_hidden_server_is_not_seen() -> None:
    rules = AccessRules([Rule(servers=["payroll"], only=(Condition(tenant=("acme",)),))])
    assert rules.sees_server(ALICE, "payroll")
    assert not rules.sees_server(BOB, "payroll")
    assert rules.decide(BOB, "resource", "payroll", "pay://1").is_hidden


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        (Condition(principal=("alice", "carol")), True),
        (Condition(principal=("carol",)), False),
        (Condition(tenant=("acme",), scope=("files:read",)), True),
        (Condition(tenant=("acme",), scope=("files:write",)), False),
        (Condition(scope=("x", "files:read")), True),
        (Condition(claim="groups", has=("it",)), True),
        (Condition(claim="groups", has=("h",)), False),
        (Condition(claim="realm.roles", has=("admin",)), True),
        (Condition(claim="https://x.example/roles", has=("one",)), True),
        (Condition(claim="level", has=(3,)), True),
        (Condition(claim="level", has=("3",)), False),
        (Condition(claim="level", has=(True,)), False),
        (Condition(claim="missing", has=("x",)), False),
    ],
)
def test_conditions(condition: Condition, fits: bool) -> None:
    claims = {"groups": ["hr", "it"], "realm": {"roles": ["admin"]}, "level": 3, "https://x.example/roles": "one"}
    caller = Caller(principal="alice", tenant="acme", scopes=["files:read"], claims=claims)
    rules = AccessRules([Rule(tools=["only"], only=(condition,)), Rule(tools=["deny"], deny=(condition,))])
    assert rules.decide(caller, "tool", "", "only").is_hidden is not fits
    assert rules.decide(caller, "tool", "", "deny").is_hidden is fits


def test_of_several_conditions_one_must_fit() -> None:
    rules = AccessRules([Rule(tools=["x"], only=(Condition(tenant=("acme",)), Condition(principal=("bob",))))])
    assert not rules.decide(ALICE, "tool", "", "x").is_hidden
    assert not rules.decide(BOB, "tool", "", "x").is_hidden
    assert rules.decide(ANONYMOUS, "tool", "", "x").is_hidden


def test_hide_leaves_it_out_of_lists_only() -> None:
    rules = AccessRules([Rule(tools=["x"], needs=["a"], hide=True), Rule(tools=["x"], needs=["b"])])
    assert not rules.decide(Caller(scopes=["b"]), "tool", "", "x").is_listed
    assert rules.decide(Caller(scopes=["b"]), "tool", "", "x").needs == ("a", "b")
    assert rules.decide(Caller(scopes=["a"]), "tool", "", "x").is_listed
    assert rules.decide(Caller(scopes=["a", "b"]), "tool", "", "x").is_listed


@pytest.mark.parametrize(
    ("approvals", "strongest"), [(("caller", "operator"), "operator"), (("caller",), "caller"), ((), None)]
)
def test_the_strongest_approval_counts(approvals: tuple[Approval, ...], strongest: str | None) -> None:
    rules = AccessRules([Rule(tools=["x"], approve=one) for one in approvals])
    assert rules.decide(ALICE, "tool", "", "x").approve == strongest


def test_no_rule_is_for_a_trusted_caller() -> None:
    rules = AccessRules([Rule(tools=["*"], deny=True), Rule(methods=["*"], needs=["x"])], default="deny")
    assert rules.decide(TRUSTED, "tool", "", "x") is OPEN
    assert rules.decide_method(TRUSTED, "tools/list") is OPEN
    assert rules.holds(TRUSTED, ["anything"])
    assert not rules.holds(ANONYMOUS, ["anything"])


# A URI that a server takes for another one.


@pytest.mark.parametrize(
    "uri",
    [
        "file:///secret/x",
        "file:///public/../secret/x",
        "file:///%73ecret/x",
        "file:///public/%2e%2e/secret/x",
        "FILE:///secret/x",
        "file:////secret//x",
        "file:///./secret/x",
        "file:///public/..%2Fsecret/x",
        "file:///public\\..\\secret\\x",
    ],
)
def test_other_spellings_of_a_uri_pass_no_rule(uri: str) -> None:
    denied = AccessRules([Rule(resources=["file:///secret/*"], deny=True)])
    assert denied.decide(ALICE, "resource", "files", uri).is_hidden
    allowed = AccessRules([Rule(resources=["file:///public/*"])], default="deny")
    assert allowed.decide(ALICE, "resource", "files", uri).is_hidden
    assert not allowed.decide(ALICE, "resource", "files", "file:///public/x?y=%20z").is_hidden


@given(st.text(alphabet="abA./%2e\\?:#", max_size=40))
def test_any_text_has_a_plain_form(text: str) -> None:
    assert "/../" not in plain_uri(text).partition(":")[2].replace("%", "")


# Scopes that imply others.


def test_scopes_imply_others_all_the_way_down() -> None:
    hierarchy = ScopeHierarchy({"admin": ["tools:*"], "tools:write": ["files:write", "files:read"]})
    admin = frozenset({"admin"})
    assert hierarchy.holds(admin, frozenset({"tools:anything"}))
    assert hierarchy.holds(admin, frozenset({"files:write", "admin"}))
    assert not hierarchy.holds(admin, frozenset({"tools"}))
    assert not hierarchy.holds(frozenset({"files:write"}), frozenset({"tools:write"}))
    assert not hierarchy.holds(frozenset({"tools:*"}), frozenset({"tools:write"}))  # of a token: a name like any other


def test_a_scope_may_imply_all_of_its_kind() -> None:
    assert ScopeHierarchy({"mcp:admin": ["mcp:*"]}).holds(frozenset({"mcp:admin"}), frozenset({"mcp:tools"}))


@pytest.mark.parametrize(
    "implies",
    [
        {"a": ["a"]},
        {"a": ["b"], "b": ["a"]},
        {"a": ["b"], "b": ["c:*"], "c:x": ["a"]},
        {"mcp:admin": ["mcp:*"], "mcp:tools": ["mcp:*"]},
    ],
)
def test_scopes_do_not_imply_each_other(implies: dict[str, list[str]]) -> None:
    with pytest.raises(ImpliedInCircle):
        AccessRules([], implies)


def test_implied_scopes_count_in_rules_and_conditions() -> None:
    rules = AccessRules(
        [Rule(tools=["x"], needs=["files:write"]), Rule(tools=["x"], only=(Condition(scope=("files:read",)),))],
        {"admin": ["files:*"]},
    )
    assert rules.decide(Caller(scopes=["admin"]), "tool", "", "x") is OPEN


# Rules that say nothing.


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({}, "matches nothing"),
        ({"needs": ["x"]}, "matches nothing"),
        ({"servers": ["a"], "methods": ["b"]}, "use two rules"),
        ({"resources": ["db://{table}"]}, r"use `\*`"),
        ({"tools": ["x"], "hide": True}, "without `needs`"),
    ],
)
def test_a_rule_that_cannot_match_is_refused(rule: dict[str, list[str]], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Rule(**rule)  # type: ignore[arg-type]  # of several types


# Cost.


def test_a_thousand_rules_cost_no_more_than_ten() -> None:
    def cost(count: int) -> float:
        rules = AccessRules([Rule(tools=[f"s{at}__*"], needs=[f"s:{at}"], only=HR) for at in range(count)])
        caller = Caller(scopes=["s:7"], claims={"groups": ["hr"]})
        assert not rules.decide(caller, "tool", "s", "s7__x").needs
        return min(repeat(lambda: rules.decide(caller, "tool", "s", "s7__x"), number=500, repeat=15))

    assert cost(1000) < 3 * cost(10)  # without a memory it is a hundred times as much


def test_what_strangers_ask_for_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.actors.rules.MAX_GATES", 10)
    rules = AccessRules([Rule(resources=["x://*"], needs=["x"])])
    for at in range(100):
        assert rules.decide(ALICE, "resource", "s", f"x://{at}").needs == ("x",)
        rules.decide(ALICE, "resource", "s", f"x://{at}{'y' * 1000}")
        assert len(rules._gates) <= 10


@pytest.mark.parametrize("said", [{"prompts": ["*"]}, {"resources": ["*"]}, {"methods": ["prompts/*"]}])
def test_what_cannot_be_approved_is_refused_and_not_ignored(said: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError, match="only calls of tools are approved"):
        Rule(**said, approve="operator")  # type: ignore[arg-type]
    assert AccessRules([Rule(methods=["tools/*"], approve="operator")]).approves
    assert not AccessRules([Rule(tools=["*"], needs=["a"])]).approves
