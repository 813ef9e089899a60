"""A file of bearer tokens: the simplest way to authenticate clients."""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping, Set
from pathlib import Path
from typing import ClassVar, Final

import attrs

from callboard.codecs.caller import ANYBODY
from callboard.config.files import NotRegular, read_file
from callboard.errors import CannotRead, CannotServe
from callboard.supervisor import get_logger

log = get_logger("callboard.tokens")

MIN_TOKEN: Final = 16
"""Shortest token, in characters: what is shorter can be guessed."""

MAX_FILE: Final = 4 * 1024 * 1024
"""Largest file of tokens that is read, in bytes: some forty thousand of them."""


@attrs.frozen
class TokenTable:
    """The principal of each token. Only digests are kept, so that no dump and no log can tell a token."""

    _principals: Mapping[bytes, str]
    open_mode: str | None = None
    """The mode of the file, if others may read or write it."""

    @classmethod
    def read(cls, path: Path, *, is_running: bool = False) -> "TokenTable":
        """Lines of `principal token`; blank ones and those that begin with # are ignored. Raises `CannotServe`."""
        try:
            contents = read_file(path, MAX_FILE, is_running=is_running)
            lines = contents.data.decode().splitlines()
        except OSError as error:
            failure = CannotServe if isinstance(error, NotRegular) else CannotRead
            raise failure(f"{path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise CannotServe(f"{path}: not UTF-8") from None
        if len(contents.data) > MAX_FILE:
            raise CannotServe(f"{path}: larger than {MAX_FILE} bytes")
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
            raise CannotServe(f"{path}: no tokens: every request would be rejected")
        return cls(found, f"{contents.mode & 0o777:04o}" if contents.others_may_read else None)

    @property
    def principals(self) -> Set[str]:
        return set(self._principals.values())

    def differs(self, other: "TokenTable") -> int:
        """How many tokens are in here, and not, or for another principal, in *other*."""
        return len(self._principals.items() - other._principals.items())  # noqa: SLF001  # one of us

    async def __call__(self, token: str) -> str | None:
        """The principal of *token*. Takes as long for a wrong one as for a right one."""
        given, principal = _digest(token), None
        for known, whose in self._principals.items():
            if hmac.compare_digest(known, given):
                principal = whose
        return principal


@attrs.define(eq=False)
class TokenFile:
    """The tokens of a file, as it is now: read at the start, and again when it changes."""

    path: Path
    tokens: TokenTable = attrs.field(init=False)
    on_gone: Callable[[Set[str]], Awaitable[int]] | None = attrs.field(default=None, init=False)
    """Ends what is open for these principals; how much that was."""

    name: ClassVar[str] = "tokens"

    def __attrs_post_init__(self) -> None:
        self.tokens = TokenTable.read(self.path)
        self._warn(None)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    def read(self) -> TokenTable:
        """Read the file. Raises `CannotServe`."""
        return TokenTable.read(self.path, is_running=True)

    async def use(self, tokens: TokenTable) -> Mapping[str, object]:
        """Go by *tokens* from the next request on; how that differs. Principals without any token left are cut off."""
        before, self.tokens = self.tokens, tokens
        self._warn(before.open_mode)
        gone = before.principals - tokens.principals
        ended = await self.on_gone(gone) if gone and self.on_gone is not None else 0
        added, revoked = tokens.differs(before), before.differs(tokens)
        return {"principals": len(tokens.principals), "added": added, "revoked": revoked, "sessions_ended": ended}

    async def __call__(self, token: str) -> str | None:
        return await self.tokens(token)

    def _warn(self, before: str | None) -> None:
        mode = self.tokens.open_mode
        if mode is not None and mode != before:
            log.warning("token_file_readable_by_others", file=str(self.path), mode=mode, fix="chmod 600")


def _problem(words: list[str], found: Mapping[bytes, str]) -> str | None:
    if len(words) != 2:
        return "expected a principal and a token, separated by a space"
    principal, token = words
    if principal == ANYBODY:
        return f"the principal {ANYBODY} is reserved for clients without a token"
    if len(token) < MIN_TOKEN:
        return f"the token is shorter than {MIN_TOKEN} characters"
    if _digest(token) in found:
        return "duplicate token"
    return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
