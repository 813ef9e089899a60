"""Every revision in front of every revision, over every transport: each feature crosses, or is not in that revision."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import pytest
import trio

from callboard.broker import Broker
from callboard.client.routes import Target
from callboard.codecs.revisions import ALL, LoggingMessageNotificationParams, Revision
from callboard.codecs.revisions.revision import R1, R3, R4, R5
from callboard.config import BackendSpec, Remote
from callboard.errors import CallboardError
from callboard.serve.options import Options, Ready
from callboard.serve.run import serve
from callboard.transports.client.process import Command
from tests.broker.cells import FEATURES, Cell, client_of, is_there
from tests.broker.conftest import CAST
from tests.broker.front import backend, brokered, ways_in
from tests.fork_server import forked
from tests.served import Addresses

CELL_TIME = 20.0
"""Seconds for one feature. Most take a few milliseconds; where a process is started for it, up to two seconds."""

PATIENCE = 90.0
"""Seconds for all features of one pair, on a machine that does much else."""

REVISIONS = sorted(ALL)
CLIENTS = pytest.mark.parametrize("client_revision", REVISIONS)
BACKENDS = pytest.mark.parametrize("cast_revision", REVISIONS, indirect=True, scope="session")


@contextmanager
def noted(cell: str, failures: list[str]) -> Iterator[None]:
    """Note which cell failed, and how; the others are asserted all the same."""
    try:
        with trio.fail_after(CELL_TIME):
            yield
    except (AssertionError, CallboardError, trio.TooSlowError) as error:
        failures.append(f"{cell}: {type(error).__name__} {error}"[:1000])


async def go_through(spec: BackendSpec, client_revision: Revision, backend_revision: Revision, transport: str) -> None:
    """All features in one session of one broker."""
    async with brokered(spec) as host:
        await try_all(ways_in(host), client_revision, backend_revision, transport)


async def try_all(front: Target, client_revision: Revision, backend_revision: Revision, transport: str) -> None:
    failures: list[str] = []
    logs: list[LoggingMessageNotificationParams] = []
    async with client_of(front, client_revision, logs) as client:
        cell = Cell(front, client_revision, backend_revision, client, logs)
        for feature, asserted in FEATURES.items():
            if is_there(feature, client_revision, backend_revision):
                with noted(f"{feature}: {client_revision} > {backend_revision} over {transport}", failures):
                    await asserted(cell)
    if failures:
        pytest.fail("\n".join(failures))


def test_each_cell_is_asserted_or_not_in_that_revision() -> None:
    pairs = [(client, behind) for client in REVISIONS for behind in REVISIONS]
    cells = [(feature, *pair) for feature in FEATURES for pair in pairs]
    absent = [cell for cell in cells if not is_there(*cell)]
    assert (len(cells), len(absent)) == (300, 16)  # for each of three transports
    assert {feature for feature, *_ in absent} == {"elicit"}


@CLIENTS
@pytest.mark.parametrize("transport", ["http", "ws"])
@BACKENDS
async def test_each_feature_crosses_the_network(
    cast_served: Addresses, cast_revision: Revision, client_revision: Revision, transport: str
) -> None:
    url = cast_served.http if transport == "http" else cast_served.ws
    with trio.fail_after(PATIENCE):
        await go_through(backend(Remote(url=url)), client_revision, cast_revision, transport)


@CLIENTS
@pytest.mark.parametrize("backend_revision", REVISIONS)
async def test_each_feature_crosses_to_a_process(client_revision: Revision, backend_revision: Revision) -> None:
    command = Command(args=(*forked(), "run", CAST, "--revisions", backend_revision.value))
    with trio.fail_after(PATIENCE):
        await go_through(backend(command), client_revision, backend_revision, "stdio")


@asynccontextmanager
async def front_at(transport: str, spec: BackendSpec) -> AsyncIterator[str]:
    """A broker that is reached as its users reach it."""
    broker = Broker([spec])
    async with trio.open_nursery() as nursery:
        here = "127.0.0.1:0"
        options: Options = {"ws": here} if transport == "ws" else {"http": here, "legacy_sse": transport == "sse"}
        ready: Ready = await nursery.start(partial(serve, broker, **options))
        [url] = [one.url for one in ready.listening if one.transport == transport]
        assert url is not None
        yield url
        nursery.cancel_scope.cancel()


FRONTS = [("http", R3), ("http", R4), ("http", R5), ("ws", R1), ("ws", R4), ("ws", R5), ("sse", R1)]


@pytest.mark.parametrize(("transport", "client_revision"), FRONTS)
@pytest.mark.parametrize("cast_revision", [R3, R4, R5], indirect=True, scope="session")
async def test_each_feature_crosses_to_clients_over_the_network(
    cast_served: Addresses, cast_revision: Revision, client_revision: Revision, transport: str
) -> None:
    with trio.fail_after(PATIENCE):
        async with front_at(transport, backend(Remote(url=cast_served.http))) as url:
            await try_all(url, client_revision, cast_revision, f"{transport} in front, and http")
