"""Long work in short steps, between which other tasks run."""

from collections.abc import Generator, Iterable
from time import perf_counter
from typing import Final, TypeAlias, TypeVar

import trio

T = TypeVar("T")

STEP: Final = 0.002
"""Seconds that such work may take before others get a turn. The part that is begun is finished."""

Parts: TypeAlias = Generator[None, None, T]
"""Work that may rest wherever it yields. What it reads later may have changed since then."""


async def in_turns(parts: Parts[T]) -> T:
    """Do all *parts*. Returns what they return."""
    await trio.lowlevel.checkpoint()
    began = perf_counter()
    while True:
        try:
            next(parts)
        except StopIteration as done:
            found: T = done.value
            return found
        if perf_counter() - began >= STEP:
            await trio.lowlevel.checkpoint()
            began = perf_counter()


def collected(some: Iterable[T | None]) -> Parts[list[T]]:
    """A list of *some*, made one by one. None stands for one that was looked at, and is not wanted."""
    found: list[T] = []
    for one in some:
        if one is not None:
            found.append(one)
        yield
    return found
