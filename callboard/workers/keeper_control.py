"""The keeper's link to the parent of all workers."""

from typing import Final

import attrs
import msgspec
import trio

from callboard.supervisor import Actor
from callboard.supervisor.groups import own_nursery
from callboard.workers.control import Control
from callboard.workers.keeper import BackendKeeper
from callboard.workers.messages import ActionWanted, AreYouThere, FromParent, Shown, Started, StillThere
from callboard.workers.worker import Worker

_decoder: Final = msgspec.json.Decoder[FromParent](FromParent)


@attrs.define(eq=False)
class KeeperControl(Actor[None]):
    """Answers that it is alive, does what the operator wants, and notices when the parent is gone."""

    mailbox = None

    worker: Worker
    keeper: BackendKeeper
    orphaned: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the parent is gone: the workers finish what they have, and then this ends."""
    _control: Control[FromParent] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._control = Control(self.worker.end, _decoder, self.worker.lines)

    async def run(self) -> None:
        try:
            async with own_nursery() as nursery:
                nursery.start_soon(self._control.write)
                async for message in self._control:
                    if isinstance(message, AreYouThere):
                        self._control.say(StillThere(message.number, is_ready=True))
                    elif isinstance(message, ActionWanted):
                        is_done = self.keeper.act(message.action, message.subject)
                        self._control.say(Shown(message.number, msgspec.Raw(msgspec.json.encode(is_done))))
                nursery.cancel_scope.cancel()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it is gone, which is said below
        finally:
            self.orphaned.set()

    def say(self, started: Started) -> None:
        self._control.say(started)
