"""Shares of what all clients use together: how much each account holds, and how much is held in all.

An account is what fairness is counted by: the authenticated principal, or the address of an anonymous client. It says
nothing about identity: clients behind one proxy share an account, and still cannot see each other.
"""

from typing import Final

import attrs

from callboard.codecs.caller import ANYBODY
from callboard.errors import Overloaded

LOCAL: Final = f"{ANYBODY}@local"
"""The account of an anonymous client without an address: at a pipe, a Unix socket or in this process."""


def account_of(principal: str, peer: str) -> str:
    """The account of a client: its principal, or *peer* (see `anonymous_at`) if it is anonymous."""
    return peer if principal == ANYBODY else principal


def anonymous_at(host: str) -> str:
    """The account of an anonymous client at the address *host*."""
    return f"{ANYBODY}@{host}" if host else LOCAL


@attrs.define(eq=False)
class Shares:
    """Counts what is held (requests, sessions, bytes) for each account, and refuses what is too much.

    A principal may hold *each*. Many anonymous clients may share one address, so an address may hold more: all but a
    quarter of *most*, and that quarter stays for the others.

    What is counted here also counts in the *ledger*, if there is one, with its *weight* in bytes: so the bound of all
    that one account holds is one figure, and not the sum of many.
    """

    what: str
    most: int
    each: int
    weight: int = 1
    ledger: "Shares | None" = None
    each_address: int | None = None
    """Share of one address, if that differs from all but a quarter of *most*."""
    total: int = attrs.field(default=0, init=False)
    _held: dict[str, int] = attrs.field(factory=dict, init=False)

    def allow(self, most: int, each: int) -> None:
        """Set the bounds. What is held already stays held."""
        self.most, self.each = most, each

    def take(self, account: str, count: int = 1) -> None:
        """Hold *count* more for *account*. Raises `Overloaded`, and then nothing more is held."""
        self.check(account, count)
        self.hold(account, count)

    def hold(self, account: str, count: int = 1) -> None:
        """As `take`, after a `check`, with nothing in between."""
        if self.ledger is not None:
            self.ledger.hold(account, count * self.weight)
        self._held[account] = self._held.get(account, 0) + count
        self.total += count

    def check(self, account: str, count: int = 1) -> None:
        """Raises `Overloaded` if *account* could not take *count* more now."""
        held = self._held.get(account, 0) + count
        if self.total + count > self.most:
            raise Overloaded(f"too many {self.what}", for_all=True)
        if held > self.each and held > self.bound_of(account):
            raise Overloaded(f"too many {self.what}")
        if self.ledger is not None:
            self.ledger.check(account, count * self.weight)

    def give_back(self, account: str, count: int = 1) -> None:
        """Hold *count* less for *account*."""
        if self.ledger is not None:
            self.ledger.give_back(account, count * self.weight)
        self.total -= count
        rest = self._held[account] - count
        if rest:
            self._held[account] = rest
        else:
            del self._held[account]

    def held(self, account: str) -> int:
        """How much *account* holds."""
        return self._held.get(account, 0)

    def bound_of(self, account: str) -> int:
        """How much *account* may hold."""
        if not account.startswith(f"{ANYBODY}@"):
            return self.each
        return max(self.each, self.most - self.most // 4) if self.each_address is None else self.each_address

    def __len__(self) -> int:
        """How many accounts hold something."""
        return len(self._held)


class Hold:
    """What one object holds of a share, for as long as that object lives: a message that waits to be read.

    Raises `Overloaded` if there is no room. It gives back when the last reference to it goes, however that comes about:
    the message was written, dropped, or left in the mailbox of a session that ended.
    """

    __slots__ = ("_account", "_count", "_shares")

    def __init__(self, shares: Shares, account: str, count: int) -> None:
        self._count = 0
        self._shares, self._account = shares, account
        shares.take(account, count)
        self._count = count

    def __del__(self) -> None:
        if self._count:
            self._shares.give_back(self._account, self._count)
