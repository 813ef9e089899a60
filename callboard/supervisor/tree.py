"""The root: where a tree begins, and where failures come out that no supervisor below could handle."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from callboard.supervisor._node import Node
from callboard.supervisor.dead_letters import DeadLetters
from callboard.supervisor.ended import CUT_OFF, Ended, How, failure_text
from callboard.supervisor.groups import own_nursery
from callboard.supervisor.spec import Restart, SupervisorSpec
from callboard.supervisor.supervisor import Supervisor

_LIVE: Final[set[Supervisor]] = set()


def live_trees() -> frozenset[Supervisor]:
    """The roots that are open now. After a test there should be none."""
    return frozenset(_LIVE)


@asynccontextmanager
async def open_tree(spec: SupervisorSpec) -> AsyncIterator[Supervisor]:
    """Start a tree, and stop it in order on leaving the block. If the block is cancelled or raises, so is the tree.

    Raises:
        StartFailed: a child did not start; those before it were stopped.
        TooManyRestarts: the root itself gave up. The block is cancelled.
    """
    root = Supervisor(spec, DeadLetters())
    node = Node(spec.name, None, root.dead_letters, restart=Restart.TEMPORARY, shutdown=spec.drain)
    node.embody(root)
    _LIVE.add(root)
    try:
        async with own_nursery() as nursery:
            nursery.start_soon(_live, root, node, name=spec.name)
            await root.address.wait_started()
            await trio.lowlevel.checkpoint()  # if it has failed, the nursery cancels us here
            yield root
            await root.address.stop()
    finally:
        _LIVE.discard(root)


async def _live(root: Supervisor, node: Node) -> None:
    over = CUT_OFF
    try:
        with node.scope:
            await root.run()
        over = node.verdict()
    except Exception as error:
        over = Ended(How.RAISED, failure_text(error), error)
        raise
    finally:
        node.end_incarnation(over)
        node.finish(over)
