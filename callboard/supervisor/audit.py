"""Facts for the audit log, told from any room of the house. The log itself is in `observe`, above most of them.

Without an audit log nothing listens, and a note costs as much as a look at an empty list.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

Taker: TypeAlias = Callable[[str, Mapping[str, object]], None]

WhenFull: TypeAlias = Literal["drop", "refuse"]
WHEN_FULL: Final[tuple[WhenFull, ...]] = ("drop", "refuse")

AuditArguments: TypeAlias = Literal["none", "digest"]
AUDIT_ARGUMENTS: Final[tuple[AuditArguments, ...]] = ("none", "digest")

ON_STANDARD_ERROR: Final = "-"
"""Name of an audit file that stands for standard error."""

_takers: Final[list[Taker]] = []


def note(event: str, **fields: object) -> None:
    """Have *event* written into the audit log of this process, if it keeps one. Call it in the task of an actor: not in
    a thread.

    Fields are names, numbers and reasons of ours: never a token, an argument, a result or a claim. Their texts are
    clipped and cleaned. Those of `AuditLine` have its meaning; others go into its `detail`.
    """
    for take in tuple(_takers):
        take(event, fields)


def is_audited() -> bool:
    """Whether it is worth while to gather facts."""
    return bool(_takers)


@contextmanager
def taking_notes(take: Taker) -> Iterator[None]:
    """Have *take* told of every note."""
    _takers.append(take)
    try:
        yield
    finally:
        _takers.remove(take)
