"""What a caller would see: the rules of a file, read for one set of scopes, claims, tenant and principal."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from callboard.actors.rules import NO_RULES, NO_SCOPES, Decision, Gate
from callboard.actors.unused_rules import rule_text
from callboard.codecs.bridge.names import SEPARATOR
from callboard.codecs.caller import ANYBODY, Caller
from callboard.config.authorization import AuthorizationSettings
from callboard.errors import CannotServe


@attrs.frozen(kw_only=True)
class AssumedCaller:
    """The flags that say which caller is meant."""

    said: tuple[str, ...] = ()
    """`scope=a b`, `principal=p`, `tenant=t`."""
    tenant: str = ""
    principal: str = ""
    claims: tuple[str, ...] = ()

    def caller(self) -> Caller:
        """Raises `CannotServe` for a flag that cannot be read."""
        parts: dict[str, Any] = {"tenant": self.tenant, "principal": self.principal or ANYBODY, "scopes": []}
        for one in self.said:
            name, parted, value = one.partition("=")
            if not parted or name not in ("scope", "principal", "tenant"):
                raise CannotServe(f"--as {one!r}: expected scope=..., principal=... or tenant=...")
            if name == "scope":
                parts["scopes"] += value.split()
            else:
                parts[name] = value
        return Caller(**parts, claims=dict(self._claims()))

    def _claims(self) -> Iterator[tuple[str, str | list[str]]]:
        found: dict[str, list[str]] = {}
        for one in self.claims:
            name, parted, value = one.partition("=")
            if not parted or not name:
                raise CannotServe(f"--claim {one!r}: expected NAME=VALUE")
            found.setdefault(name, []).append(value)
        for name, values in found.items():
            yield name, values if len(values) > 1 else values[0]


def seen_by(
    caller: Caller, settings: AuthorizationSettings | None, servers: Sequence[tuple[str, str]], tools: Sequence[str]
) -> list[dict[str, Any]]:
    """What *caller* would see: a row for each server (name and prefix), each rule and each of the *tools*."""
    rules = NO_RULES if settings is None else settings.make_rules() or NO_RULES
    rows = [_row("server", name, rules.decide_server(caller, name)) for name, _ in servers]
    for rule in rules.rules:
        gate = Gate([rule], rules.hierarchy.holds, is_shut=False, scopes=NO_SCOPES)
        rows.append(_row("rule", rule_text(rule), gate.decide(caller)))
    decided = [rules.decide(caller, "tool", _owner(name, servers), name) for name in tools]
    return rows + [_row("tool", name, decision) for name, decision in zip(tools, decided, strict=True)]


def _row(kind: str, name: str, decision: Decision) -> dict[str, Any]:
    seen = "hidden" if decision.is_hidden else "needs scopes" if decision.needs else "open"
    return {"kind": kind, "name": name, "seen": seen, "scopes": list(decision.needs), "approve": decision.approve}


def _owner(tool: str, servers: Sequence[tuple[str, str]]) -> str:
    """The server that a tool of this name is of, by its prefix: nothing is started to ask."""
    fitting = [(prefix, name) for name, prefix in servers if not prefix or tool.startswith(prefix + SEPARATOR)]
    return max(fitting, default=("", ""), key=lambda one: len(one[0]))[1]
