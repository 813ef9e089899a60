"""One of the client processes of `listeners_many.py`: thousands of clients that listen, and a pipe to be told by."""

import gc
import resource
import time
from collections.abc import Iterator
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Final, TypeAlias

import attrs

from benchmarks.listeners_crowd import Crowd, Kind, Listener, Missing, Socket, Stream

SAID_EVERY: Final = 0.5
"""Seconds between two lines about how many clients are in."""
FOREVER: Final = 3600.0
"""Seconds that a process waits for an order at a time."""


@attrs.frozen
class Place:
    """What one process is given: which server, which addresses, and how much."""

    port: int
    count: int
    """Clients: streams and WebSockets by turns."""
    first_address: int
    each_address: int
    window: int
    patience: float


@attrs.frozen
class Gather:
    """Let all clients in. The process says `Inside` now and then, and at the end."""


@attrs.frozen
class Inside:
    """So many clients are in."""

    count: int


@attrs.frozen
class Listen:
    """Forget what was heard, say `Listening`, and then `Heard` when every client has heard the news."""


@attrs.frozen
class Listening:
    """What is published from now on counts."""


@attrs.frozen
class Heard:
    """When each client heard it, by the clock that all processes of the machine share."""

    at: list[float]


@attrs.frozen
class Check:
    """Say `Once` if no client has heard the news a second time."""


@attrs.frozen
class Once:
    """None has."""


@attrs.frozen
class Failed:
    """A client is missing, and why. The process ends."""

    why: str


Order: TypeAlias = Gather | Listen | Check
Answer: TypeAlias = Inside | Listening | Heard | Once | Failed


def main(descriptor: int) -> None:
    """The whole of such a process: *descriptor* is its end of the pipe."""
    with Connection(descriptor) as orders:
        try:
            place = orders.recv()
        except EOFError:
            return  # Ctrl-C ended the process that gives orders before it had said the place
        run(place, orders)


def run(place: Place, orders: Connection) -> None:
    """Say `Inside`, and do what is ordered until the other end of *orders* closes. Pings are answered meanwhile."""
    gc.disable()  # a collection among thousands of clients would be counted as the server's delay
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowd = Crowd(
        place.port,
        each_address=place.each_address,
        first_address=place.first_address,
        window=place.window,
        patience=place.patience,
    )
    crowd.watch(orders.fileno())
    try:
        orders.send(Inside(0))
        while True:
            crowd.is_called = False
            while not crowd.is_called:
                crowd.read(FOREVER)
            _obey(orders.recv(), place, crowd, orders)
    except (EOFError, BrokenPipeError):
        pass  # the process that gave orders is gone, or wants no more
    except (Missing, OSError) as error:
        orders.send(Failed(str(error)))
    finally:
        crowd.close()


def _obey(order: Order, place: Place, crowd: Crowd, orders: Connection) -> None:
    match order:
        case Gather():
            _gather(place.count, crowd, orders)
        case Listen():
            crowd.forget()
            orders.send(Listening())
            crowd.wait_told()
            orders.send(Heard([one.heard[0] for one in crowd.listeners]))
        case Check():
            crowd.check_once()
            orders.send(Once())


def _gather(count: int, crowd: Crowd, orders: Connection) -> None:
    kinds: Iterator[Kind] = cycle((Stream, Socket))
    said = time.perf_counter()

    def say(inside: int) -> None:
        nonlocal said
        if inside < count and time.perf_counter() - said > SAID_EVERY:
            said = time.perf_counter()
            orders.send(Inside(inside))

    def next_kind(port: int) -> Listener:
        return next(kinds)(port)

    crowd.gather(next_kind, count, say)
    orders.send(Inside(count))
