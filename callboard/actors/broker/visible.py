"""Merged lists as callers see them: what rules hide is left out before anything is written."""

from collections.abc import Mapping
from typing import Final

import attrs

from callboard.actors.broker.merging import MergedEntry, MergedList
from callboard.actors.rules import AccessRules, Gate, GuardedKind
from callboard.codecs.bridge.definitions import PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind
from callboard.codecs.caller import Caller

GUARDED: Final[Mapping[Kind, GuardedKind]] = {
    TOOLS: "tool",
    PROMPTS: "prompt",
    RESOURCES: "resource",
    TEMPLATES: "resource",
}

MAX_LISTS: Final = 32
"""Lists that are kept for callers that do not see everything. One more is made when it is needed: ten thousand entries
take a millisecond."""


def guarded_name(kind: GuardedKind, entry: MergedEntry) -> str:
    """The name that rules go by: that of a tool or prompt as clients see it, the URI of a resource at its backend."""
    return entry.name if kind == "resource" else entry.guarded


def gates_of(merged: MergedList, kind: GuardedKind, rules: AccessRules) -> tuple[Gate, ...]:
    """What guards each entry of a list."""
    entries = merged.entries.values()
    return tuple(rules.gate(kind, entry.backend, guarded_name(kind, entry)) for entry in entries)


@attrs.frozen(eq=False)
class _Gated:
    """A list, and what guards each of its entries. Many entries share few gates, so a caller is looked at few times."""

    merged: MergedList
    gates: tuple[Gate, ...]
    apart: tuple[Gate, ...]

    def without(self, hidden: frozenset[Gate]) -> MergedList:
        pairs = zip(self.merged.entries.items(), self.gates, strict=True)
        return MergedList({shown: entry for (shown, entry), gate in pairs if gate not in hidden})


@attrs.define(eq=False)
class VisibleLists:
    """The lists of one catalogue, for each set of entries that some caller does not see: one object for callers
    that see the same, so that its pages are written once."""

    _rules: AccessRules | None = attrs.field(default=None, init=False)
    _gated: dict[MergedList, _Gated] = attrs.field(factory=dict, init=False)
    _lists: dict[tuple[MergedList, frozenset[Gate]], MergedList] = attrs.field(factory=dict, init=False)

    def clear(self) -> None:
        """The merged lists are others now."""
        self._gated.clear()
        self._lists.clear()

    def of(self, merged: MergedList, kind: Kind, rules: AccessRules, caller: Caller) -> MergedList:
        """*merged*, as *caller* sees it."""
        if rules is not self._rules:
            self.clear()
            self._rules = rules
        gated = self._gated.get(merged)
        if gated is None:
            gates = gates_of(merged, GUARDED[kind], rules)
            gated = self._gated[merged] = _Gated(merged, gates, tuple(dict.fromkeys(gates)))
        hidden = frozenset(gate for gate in gated.apart if not gate.decide(caller).is_listed)
        if not hidden:
            return merged
        key = merged, hidden
        found = self._lists.get(key)
        if found is None:
            if len(self._lists) >= MAX_LISTS:
                del self._lists[next(iter(self._lists))]
            found = self._lists[key] = gated.without(hidden)
        return found
