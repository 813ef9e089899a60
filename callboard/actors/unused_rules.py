"""Rules that name a tool which there is not: such a rule guards nothing, so the operator is told."""

from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final

import attrs

from callboard.actors.rules import AccessRules, PatternIndex, Rule
from callboard.supervisor import get_logger

log = get_logger("callboard.actors")

SELECTORS: Final = ("servers", "tools", "prompts", "resources", "methods")

MOST_TOLD: Final = 16
"""Patterns that match no tool of which the operator is told at once."""

MOST_COMPARED: Final = 2000
"""Names of tools that are compared with a mistyped one, to say which one may be meant."""


@attrs.frozen
class KnownTools:
    """The tools of a host, when it is looked at."""

    tools: Collection[tuple[str, str]]
    """The server and the name of each, as rules know them."""
    unknown: Collection[str] = ()
    """Servers of which the tools are not known: they are down, or were never asked."""


@attrs.frozen
class UnusedPattern:
    """A pattern of `tools` that matches no tool."""

    rule: str
    tool: str
    nearest: str | None = None
    """The tool that may be meant."""

    def __str__(self) -> str:
        hint = f"; did you mean `{self.nearest}`?" if self.nearest else ""
        return f"the rule {self.rule} guards nothing: no tool matches `{self.tool}`{hint}"


def rule_text(rule: Rule) -> str:
    """What a rule is about, as the operator knows it: `servers=acme-*, tools=x y`."""
    return ", ".join(f"{name}={' '.join(getattr(rule, name))}" for name in SELECTORS if getattr(rule, name))


def may_be_of(rule: Rule, server: str) -> bool:
    """Whether a rule can be for tools of *server*."""
    return not rule.servers or any(fnmatchcase(server, one) for one in rule.servers)


def unused_patterns(rules: AccessRules, known: KnownTools) -> list[tuple[Rule, str]]:
    """The patterns of `tools` that match no tool, each with its rule. Where a server of the rule may have such a tool,
    but its tools are not known, nothing can be said."""
    patterns = [
        (rule, text)
        for rule in rules.rules
        if not any(may_be_of(rule, server) for server in known.unknown)
        for text in rule.tools
    ]
    if not patterns:
        return []
    index = PatternIndex((text, at) for at, (_, text) in enumerate(patterns))
    used = {at for server, name in known.tools for at in index.find(name) if may_be_of(patterns[at][0], server)}
    return [one for at, one in enumerate(patterns) if at not in used]


@attrs.define(eq=False)
class UnusedRules:
    """Finds them, and warns of each once."""

    look: Callable[[], KnownTools]
    _told: set[tuple[str, str]] = attrs.field(factory=set, init=False)

    def find(self, rules: AccessRules) -> Sequence[UnusedPattern]:
        """Those that nothing was said of, a few at most."""
        if not any(rule.tools for rule in rules.rules):
            return ()
        known = self.look()
        news = [one for one in unused_patterns(rules, known) if (rule_text(one[0]), one[1]) not in self._told]
        names = [name for _, name in islice(known.tools, MOST_COMPARED)]
        found = []
        for rule, text in news[:MOST_TOLD]:
            near = get_close_matches(text, names, n=1)
            found.append(UnusedPattern(rule_text(rule), text, near[0] if near else None))
        return found

    def warn(self, rules: AccessRules | None) -> None:
        """Log what is found."""
        for one in () if rules is None else self.find(rules):
            self._told.add((one.rule, one.tool))
            log.warning("rule_unused", rule=one.rule[:500], tool=one.tool[:128], nearest=one.nearest)
