"""Backends that are processes of their own: started once for many tests, and only where a test wants one."""

from collections.abc import Iterator

import pytest

from callboard.codecs.revisions import Revision
from tests.served import Addresses, served
from tests.shared import ROOT

CAST = str(ROOT / "tests/broker/apps/cast.py")


@pytest.fixture(scope="session")
def cast_revision(request: pytest.FixtureRequest) -> Revision:
    """The only revision that the backend speaks."""
    revision: Revision = request.param
    return revision


@pytest.fixture(scope="session")
def cast_served(cast_revision: Revision) -> Iterator[Addresses]:
    """The backend over HTTP and WebSocket."""
    with served(CAST, "--revisions", cast_revision.value, ws=True) as addresses:
        yield addresses
