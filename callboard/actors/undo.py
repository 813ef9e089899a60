"""What was begun for a block that does not come to its end is undone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def undo_unless_done(undo: Callable[[], object]) -> Iterator[None]:
    """Call *undo* if the block raises, or is cancelled. What it raises comes out as it is."""
    try:
        yield
    except BaseException:
        undo()
        raise
