"""Rules: what a caller sees and may use. Arithmetic over patterns, scopes and claims: no I/O, no clock.

There are two kinds of rule. One that *needs* scopes is for what a caller can get by asking its authorization server:
the entry is listed, and a call without the scopes is told which ones it needs. One with *only* or *deny* is for what a
caller can never have: the entry is not listed, and a call is answered as if there were none. Each rule that matches
adds its conditions; no rule takes back those of another.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote

import attrs

from callboard.codecs.caller import TRUSTED, Caller
from callboard.errors import InsufficientScope

GuardedKind: TypeAlias = Literal["tool", "prompt", "resource"]
Approval: TypeAlias = Literal["caller", "operator"]
DefaultRule: TypeAlias = Literal["open", "deny"]

APPROVALS: Final[tuple[Approval, ...]] = ("caller", "operator")
"""From the weaker to the stronger: of several rules the strongest counts."""

METHOD_OF: Final[Mapping[GuardedKind, str]] = {
    "tool": "tools/call",
    "prompt": "prompts/get",
    "resource": "resources/read",
}
"""The method that uses an entry. Its rules guard the entry, too."""

MAX_GATES: Final = 16_384
"""Most names for which the rules that match are remembered. Working them out for 1,000 rules takes a millisecond."""

MAX_REMEMBERED: Final = 512
"""Longest name or URI, in characters, for which that is remembered: 8 MiB for all of them."""

MAX_HELD: Final = 4096
"""Most comparisons of granted with needed scopes that are remembered."""

_LISTS: Final = (list, tuple)
_SELECTORS: Final = ("tool", "prompt", "resource", "method", "server")
_WILD: Final = re.compile(r"[*?\[]")
NO_SCOPES: Final[frozenset[str]] = frozenset()
_NO_IMPLIES: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class Decision:
    """What the rules say of one operation for one caller."""

    is_hidden: bool = False
    """Whether it looks to this caller as if there were none."""
    needs: tuple[str, ...] = ()
    """All scopes that the operation needs, if one of them is missing, and nothing else is."""
    is_listed: bool = True
    """Whether lists show it."""
    approve: Approval | None = None
    """The one that must approve of each call, if any. For tools alone."""

    def check(self) -> None:
        """Raises `InsufficientScope`."""
        if self.needs:
            raise InsufficientScope(self.needs)


OPEN: Final = Decision()
HIDDEN: Final = Decision(is_hidden=True, is_listed=False)


@attrs.frozen(kw_only=True)
class Condition:
    """What a caller must be like. All that is given must fit; of several values, one."""

    scope: tuple[str, ...] = ()
    principal: tuple[str, ...] = ()
    tenant: tuple[str, ...] = ()
    claim: str | None = None
    """A claim, or the way to one inside of claims: `realm_access.roles`."""
    has: tuple[object, ...] = ()

    def fits(self, caller: Caller, holds: "Holds") -> bool:
        if self.principal and caller.principal not in self.principal:
            return False
        if self.tenant and caller.tenant not in self.tenant:
            return False
        if self.scope and not any(holds(caller.scopes, frozenset((one,))) for one in self.scope):
            return False
        return self.claim is None or _has(claim_of(caller.claims, self.claim), self.has)


Holds: TypeAlias = Callable[[frozenset[str], frozenset[str]], bool]
"""Whether a caller with the first scopes has all of the second."""


def claim_of(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of this name, or else that at the end of the dotted path; None if there is neither."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def _has(found: Any, wanted: Sequence[object]) -> bool:
    for one in found if type(found) in _LISTS else (found,):  # plain loops: each call with a rule on claims comes by
        for value in wanted:
            if type(one) is type(value) and one == value:
                return True
    return False


def is_scope(text: str) -> bool:
    """As RFC 6749, section 3.3, has it: no space, and nothing that could not stand in a header."""
    return bool(text) and all(" " < one <= "~" and one not in '"\\' for one in text)


def checked_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes that an entry needs. Raises ValueError for what is none, such as a text in the place of a list."""
    found = (scopes,) if isinstance(scopes, str) else tuple(scopes)
    for one in found:
        if not is_scope(one):
            raise ValueError(f"invalid scope {one[:200]!r}: no spaces, quotes or backslashes; several go into a list")
    return frozenset(found)


def _texts(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


def _scope_set(given: Iterable[str]) -> frozenset[str]:
    return frozenset(given)


@attrs.frozen(kw_only=True)
class Rule:
    """Which operations, by shell patterns, and what a caller must have for them.

    With *servers* it is for these servers alone: for all that they offer, or for the tools, prompts and resources that
    are named besides. Of several patterns, any.
    """

    servers: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    tools: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    prompts: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    resources: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    methods: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    needs: frozenset[str] = attrs.field(default=NO_SCOPES, converter=_scope_set)
    only: tuple[Condition, ...] | None = None
    """Conditions of which one must fit the caller. None: no condition."""
    deny: bool | tuple[Condition, ...] = False
    hide: bool = False
    """Whether lists leave it out as long as scopes of this rule are missing."""
    approve: Approval | None = None

    def __attrs_post_init__(self) -> None:
        if (why := self.why_never()) is not None:
            raise ValueError(why)

    def why_never(self) -> str | None:
        """Why it can never match, or says nothing that could be meant; None if it is fine."""
        items = self.tools or self.prompts or self.resources
        if not (self.servers or items or self.methods):
            return "names no servers, tools, prompts, resources or methods, so it matches nothing"
        if self.servers and self.methods:
            return "has `servers` and `methods`: a method belongs to no server; use two rules"
        if any("{" in one for one in self.resources):
            return "has a URI template in `resources`: patterns match URIs, so use `*` for each variable"
        if self.approve and (self.prompts or self.resources):
            return "has `approve` for prompts or resources: only calls of tools are approved"
        if self.approve and self.methods and not _matches(self.methods, METHOD_OF["tool"]):
            return "has `approve` for methods without `tools/call`: only calls of tools are approved"
        if self.hide and not self.needs:
            return "has `hide` without `needs`: use `only` or `deny`"
        return None

    @property
    def is_of_servers(self) -> bool:
        """Whether it is about all that its servers offer."""
        return bool(self.servers) and not (self.tools or self.prompts or self.resources)


@lru_cache(maxsize=8192)
def _pattern(text: str) -> re.Pattern[str] | None:
    """None for a text that matches itself alone."""
    return re.compile(translate(text)) if _WILD.search(text) else None


def _matches(patterns: Iterable[str], text: str) -> bool:
    for one in patterns:
        pattern = _pattern(one)
        if one == text if pattern is None else pattern.match(text) is not None:
            return True
    return False


class PatternIndex:
    """Many patterns, each of one rule. A text is compared with those alone that begin as it does."""

    __slots__ = ("_by_head", "_exact", "_lengths")

    def __init__(self, patterns: Iterable[tuple[str, int]]) -> None:
        self._exact: dict[str, list[int]] = {}
        self._by_head: dict[str, list[tuple[re.Pattern[str], int]]] = {}
        for text, of in patterns:
            pattern, wild = _pattern(text), _WILD.search(text)
            if pattern is None or wild is None:
                self._exact.setdefault(text, []).append(of)
            else:
                self._by_head.setdefault(text[: wild.start()], []).append((pattern, of))
        self._lengths = sorted({len(head) for head in self._by_head})

    def find(self, text: str) -> Iterator[int]:
        """The rules of which a pattern matches *text*; one of several patterns may be found twice."""
        yield from self._exact.get(text, ())
        for length in self._lengths:
            if length > len(text):
                return
            for pattern, of in self._by_head.get(text[:length], ()):
                if pattern.match(text) is not None:
                    yield of


class ImpliedInCircle(ValueError):
    """Scopes imply each other, in a circle."""

    def __init__(self, circle: Sequence[str]) -> None:
        super().__init__(f"scopes imply each other: {' > '.join(circle)}")
        self.circle = tuple(circle)


@attrs.define(eq=False)
class ScopeHierarchy:
    """Which scopes imply which others: all the way down, with shell patterns for many at once.

    Raises `ImpliedInCircle`.
    """

    implies: Mapping[str, Sequence[str]] = _NO_IMPLIES
    _all: dict[str, tuple[str, ...]] = attrs.field(factory=dict, init=False)
    _held: dict[tuple[frozenset[str], frozenset[str]], bool] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for scope in self.implies:
            self._follow(scope, ())

    def _follow(self, scope: str, way: tuple[str, ...]) -> tuple[str, ...]:
        """All patterns that *scope* implies."""
        if scope in way:
            raise ImpliedInCircle((*way[way.index(scope) :], scope))
        if scope in self._all:
            return self._all[scope]
        found = dict.fromkeys(self.implies[scope])
        for pattern in self.implies[scope]:
            for other in self.implies:
                is_meant = fnmatchcase(other, pattern)
                # `mcp:admin` may imply `mcp:*`, which is itself, too.
                if is_meant and not (other == scope and _WILD.search(pattern)):
                    found |= dict.fromkeys(self._follow(other, (*way, scope)))
        self._all[scope] = tuple(found)
        return self._all[scope]

    def holds(self, granted: frozenset[str], needed: frozenset[str]) -> bool:
        """Whether a caller with these *granted* scopes has all that are *needed*."""
        if needed <= granted:
            return True
        if not self._all:
            return False
        known = self._held.get((granted, needed))
        if known is None:
            implied = [pattern for scope in granted for pattern in self._all.get(scope, ())]
            known = all(scope in granted or _matches(implied, scope) for scope in needed)
            if len(self._held) >= MAX_HELD:
                self._held.clear()
            self._held[granted, needed] = known
        return known


class Gate:
    """The rules that match one operation, added up. Operations that the same rules match share one."""

    __slots__ = (
        *("_denies", "_hiding", "_holds", "_needing", "_needing_unlisted", "_onlys", "_open", "_shut"),
        *("is_private", "needs"),
    )

    def __init__(self, rules: Sequence[Rule], holds: Holds, *, is_shut: bool, scopes: frozenset[str]) -> None:
        self._holds = holds
        self._shut = is_shut or any(rule.deny is True for rule in rules)
        self._denies = tuple(one for rule in rules if isinstance(rule.deny, tuple) for one in rule.deny)
        self._onlys = tuple(rule.only for rule in rules if rule.only is not None)
        self.needs = scopes.union(*(rule.needs for rule in rules))
        self._hiding = NO_SCOPES.union(*(rule.needs for rule in rules if rule.hide))
        approve = max((rule.approve for rule in rules if rule.approve), key=APPROVALS.index, default=None)
        self._open = OPEN if approve is None else Decision(approve=approve)
        self.is_private = bool(self._shut or self._denies or self._onlys or self.needs)
        """Whether callers may be answered differently."""
        needs = tuple(sorted(self.needs))
        self._needing = Decision(needs=needs)
        self._needing_unlisted = Decision(needs=needs, is_listed=False)

    def decide(self, caller: Caller) -> Decision:
        if caller is TRUSTED:
            return OPEN
        if self._shut:
            return HIDDEN
        holds = self._holds
        for one in self._denies:
            if one.fits(caller, holds):
                return HIDDEN
        for only in self._onlys:
            for one in only:
                if one.fits(caller, holds):
                    break
            else:
                return HIDDEN
        if self.needs and not holds(caller.scopes, self.needs):
            return self._needing if holds(caller.scopes, self._hiding) else self._needing_unlisted
        return self._open


_GateKey: TypeAlias = tuple[str, str, str, str, frozenset[str]]


@attrs.define(eq=False)
class AccessRules:
    """All rules of a server. They are never changed: others take their place.

    The rules that match a name are worked out once, so that a call costs the same with one rule as with a thousand.
    """

    rules: Sequence[Rule] = ()
    implies: Mapping[str, Sequence[str]] = _NO_IMPLIES
    default: DefaultRule = "open"
    """What a tool, prompt or resource is that no rule matches."""
    hierarchy: ScopeHierarchy = attrs.field(init=False)
    guards_resources: bool = attrs.field(init=False)
    guards_methods: bool = attrs.field(init=False)
    approves: bool = attrs.field(init=False)
    """Whether there are calls of which a person must approve."""
    _by: Mapping[str, PatternIndex] = attrs.field(init=False)
    _gates: dict[_GateKey, Gate] = attrs.field(factory=dict, init=False)
    _alike: dict[tuple[tuple[int, ...], bool, frozenset[str]], Gate] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.hierarchy = ScopeHierarchy(self.implies)
        self._by = {
            name: PatternIndex((text, at) for at, rule in enumerate(self.rules) for text in getattr(rule, f"{name}s"))
            for name in _SELECTORS
        }
        self.approves = any(rule.approve is not None for rule in self.rules)
        self.guards_methods = any(rule.methods for rule in self.rules)
        read = METHOD_OF["resource"]
        self.guards_resources = self.default == "deny" or any(
            rule.resources or rule.is_of_servers or _matches(rule.methods, read) for rule in self.rules
        )

    # What is asked.

    def decide(
        self,
        caller: Caller,
        kind: GuardedKind,
        server: str,
        name: str,
        *,
        method: str | None = None,
        scopes: frozenset[str] = NO_SCOPES,
    ) -> Decision:
        """May *caller* use this tool, prompt or resource of *server*? *scopes* are those that the entry itself needs;
        the method is the usual one for its kind, or another that touches it."""
        key = (method or METHOD_OF[kind], kind, server, name, scopes)
        return (self._gates.get(key) or self._gate(key, self._of_item)).decide(caller)

    def decide_method(self, caller: Caller, method: str) -> Decision:
        """May *caller* use a method at all?"""
        key = (method, "", "", "", NO_SCOPES)
        gate = self._gates.get(key) or self._gate(key, self._of_method)
        return gate.decide(caller) if gate.is_private else OPEN

    def sees_server(self, caller: Caller, server: str) -> bool:
        """Whether *caller* may know that there is this server. With `default = "deny"` some rule must be about it."""
        return not self.decide_server(caller, server).is_hidden

    def decide_server(self, caller: Caller, server: str) -> Decision:
        """What the rules about a whole server say. Those about single entries of it add to that."""
        return self._gate(("", "server", server, "", NO_SCOPES), self._of_server).decide(caller)

    def holds(self, caller: Caller, scopes: Iterable[str]) -> bool:
        """Whether *caller* has all of these scopes, implied ones counted."""
        return caller is TRUSTED or self.hierarchy.holds(caller.scopes, frozenset(scopes))

    def gate(
        self,
        kind: GuardedKind,
        server: str,
        name: str,
        *,
        method: str | None = None,
        scopes: frozenset[str] = NO_SCOPES,
    ) -> Gate:
        """What guards this tool, prompt or resource."""
        key = (method or METHOD_OF[kind], kind, server, name, scopes)
        return self._gates.get(key) or self._gate(key, self._of_item)

    # How it is worked out.

    def _gate(self, key: _GateKey, find: Callable[[_GateKey], tuple[tuple[int, ...], bool]]) -> Gate:
        gate = self._gates.get(key)
        if gate is not None:
            return gate
        found, is_shut = find(key)
        alike = found, is_shut, key[4]
        gate = self._alike.get(alike)
        if gate is None:
            rules = [self.rules[index] for index in found]
            gate = Gate(rules, self.hierarchy.holds, is_shut=is_shut, scopes=key[4])
        if len(self._gates) >= MAX_GATES:
            self._gates.clear()
            self._alike.clear()
        self._alike[alike] = gate
        if len(key[3]) <= MAX_REMEMBERED:
            self._gates[key] = gate
        return gate

    def _of_method(self, key: _GateKey) -> tuple[tuple[int, ...], bool]:
        return tuple(sorted(set(self._by["method"].find(key[0])))), False

    def _of_server(self, key: _GateKey) -> tuple[tuple[int, ...], bool]:
        about = sorted(set(self._by["server"].find(key[2])))
        wholly = tuple(at for at in about if self.rules[at].is_of_servers)
        return wholly, self.default == "deny" and not about

    def _of_item(self, key: _GateKey) -> tuple[tuple[int, ...], bool]:
        method, kind, server, name, _ = key
        forms = [name]
        if kind == "resource" and (plain := plain_uri(name)) != name:
            forms.append(plain)  # a server may take the one for the other: so what is said of either counts
        of_server = set(self._by["server"].find(server))
        wholly = {at for at in of_server if self.rules[at].is_of_servers}
        found = {*self._by["method"].find(method), *wholly}
        is_shut = False
        for form in forms:
            named = {at for at in self._by[kind].find(form) if not self.rules[at].servers or at in of_server}
            found |= named
            is_shut = is_shut or (self.default == "deny" and not (named or wholly))
        return tuple(sorted(found)), is_shut


def plain_uri(uri: str) -> str:
    """A URI as a server may understand it: percent-decoded, without `.` and `..`, scheme and authority in lower case.

    For patterns alone. What is read is the URI as the client wrote it.
    """
    scheme, parted, rest = uri.partition(":")
    text = unquote(rest).replace("\\", "/")
    authority = ""
    if text.startswith("//"):
        authority, slash, path = text[2:].partition("/")
        authority, text = f"//{authority.lower()}", slash + path
    parts = text.split("/")
    kept = parts[:1]
    for part in (*(part for part in parts[1:-1] if part), *parts[1:][-1:]):  # `//` is `/` to most servers
        if part != "..":
            kept += () if part == "." else (part,)
        elif len(kept) > 1:
            kept.pop()
    return f"{scheme.lower()}{parted}{authority}{'/'.join(kept)}"


@attrs.frozen
class CallerView:
    """The rules, as they are for one caller."""

    rules: AccessRules
    caller: Caller

    def hides(self, kind: GuardedKind, server: str, name: str, method: str | None = None) -> bool:
        """Whether the caller may not know of it. Never says which scopes are missing."""
        return self.rules.decide(self.caller, kind, server, name, method=method).is_hidden

    def refuses(self, kind: GuardedKind, server: str, name: str, method: str | None = None) -> bool:
        """As `hides`, for what is about to be used. Raises `InsufficientScope`."""
        decision = self.rules.decide(self.caller, kind, server, name, method=method)
        decision.check()
        return decision.is_hidden

    def knows_server(self, server: str) -> bool:
        return self.rules.sees_server(self.caller, server)


NO_RULES: Final = AccessRules()
"""For entries that need scopes of their own where there are no rules."""
