"""Arguments of a tool that clients are not shown: refused from a client, and put into each call by the broker."""

from collections.abc import Mapping
from typing import Any, Final, Self

import attrs
import msgspec
from msgspec import Raw

from callboard.codecs.members import Members, read_members, write_members
from callboard.errors import InvalidParams, PeerError

_NONE: Final = Raw(b"{}")
_WORD: Final = 128
"""Characters of an argument's name that an error repeats."""


@attrs.frozen(eq=False)
class HiddenArguments:
    """What of a tool's arguments is the broker's. The client's own go on in the bytes that they came in."""

    names: frozenset[str]
    """In one case: JSON readers that go by the letters alone (Go's is one) take `Region` for `region`."""
    shown: frozenset[str]
    """Arguments that clients are shown. They are no look-alikes."""
    fixed: bytes = attrs.field(default=b"", repr=False)
    """Members to be added, without braces: `"region":"north"`. They may be secret."""

    @classmethod
    def of(cls, hidden: frozenset[str], shown: frozenset[str], fixed: Mapping[str, Any]) -> Self:
        return cls(frozenset(map(str.casefold, hidden)), shown - hidden, write_members(fixed)[1:-1] if fixed else b"")

    def check(self, params: Members) -> None:
        """Raises `InvalidParams` for arguments that the client may not give, or that are not clear."""
        self._read(params.get("arguments"))

    def put_into(self, params: Members) -> Raw:
        """The arguments as the backend gets them. Raises as `check` does."""
        given = params.get("arguments", _NONE)
        members = self._read(given)
        if not self.fixed:
            return given
        data = bytes(given) if members else b"{}"
        return Raw(b"%b%b%b}" % (data[: data.rindex(b"}")], b"," if members else b"", self.fixed))

    def _read(self, given: Raw | None) -> Members:
        """The client's arguments. A key that stands twice is refused: servers differ in which of the two counts."""
        if given is None or bytes(given) == b"null":
            return {}
        try:
            members = read_members(given)
        except (PeerError, msgspec.MsgspecError) as error:
            raise InvalidParams(f"params.arguments: {error}") from None
        for name in members:
            if name.casefold() in self.names and name not in self.shown:
                raise InvalidParams(f"params.arguments: unknown argument {name[:_WORD]!r}")
        return members
