"""What a parent and its workers say to each other, on a socket that only those two have: one JSON object a line."""

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec

VARIABLE: Final = "CALLBOARD_WORKER_DESCRIPTOR"
"""Environment variable with the descriptor on which a worker is told who it is. It is no secret."""

MAX_MESSAGE: Final = 4 * 1024 * 1024
"""Largest message, in bytes: the news of a moment, or the peers of a worker."""


class Message(msgspec.Struct, frozen=True, tag_field="kind", tag=lambda name: name.lower(), omit_defaults=True):
    """Base of all of them."""


# The parent's.


class Assignment(Message, frozen=True):
    """The first message: who the worker is, and what it serves with. Keys are here and in no argument or variable."""

    name: bytes
    number: int
    generation: int
    slot: int
    page: int
    """Descriptor of the page of loads."""
    meters: int
    """Descriptor of the page of meters."""
    keys: list[bytes]
    """The key ring, newest first."""
    folder: str
    """Where the sockets of all workers are."""
    listening: list[tuple[int, list[int]]]
    """For each address its port, and the descriptors that listen."""
    is_keeper: bool = False
    """Whether it serves no clients, but owns the backends that workers share."""
    has_keeper: bool = False
    """Whether there is such a process."""

    def __repr__(self) -> str:
        return f"<Assignment of worker-{self.number}>"  # never the keys


class PeerWorker(msgspec.Struct, frozen=True):
    """A worker that serves."""

    name: bytes
    number: int
    generation: int
    hangs: bool = False
    """Whether it has not answered for a while: then nothing is sent to it."""
    address: tuple[str, int] | None = None
    """Where it is reached, if that is another machine."""
    is_leaving: bool = False
    """Whether it ends soon: it opens no more sessions."""


class PeerWorkers(Message, frozen=True):
    """All workers that serve now."""

    workers: list[PeerWorker]


class Known(Message, frozen=True):
    """The other workers know this one, and can forward to it: it may take clients."""


class AreYouThere(Message, frozen=True):
    """Is it alive? The worker says the same number."""

    number: int


class Leave(Message, frozen=True):
    """A newer generation serves: take no more connections, finish what was begun, and end after *linger* seconds."""

    linger: float
    drain_time: float | None = None
    """Seconds for the drain after that; none for those of the settings."""


class Show(Message, frozen=True):
    """What is to be seen of it? Answered by `Shown` with the same number."""

    number: int
    what: Literal["view", "history", "metrics", "stderr"] = "view"
    """Its view; that with the history; what it counts; or the last lines of a server on standard error."""
    about: str = ""
    """The name of that server."""


class ActionWanted(Message, frozen=True):
    """Do what the operator wants. Answered by `Shown`: whether there was such a server, tool or client."""

    number: int
    action: str
    subject: str


class Taken(Message, frozen=True):
    """Where a session is: its worker, and its record if that is the one that asked. Neither: there is none such."""

    number: int
    home: bytes | None = None
    record: bytes | None = None
    later: bool = False
    """Whether that cannot be said now."""


# The worker's.


class Reachable(Message, frozen=True):
    """Other workers can reach it. Answered by `Known`."""

    port: int = 0
    """Where workers of other nodes reach it."""


class Started(Message, frozen=True):
    """It serves. The banner is written from this."""

    server: str
    version: str
    warnings: list[str]
    servers: list[tuple[str, str, bool, str]] | None = None
    """Of a broker: the name of each backend, its state, whether it is up, and why not."""
    tools: int = 0
    example: str | None = None
    port: int = 0
    """Where workers of other nodes reach it."""
    is_ready: bool = True
    """Whether it could answer a request now: backends that it needs may not be up."""
    files: list[str] = []
    """The author's files that it has loaded, if a change of them is to be noticed."""


class StillThere(Message, frozen=True):
    """It is alive; and whether it is ready to serve."""

    number: int
    is_ready: bool


class Keep(Message, frozen=True):
    """A session of this worker, as it is written down."""

    key: str
    record: bytes


class Drop(Message, frozen=True):
    """It has ended."""

    key: str


class Release(Message, frozen=True):
    """Another worker may open it again."""

    key: str


class AllSessions(Message, frozen=True):
    """All sessions of this worker are said anew, from the first of these to the second. Others have ended: what was
    noted of them was too much to wait for the parent."""

    is_over: bool


class Take(Message, frozen=True):
    """Where is it? Answered by `Taken` with the same number."""

    key: str
    number: int


class Shown(Message, frozen=True):
    """What is to be seen of the worker."""

    number: int
    said: msgspec.Raw


# Either's.


class Told(Message, frozen=True):
    """Changes that clients may follow: the name of a list, or the URI of a resource."""

    lists: list[str] = []
    resources: list[str] = []
    everything: bool = False
    """Whether all of them may have changed: what was missed is not known."""


FromParent: TypeAlias = ActionWanted | Assignment | PeerWorkers | Known | AreYouThere | Leave | Show | Taken | Told
FromWorker: TypeAlias = Reachable | Started | StillThere | Keep | Drop | Release | AllSessions | Take | Shown | Told

_encoder: Final = msgspec.json.Encoder()


def write_message(message: Message) -> bytes:
    return _encoder.encode(message) + b"\n"


class MessageLines:
    """Bytes to lines. Raises ValueError for one that is too long: the other end is not ours, or is out of its mind."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_MESSAGE:
            raise ValueError("a message is too long")
        yield from lines
