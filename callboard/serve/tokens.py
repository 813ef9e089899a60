"""A file of bearer tokens: the simplest way to authenticate clients."""

import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import ClassVar, Final, TypeAlias

import attrs

from callboard.codecs.caller import Caller, caller_of_key
from callboard.codecs.oauth.presented import PresentedToken
from callboard.config.files import NotRegular, read_file
from callboard.errors import BadToken, CannotRead, CannotServe
from callboard.serve.token_line import TokenLine, read_line, token_digest
from callboard.supervisor.audit import note

TokenTerms: TypeAlias = tuple[str, frozenset[str], float | None]

MAX_FILE: Final = 4 * 1024 * 1024
"""Largest file of tokens that is read, in bytes: some forty thousand of them."""

_KEY: Final = secrets.token_bytes(32)


@attrs.frozen
class TokenTable:
    """The caller of each token.

    A token is looked up by a keyed digest, with a key that this process has drawn: the time that takes depends on
    neither the number of tokens nor their text, since no client can choose how a digest begins. No dump tells a token.
    """

    _callers: Mapping[bytes, Caller] = attrs.field(factory=dict, repr=False)
    clock: Callable[[], float] = time.time

    @classmethod
    def of(cls, lines: Iterable[TokenLine]) -> "TokenTable":
        return cls({_place(line.digest): line.caller for line in lines})

    @classmethod
    def read(cls, path: Path, *, is_running: bool = False) -> "TokenTable":
        """Lines as `token_line` has them; blank ones and those that begin with # are ignored. Raises `CannotServe`.

        A file without any token is refused: at the start it is a mistake, and a server that *is_running* may see one
        that is still being written. But to a running server one with nothing but comments says that all are revoked.
        """
        text = read_text(path, is_running=is_running)
        lines = read_lines(path, text)
        if not lines and not (is_running and text.strip()):
            raise CannotServe(f"{path}: no tokens: every request would be rejected")
        return cls.of(lines)

    @property
    def keys(self) -> Set[str]:
        """The callers that have a token which has not ended."""
        now = self.clock()
        return {caller.key for caller in self._callers.values() if caller.expires is None or caller.expires > now}

    def known(self, token: str) -> Caller | None:
        """The caller of *token*, and the same object every time; None if it is wrong, or has ended."""
        caller = self._callers.get(_place(token_digest(token)))
        if caller is None or caller.expires is None or caller.expires > self.clock():
            return caller
        return None

    def after(self, before: "TokenTable") -> "TokenTable":
        """The same, with the callers of *before* where they are as they were."""
        kept = {
            place: old if (old := before._callers.get(place)) is not None and _says(old) == _says(new) else new  # noqa: SLF001  # one of us
            for place, new in self._callers.items()
        }
        return TokenTable(kept, before.clock)

    def missing(self, before: "TokenTable") -> list[Caller]:
        """The callers of those tokens of *before* that are not in here, or say something else here."""
        callers = self._callers
        return [caller for place, caller in before._callers.items() if callers.get(place) is not caller]  # noqa: SLF001  # one of us

    def narrowed(self, before: "TokenTable") -> Set[str]:
        """Callers of *before* with a token that has fewer scopes here, or ends sooner."""
        pairs = ((old, self._callers.get(place)) for place, old in before._callers.items())  # noqa: SLF001  # one of us
        return {
            old.key for old, new in pairs if new is not None and (old.scopes - new.scopes or _ends_sooner(old, new))
        }

    def removed(self, before: "TokenTable") -> Set[TokenTerms]:
        """What those tokens of *before* said that are not in here."""
        return {_says(old) for place, old in before._callers.items() if place not in self._callers}  # noqa: SLF001  # one of us

    async def __call__(self, token: str) -> Caller | None:
        return self.known(token)

    async def verify(self, presented: PresentedToken) -> Caller:
        """Raises `BadToken`."""
        caller = self.known(presented.token) if presented.scheme == "bearer" else None
        if caller is None:
            raise BadToken
        return caller


@attrs.define(eq=False)
class TokenFile:
    """The tokens of a file, as it is now: read at the start, and again when it changes."""

    path: Path
    tokens: TokenTable = attrs.field(init=False)
    on_gone: Callable[[Set[str]], Awaitable[int]] | None = attrs.field(default=None, init=False)
    """Ends what is open for the callers with these keys; how much that was."""
    on_removed: Callable[[Callable[[Caller], bool]], Awaitable[int]] | None = attrs.field(default=None, init=False)
    """Ends what was opened with tokens of which this is true. Their callers may have others."""

    name: ClassVar[str] = "tokens"

    def __attrs_post_init__(self) -> None:
        self.tokens = TokenTable.read(self.path)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    def read(self) -> TokenTable:
        """Read the file. Raises `CannotServe`."""
        return TokenTable.read(self.path, is_running=True)

    async def use(self, tokens: TokenTable) -> Mapping[str, object]:
        """Go by *tokens* from the next request on; how that differs.

        Callers without any token left are cut off. So are those of which a token has less to say now: a WebSocket goes
        on with what its token said when it was opened.
        """
        before = self.tokens
        self.tokens = tokens = tokens.after(before)
        gone = (before.keys - tokens.keys) | tokens.narrowed(before)
        for key in sorted(gone):
            note("principal_revoked", caller=caller_of_key(key), reason="token file")
        ended = await self.on_gone(gone) if gone and self.on_gone is not None else 0
        removed = tokens.removed(before)
        if removed and self.on_removed is not None:
            ended += await self.on_removed(lambda caller: _says(caller) in removed)
        added, revoked = len(before.missing(tokens)), len(tokens.missing(before))
        return {"principals": len(tokens.keys), "added": added, "revoked": revoked, "sessions_ended": ended}

    def known(self, token: str) -> Caller | None:
        """The caller of *token*, and the same object until the file says something else of it."""
        return self.tokens.known(token)

    async def verify(self, presented: PresentedToken) -> Caller:
        """Raises `BadToken`."""
        return await self.tokens.verify(presented)

    async def __call__(self, token: str) -> Caller | None:
        return self.tokens.known(token)


def read_text(path: Path, *, is_running: bool = False) -> str:
    """The text of a file that no other user may read or write. Raises `CannotServe`."""
    try:
        contents = read_file(path, MAX_FILE, is_running=is_running)
        text = contents.data.decode()
    except OSError as error:
        failure = CannotServe if isinstance(error, NotRegular) else CannotRead
        raise failure(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CannotServe(f"{path}: not UTF-8") from None
    if len(contents.data) > MAX_FILE:
        raise CannotServe(f"{path}: larger than {MAX_FILE} bytes")
    if contents.others_may_read:
        mode = f"{contents.mode & 0o777:04o}"
        raise CannotServe(f"{path}: other users can read or change it (mode {mode}); run: chmod 600 {path}")
    return text


def read_lines(path: Path, text: str) -> list[TokenLine]:
    """Raises `CannotServe` with the number of the first line that is wrong."""
    found: dict[bytes, TokenLine] = {}
    for number, written in enumerate(text.splitlines(), 1):
        try:
            line = read_line(written)
        except ValueError as error:
            raise CannotServe(f"{path}, line {number}: {error}") from None
        if line is None:
            continue
        if found.setdefault(line.digest, line) is not line:
            raise CannotServe(f"{path}, line {number}: duplicate token")
    return list(found.values())


def _place(digest: bytes) -> bytes:
    return hashlib.blake2b(digest, key=_KEY, digest_size=32).digest()


def _says(caller: Caller) -> TokenTerms:
    """What tells tokens apart, at other workers, too. Two that say the same end together: their clients come again."""
    return caller.key, caller.scopes, caller.expires


def _ends_sooner(old: Caller, new: Caller) -> bool:
    return new.expires is not None and (old.expires is None or new.expires < old.expires)
