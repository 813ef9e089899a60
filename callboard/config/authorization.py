"""The tables `authorization` and `quotas`: which tokens are good, what their callers may use, and how often.

They stand in the file of the servers, or in a file of their own. What is unknown here is an error and no warning: a
rule with a misspelled condition would let every caller in.
"""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from callboard.actors.quotas import QuotaSettings
from callboard.actors.rate import Rate
from callboard.actors.rules import (
    APPROVALS,
    AccessRules,
    Condition,
    DefaultRule,
    ImpliedInCircle,
    Rule,
    ScopeHierarchy,
    is_scope,
)
from callboard.actors.server.approvals import APPROVAL_TIME
from callboard.config.load import AUTHORIZATION_MEMBERS, MEMBERS, read_root
from callboard.config.reader import Place, Table, nearest, quoted
from callboard.config.report import Mistake

if TYPE_CHECKING:
    from callboard.codecs.oauth.issuer import IssuerSettings

AUTHORIZATION_KEYS: Final = (
    *("resource", "tokens_folder", "scopes", "issuers", "implies", "rules", "default"),
    *("resource_name", "documentation", "approval_time"),
)
PATTERN_KEYS: Final = ("servers", "tools", "prompts", "resources", "methods")
RULE_KEYS: Final = (*PATTERN_KEYS, "needs", "only", "deny", "hide", "approve")
CONDITION_KEYS: Final = ("scope", "principal", "tenant", "claim", "has")
QUOTA_KEYS: Final = ("principal", "tenant", "all", "tools")
RATE_KEYS: Final = ("count", "per")
DEFAULTS: Final[tuple[DefaultRule, ...]] = ("open", "deny")

MAX_RULES: Final = 10_000
"""Most rules of a file: ten times as many as any gateway's users have asked for."""

_NO_IMPLIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class AuthorizationSettings:
    """All that a file says about callers. Compared on a reload: equal settings change nothing."""

    file: Path = attrs.field(eq=False)
    resource: str | None = None
    """The URL of this server, as tokens name it in their audience."""
    tokens_folder: Path | None = None
    """Where tokens of users at other servers are kept, encrypted. None: in memory."""
    scopes: tuple[str, ...] = ()
    """The least that a token needs for anything."""
    issuers: "tuple[IssuerSettings, ...]" = ()
    implies: Mapping[str, tuple[str, ...]] = _NO_IMPLIES
    rules: tuple[Rule, ...] = ()
    default: DefaultRule = "open"
    resource_name: str | None = None
    documentation: str | None = None
    approval_time: float = APPROVAL_TIME
    """Seconds that a call waits for an operator."""
    quotas: QuotaSettings | None = None
    stands_alone: bool = attrs.field(default=False, eq=False)
    """Whether the file has no servers."""
    warnings: tuple[Mistake, ...] = attrs.field(default=(), eq=False)

    def make_rules(self) -> AccessRules | None:
        """The rules; None if there are none, so that they cost nothing. A hierarchy alone counts, too: handlers may ask
        for scopes."""
        if not (self.rules or self.implies or self.scopes) and self.default == "open":
            return None
        least = (Rule(methods=("*",), needs=self.scopes),) if self.scopes else ()
        return AccessRules((*least, *self.rules), self.implies, self.default)


def read_authorization(path: Path, *, is_running: bool = False) -> AuthorizationSettings | None:
    """The tables in the file at *path*; None if it has none. Raises `BadConfiguration`, with all of its mistakes.

    A file that has no servers may have nothing else.
    """
    report, root = read_root(path, is_running=is_running)
    table = Table.of(root)
    has_servers = any(member in table.members for member in MEMBERS)
    if not has_servers:
        _refuse_unknown(table, (*AUTHORIZATION_MEMBERS, "$schema"))
    if not any(member in table.members for member in AUTHORIZATION_MEMBERS):
        report.check()
        return None
    authorization = table.table("authorization")
    _refuse_unknown(authorization, AUTHORIZATION_KEYS)
    rules = _rules(authorization)
    if has_servers:
        _check_servers(authorization, rules, _servers(table))
    settings = AuthorizationSettings(
        file=path,
        resource=authorization.text("resource", None),
        tokens_folder=_tokens_folder(authorization),
        scopes=_scopes(authorization, "scopes"),
        issuers=_issuers(authorization.members.get("issuers")),
        implies=_implies(authorization),
        rules=tuple(rule for rule in rules if rule is not None),
        default=authorization.choice("default", DEFAULTS, "open"),
        resource_name=authorization.text("resource_name", None),
        documentation=authorization.text("documentation", None),
        approval_time=authorization.seconds("approval_time", APPROVAL_TIME),
        quotas=_quotas(table),
        stands_alone=not has_servers,
    )
    report.check()
    return attrs.evolve(settings, warnings=report.warnings)


def has_tables(path: Path) -> bool:
    """Whether the file at *path* has one of the tables. Raises `BadConfiguration`."""
    _, root = read_root(path)
    return not {*AUTHORIZATION_MEMBERS}.isdisjoint(Table.of(root).members)


def _refuse_unknown(table: Table, known: Collection[str]) -> None:
    for key in table.members:
        if key not in known:
            table.members[key].wrong(f"is unknown{nearest(key, known)}")


def _issuers(place: Place | None) -> "tuple[IssuerSettings, ...]":
    if place is None:
        return ()
    from callboard.config.issuers import read_issuers  # it takes time to load

    return tuple(read_issuers(place))


def _scopes(table: Table, key: str) -> tuple[str, ...]:
    found = table.texts(key)
    for scope in found:
        if not is_scope(scope):
            table.members[key].wrong(f"{quoted(scope)} is not a scope: no spaces, quotes or backslashes")
    return found


def _tokens_folder(table: Table) -> Path | None:
    place = table.members.get("tokens_folder")
    return None if place is None else place.path()


def _implies(table: Table) -> Mapping[str, tuple[str, ...]]:
    place = table.members.get("implies")
    if place is None:
        return _NO_IMPLIES
    among = place.table()
    found = {scope: _scopes(among, scope) for scope in among.members}
    try:
        ScopeHierarchy(found)
    except ImpliedInCircle as error:
        among.members[error.circle[0]].wrong(str(error))
    return found


# Rules.


def _items(place: Place, what: str) -> list[Place]:
    if place.node.items is None:
        place.wrong(f"must be a list of {what}")
    return [Place(node, f"{place.where}[{at}]", place.report) for at, node in enumerate(place.node.items or ())]


def _rules(table: Table) -> list[Rule | None]:
    place = table.members.get("rules")
    if place is None:
        return []
    places = _items(place, "tables")
    if len(places) > MAX_RULES:
        place.wrong(f"has more than {MAX_RULES} rules")
    return [_rule(one) for one in places[:MAX_RULES]]


def _rule(place: Place) -> Rule | None:
    before = len(place.report.mistakes)
    table = place.table()
    _refuse_unknown(table, RULE_KEYS)
    for key in PATTERN_KEYS:
        if key in table.members and table.members[key].node.items == []:
            table.members[key].wrong("is empty, so the rule never matches")
    said: dict[str, Any] = {
        **{key: table.texts(key) for key in PATTERN_KEYS},
        "needs": _scopes(table, "needs"),
        "only": None if "only" not in table.members else _conditions(table.members["only"]),
        "deny": _deny(table),
        "hide": table.flag("hide"),
        "approve": table.choice("approve", APPROVALS, None),
    }
    if len(place.report.mistakes) > before:
        return None
    try:
        return Rule(**said)
    except ValueError as error:
        place.wrong(str(error))
        return None


def _deny(table: Table) -> bool | tuple[Condition, ...]:
    place = table.members.get("deny")
    if place is None:
        return False
    if isinstance(place.node.value, bool):
        return place.node.value
    return _conditions(place)


def _conditions(place: Place) -> tuple[Condition, ...]:
    places = [place] if place.node.items is None else _items(place, "tables")
    if not places:
        place.wrong("is empty, so it fits no caller; use `deny = true`")
    found = [_condition(one) for one in places]
    return tuple(one for one in found if one is not None)


def _condition(place: Place) -> Condition | None:
    table = place.table()
    _refuse_unknown(table, CONDITION_KEYS)
    if place.node.members == {}:
        place.wrong(f"is empty; it needs one of {', '.join(CONDITION_KEYS[:-1])}")
    if ("claim" in table.members) != ("has" in table.members):
        place.wrong("needs `claim` and `has` together")
        return None
    claim = table.text("claim", None)
    has = _values(table.members["has"]) if "has" in table.members else ()
    return Condition(
        scope=_some(table, "scope"),
        principal=_some(table, "principal"),
        tenant=_some(table, "tenant"),
        claim=claim,
        has=has,
    )


def _some(table: Table, key: str) -> tuple[str, ...]:
    """A text, or a list of them."""
    place = table.members.get(key)
    if place is None:
        return ()
    if place.node.items is not None:
        if not place.node.items:
            place.wrong("is empty, so it fits no caller")
        return place.texts()
    text = place.text(what="a string or a list of strings")
    return () if text is None else (text,)


def _values(place: Place) -> tuple[object, ...]:
    nodes = [place.node] if place.node.items is None else place.node.items
    if not nodes or not all(isinstance(node.value, str | int | bool) for node in nodes):
        place.wrong("must be a string, a number, true or false, or a list of them")
        return ()
    return tuple(
        Place(node, place.where, place.report).expanded() if isinstance(node.value, str) else node.value
        for node in nodes
    )


def _servers(table: Table) -> set[str]:
    return {name for member in MEMBERS if member in table.members for name in table.table(member).members}


def _check_servers(table: Table, rules: Sequence[Rule | None], names: Collection[str]) -> None:
    """Report rules for servers that the file does not have: they never match, and what they were to guard is open."""
    for rule, place in zip(rules, _items(table.members["rules"], "tables") if rules else (), strict=False):
        if rule is None or not rule.servers:
            continue
        at = Table.of(place).members["servers"]
        for pattern in rule.servers:
            if not any(fnmatchcase(name, pattern) for name in names):
                at.wrong(f"{quoted(pattern)} matches no server of this file{nearest(pattern, names)}")


# Quotas.


def _quotas(table: Table) -> QuotaSettings | None:
    if "quotas" not in table.members:
        return None
    quotas = table.table("quotas")
    _refuse_unknown(quotas, QUOTA_KEYS)
    tools = quotas.table("tools")
    by_tool = {pattern: _rate(place) for pattern, place in tools.members.items()}
    return QuotaSettings(
        principal=_rate(quotas.members.get("principal")),
        tenant=_rate(quotas.members.get("tenant")),
        all=_rate(quotas.members.get("all")),
        tools={pattern: rate for pattern, rate in by_tool.items() if rate is not None},
    )


def _rate(place: Place | None) -> Rate | None:
    if place is None:
        return None
    table = place.table()
    _refuse_unknown(table, RATE_KEYS)
    if place.node.members is not None and "count" not in table.members:
        place.wrong("needs `count`")
    return Rate(table.count("count", 1), table.seconds("per", 1.0))
