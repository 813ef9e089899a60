"""Quotas: how often a principal, a tenant, a tool or all clients together may ask. Arithmetic, no clock."""

from collections.abc import Callable, Hashable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from callboard.actors.rate import Rate, RateLimit
from callboard.codecs.caller import TRUSTED, Caller
from callboard.errors import Overloaded

MakeLimit: TypeAlias = Callable[[Rate, str], RateLimit]
"""Makes the meters for one purpose: in this process, or in memory that all workers share."""

UNCOUNTED: Final = frozenset({"ping"})
"""Methods that no quota counts: a client that only keeps its connection alive asks for nothing."""

_NO_TOOLS: Final[Mapping[str, Rate]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class QuotaSettings:
    """The quotas of a configuration. None: no such quota."""

    principal: Rate | None = None
    tenant: Rate | None = None
    all: Rate | None = None
    tools: Mapping[str, Rate] = _NO_TOOLS
    """By shell pattern: the calls of all clients to tools with such names."""


def own_limit(rate: Rate, _: str) -> RateLimit:
    return RateLimit(rate)


@attrs.define(eq=False)
class Quotas:
    """Counts requests. One that a quota refuses counts for none of them."""

    settings: QuotaSettings
    make: MakeLimit = own_limit
    _principal: RateLimit | None = attrs.field(init=False)
    _tenant: RateLimit | None = attrs.field(init=False)
    _all: RateLimit | None = attrs.field(init=False)
    _tools: tuple[tuple[str, RateLimit], ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        settings, make = self.settings, self.make
        self._principal = None if settings.principal is None else make(settings.principal, "quota principal")
        self._tenant = None if settings.tenant is None else make(settings.tenant, "quota tenant")
        self._all = None if settings.all is None else make(settings.all, "quota all")
        self._tools = tuple((one, make(rate, f"quota tool {one}")) for one, rate in settings.tools.items())

    @property
    def counts_tools(self) -> bool:
        """Whether some tools have quotas of their own."""
        return bool(self._tools)

    def count(self, caller: Caller, account: str, method: str, tool: str | None, now: float) -> None:
        """Count a request of *caller*. Its *account* is its key, or its address if it is anonymous.

        Raises `Overloaded`, with the seconds after which it would be let through.
        """
        if caller is TRUSTED or method in UNCOUNTED:
            return
        counted: list[tuple[RateLimit, Hashable]] = []
        for limit, who, whose in self._limits(caller, account, tool if method == "tools/call" else None):
            if limit.allow(who, now):
                counted.append((limit, who))
                continue
            for other, them in counted:
                other.allow(them, now, -1)
            after = limit.wait(who, now) or limit.rate.interval
            raise Overloaded(
                f"quota of {whose}: more than {limit.rate.count} in {limit.rate.per:g} s", retry_after=after
            )

    def _limits(self, caller: Caller, account: str, tool: str | None) -> list[tuple[RateLimit, Hashable, str]]:
        limits: list[tuple[RateLimit, Hashable, str]] = []
        if self._principal is not None:
            limits.append((self._principal, account, "this principal"))
        if self._tenant is not None and caller.tenant:
            limits.append((self._tenant, caller.tenant, "this tenant"))
        if tool is not None:
            limits += [(limit, "", "this tool") for one, limit in self._tools if fnmatchcase(tool, one)]
        if self._all is not None:
            limits.append((self._all, "", "all clients"))
        return limits
