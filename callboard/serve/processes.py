"""Several processes that serve: what each of them is, and the start of their parent.

Nothing here loads what serves: the parent needs none of it.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from functools import partial

import trio

from callboard import tree
from callboard._version import __version__
from callboard.serve.options import LIVE_PAGE, Options, ServePlan, ServerName, listening_at, listening_told
from callboard.serve.parent import Parent
from callboard.supervisor import open_tree
from callboard.transports.bind import Bound, listen
from callboard.transports.descriptors import raise_descriptor_limit
from callboard.workers.fair_share import LoadPage
from callboard.workers.messages import VARIABLE
from callboard.workers.process import Equipment
from callboard.workers.shared_rate import create_meters


def run_workers(options: Options, *, has_backends: bool) -> bool:
    """If this process shall be the parent of workers, be that, until a signal says that it is enough. False if it
    serves itself: alone, or as a worker, which is then one of the *options*. With *has_backends*, what workers share
    of them runs in one more process.

    The server is not needed for it. Raises `CannotServe`.
    """
    if "worker" in options:
        return False
    plan = ServePlan(**options)
    if VARIABLE in os.environ:
        from callboard.workers.worker import Worker  # with all that serves, which the parent does without

        options["worker"], options["on_ready"] = Worker.take(), None
    elif plan.has_parent:
        run_parent(plan, has_backends=has_backends)
        return True
    return False


def run_parent(plan: ServePlan, *, has_backends: bool = False) -> None:
    """Serve in so many processes, until a signal says that it is enough. With *has_backends*, one more process has
    those that all workers share.

    Raises `CannotServe`; and `SystemExit` with the exit code of the first worker if that does not start.
    """
    raise_descriptor_limit()
    code = trio.run(partial(_run, plan, has_backends))
    if code:
        raise SystemExit(code if code > 0 else 128 - code)  # as a shell says of one that was killed


async def _run(plan: ServePlan, has_backends: bool) -> int:
    async with AsyncExitStack() as stack:
        bound = {place: await stack.enter_async_context(listen(place)) for place in plan.places()}
        admin = None if plan.admin is None else await stack.enter_async_context(listen(plan.admin))
        if plan.inspector and admin is not None:  # its page has a link to it
            os.environ[LIVE_PAGE] = admin.place.url("http").removesuffix("/mcp") + "/"
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="callboard-"))  # which only this user may enter
        page = LoadPage.create()
        stack.callback(page.close)
        meters = create_meters()
        stack.callback(os.close, meters)
        equipment = Equipment([], folder, list(_descriptors(bound.values())), page, meters, has_backends)
        audit = None
        if plan.audit is not None and plan.admin_actions:  # what operators do is done here; all else the workers write
            from callboard.serve.auditing import open_audit_log

            audit = open_audit_log(plan, ServerName("node", __version__), stack)
        root = await stack.enter_async_context(open_tree(tree.node()))
        if audit is not None:
            await audit.begin(root)
        parent = Parent(plan, equipment, root, bound, admin)
        if admin is not None:
            from callboard.serve.admin import admin_edge  # and not without an admin address
            from callboard.serve.node_view import NodeView

            parent.view = NodeView(parent.workers, parent.is_ready, parent.keeper)
            parent.view.listening = listening_told(list(listening_at(plan, bound, admin)))
            room = plan.room(parent.view, parent, admin.place)
            root.spawn(room.viewers, name="viewers", shutdown=0)
            await root.add(admin_edge(parent, plan.access(admin.place, is_admin=True), admin.sockets, room))
        if plan.cluster is not None:
            await parent.join(plan.cluster)
        return await parent.run()


def _descriptors(bound: Iterable[Bound]) -> Iterator[tuple[int, list[int]]]:
    for at in bound:
        yield at.place.port, [listening.fileno() for listening in at.sockets]
