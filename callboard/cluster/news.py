"""What nodes tell each other through the store: that they are there, and which lists and resources have changed."""

import math
from typing import Final, Literal

import attrs
import msgspec

from callboard.codecs.seal import KeyRing, Seal
from callboard.workers.messages import Told

MAX_NEWS_BYTES: Final = 32 * 1024
"""Bytes of URIs that wait to be told, or are told at once. With more, every list and resource is said to have changed:
so much fits one message."""

ALL: Final = Told(everything=True)


class NodeMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a node to all others. It is sealed: what others write to the store is not listened to."""

    node: str
    kind: Literal["beat", "changed", "gone", "told"]
    lists: list[str] = []
    resources: list[str] = []
    everything: bool = False


_decoder: Final = msgspec.json.Decoder(NodeMessage)


def write_node_message(message: NodeMessage, ring: KeyRing) -> str:
    return Seal(ring, "node message").close(msgspec.json.encode(message), (), expires=math.inf)


def read_node_message(text: bytes, ring: KeyRing) -> NodeMessage | None:
    """None for what no node with these keys has written."""
    try:
        opened = Seal(ring, "node message").open(text.decode(), (), now=0.0)
        return None if opened is None else _decoder.decode(opened.payload)
    except (UnicodeDecodeError, msgspec.MsgspecError):
        return None


@attrs.define(eq=False)
class PendingNews:
    """Changes that are not told yet; those of one thing are one."""

    _lists: dict[str, None] = attrs.field(factory=dict, init=False)
    _resources: dict[str, None] = attrs.field(factory=dict, init=False)
    _bytes: int = attrs.field(default=0, init=False)
    _everything: bool = attrs.field(default=False, init=False)

    def add(self, told: Told) -> None:
        self._everything |= told.everything
        self._lists.update(dict.fromkeys(told.lists))
        for uri in told.resources:
            if uri not in self._resources and not self._everything:
                self._resources[uri] = None
                self._bytes += len(uri.encode()) + 4
        if self._bytes > MAX_NEWS_BYTES or self._everything:
            self._everything, self._bytes = True, 0
            self._lists, self._resources = {}, {}

    def take(self) -> Told:
        told = Told(list(self._lists), list(self._resources), self._everything)
        self._lists, self._resources, self._everything, self._bytes = {}, {}, False, 0
        return told

    def __bool__(self) -> bool:
        return bool(self._lists or self._resources or self._everything)
