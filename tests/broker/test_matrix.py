"""Every revision in front of every revision, over every transport: each feature crosses, or is not in that revision."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from callboard.codecs.revisions import ALL, LoggingMessageNotificationParams, Revision
from callboard.configuration import BackendSpec, Remote
from callboard.errors import CallboardError
from callboard.transports.client.process import Command
from tests.broker.cells import FEATURES, Cell, client_of, is_there
from tests.broker.conftest import CAST
from tests.broker.front import backend, brokered, ways_in
from tests.process import PATIENCE
from tests.served import RUN, Addresses

CELL_TIME = 5.0
"""Seconds for one feature. Most take a few milliseconds."""

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
    failures: list[str] = []
    async with brokered(spec) as host:
        front, logs = ways_in(host), list[LoggingMessageNotificationParams]()
        async with client_of(front, client_revision, logs) as client:
            cell = Cell(front, client_revision, backend_revision, client, logs)
            for feature, asserted in FEATURES.items():
                if is_there(feature, client_revision, backend_revision):
                    with noted(f"{feature}: {client_revision} > {backend_revision} over {transport}", failures):
                        await asserted(cell)
    if failures:
        pytest.fail("\n".join(failures))


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
    command = Command(args=(*RUN, CAST, "--revisions", backend_revision.value))
    with trio.fail_after(PATIENCE):
        await go_through(backend(command), client_revision, backend_revision, "stdio")
