"""A file of bearer tokens: the simplest way to know who calls."""

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from callboard.actors.terms import ANYBODY
from callboard.errors import CannotServe

MIN_TOKEN: Final = 16
"""Shortest token, in characters: what is shorter can be guessed."""


@attrs.frozen
class Tokens:
    """Who each token stands for. Only digests are kept, so that no dump and no log can tell a token."""

    _principals: Mapping[bytes, str]

    @classmethod
    def read(cls, path: Path) -> "Tokens":
        """Lines of `principal token`; blank ones and those that begin with # are ignored. Raises `CannotServe`."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CannotServe(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
        found: dict[bytes, str] = {}
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            problem = _problem(words, found)
            if problem:
                raise CannotServe(f"{path}, line {number}: {problem}")
            found[_digest(words[1])] = words[0]
        if not found:
            raise CannotServe(f"{path}: there is no token in it, so nobody could come in")
        return cls(found)

    async def __call__(self, token: str) -> str | None:
        """The principal of *token*. Takes as long for a wrong one as for a right one."""
        given, principal = _digest(token), None
        for known, whose in self._principals.items():
            if hmac.compare_digest(known, given):
                principal = whose
        return principal


def _problem(words: list[str], found: Mapping[bytes, str]) -> str | None:
    if len(words) != 2:
        return "write a principal and a token, with a blank in between"
    principal, token = words
    if principal == ANYBODY:
        return f"{ANYBODY} is what those are called who have no token"
    if len(token) < MIN_TOKEN:
        return f"the token is shorter than {MIN_TOKEN} characters"
    if _digest(token) in found:
        return "this token stands in the file already"
    return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
