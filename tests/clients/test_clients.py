"""Other people's clients, as they are published, find in callboard the server that they expect."""

import sys
from collections.abc import Callable, Iterator

import pytest

from tests.clients.libraries import EXPECTED, LIBRARIES, MODERN, STAGE, Library, Visit, visit
from tests.node import needs_npm
from tests.served import served

ROWS = [
    pytest.param(library, wire, step, id=f"{library.name}-{wire}-{step}", marks=[needs_npm] * ("npm" in library.name))
    for library in LIBRARIES
    for wire, step in library.steps()
]


@pytest.fixture(scope="session")
def visits() -> Iterator[Callable[[Library], Visit]]:
    """Each library's visit to the same two servers, one for each door, made when its first step is looked at."""
    made: dict[str, Visit] = {}
    with served(STAGE, "--legacy-sse", ws=True) as native, served(STAGE, "--http-engine", "asgi") as asgi:
        urls = {"http": native.http, "sse": native.sse, "ws": native.ws, "asgi": asgi.http}

        def of(library: Library) -> Visit:
            if library.name not in made:
                made[library.name] = visit(library, urls)
            return made[library.name]

        yield of


@pytest.mark.parametrize(("library", "wire", "step"), ROWS)
def test_a_client_hears_what_it_should(
    library: Library, wire: str, step: str, visits: Callable[[Library], Visit]
) -> None:
    been = visits(library)
    expected = (MODERN if wire.endswith("modern") else {}).get(step, EXPECTED[step])
    line = been.heard.get((wire, step))
    assert line is not None, f"the client did not get there: {been.stderr}"
    assert line.get("heard") == expected, line.get("error")


def test_a_client_that_hangs_is_ended_with_all_that_it_started_and_has_heard_nothing() -> None:
    hanging = "import subprocess, sys; sys.stderr.write('I hang'); sys.stderr.flush(); subprocess.run(['sleep', '60'])"
    library = Library("hanging", lambda: [sys.executable, "-c", hanging], ("http",))
    been = visit(library, {"http": ""}, seconds=2)
    assert been.heard == {}
    assert "I hang" in been.stderr
    assert "killed after 2 s" in been.stderr
