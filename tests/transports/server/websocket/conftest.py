"""Tests that hold at every door say so: `usefixtures("door")`."""

from collections.abc import Iterator

import pytest

from tests.transports.server.websocket.doors import DOORS
from tests.transports.server.websocket.stage import DOOR


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Iterator[str]:
    """The door that the clients of a test come in by."""
    token = DOOR.set(request.param)
    yield request.param
    DOOR.reset(token)
