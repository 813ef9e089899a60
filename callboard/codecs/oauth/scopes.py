"""Scopes to request: those that the operation needs, and those of earlier requests."""

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

OFFLINE: Final = "offline_access"
MAX_SCOPES: Final = 128
"""Most scopes that are asked for at once; a server that names more of them has the first."""

Scopes: TypeAlias = tuple[str, ...]

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")


def split(scope: str | None) -> Scopes:
    """The scopes in a parameter, those that are none left out."""
    return union((scope or "").split(" "))


def union(*several: Iterable[str]) -> Scopes:
    """All of them, each once, in the order in which they came."""
    found = dict.fromkeys(scope for scopes in several for scope in scopes if _SCOPE.fullmatch(scope))
    return tuple(found)[:MAX_SCOPES]


def choose(
    challenged: str | None, supported: Iterable[str] | None, own: Iterable[str], earlier: Iterable[str]
) -> Scopes:
    """What to ask for: what the challenge names, else all that the resource supports; and with it what the user wants
    (*own*), and what was asked for before (*earlier*). Nothing, if none of them names any."""
    needed = split(challenged) if challenged else tuple(supported or ())
    return union(own, earlier, needed)


def with_refresh(scopes: Scopes, offered: Iterable[str] | None, *, wants: bool) -> Scopes:
    """Add `offline_access` if the authorization server offers it, and take it out if it does not.

    Alone it would take the place of the scopes that a server gives to a client that asks for none.
    """
    others = tuple(scope for scope in scopes if scope != OFFLINE)
    if OFFLINE not in (offered or ()) or not others:
        return others
    return (*others, OFFLINE) if wants or OFFLINE in scopes else others
