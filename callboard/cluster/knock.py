"""Whether a worker of another node can be reached: by a connection that is closed again at once."""

from typing import Final, Literal, TypeAlias

import trio

KNOCK_TIME: Final = 1.0
"""Seconds for a machine to answer. Its kernel does, also for a process that is busy."""

Answered: TypeAlias = Literal["there", "refused", "silent"]


async def knock(host: str, port: int) -> Answered:
    """*refused*: the machine is there, and the worker is not, nor will be: ports are not named twice. *silent*: there
    was no answer, which says nothing about the worker."""
    with trio.move_on_after(KNOCK_TIME):
        try:
            stream = await trio.open_tcp_stream(host, port, happy_eyeballs_delay=KNOCK_TIME / 4)
        except OSError as error:
            return "refused" if _is_refused(error) else "silent"
        await trio.aclose_forcefully(stream)
        return "there"
    return "silent"


def _is_refused(error: BaseException) -> bool:
    """Whether every address of the host said so."""
    if isinstance(error, ConnectionRefusedError):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(_is_refused(one) for one in error.exceptions)
    return error.__cause__ is not None and _is_refused(error.__cause__)
