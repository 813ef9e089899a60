"""Other people's clients, as they are published, find in callboard the server that they expect."""

import sys
from collections.abc import Callable, Iterator, Mapping

import attrs
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


MANY = [pytest.param(library, id=library.name, marks=[needs_npm] * ("npm" in library.name)) for library in LIBRARIES]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The same server, run by two workers, which let clients of 2025-11-25 come back for answers that take long."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("STAGE_FOLDER", str(tmp_path_factory.mktemp("stage")))
        polling = ("--poll-after", "0.02", "--retry", "0.02")
        with served(STAGE, "--legacy-sse", "--workers", "2", *polling, ws=True) as at:
            yield {"http": at.http, "sse": at.sse, "ws": at.ws, "asgi": at.http}


def without_late(heard: object, expected: object) -> object:
    """What a subscriber heard, without news of a change that it did not make."""
    if not isinstance(heard, list) or not isinstance(expected, list) or "tools changed" in expected:
        return heard
    return [one for one in heard if one != "tools changed"]


@pytest.mark.parametrize("library", MANY)
def test_a_client_hears_the_same_from_two_workers(library: Library, many: Mapping[str, str]) -> None:
    """On every connection of its own that a client opens, another worker may answer."""
    networked = attrs.evolve(library, wires=tuple(wire for wire in library.wires if not wire.startswith("stdio")))
    been, wrong = visit(networked, many), {}
    for wire, step in networked.steps():
        expected = (MODERN if wire.endswith("modern") else {}).get(step, EXPECTED[step])
        line = been.heard.get((wire, step)) or {}
        # News of the tools that an earlier connection changed crosses between workers by itself, and may be heard late.
        if without_late(line.get("heard"), expected) != expected:
            wrong[wire, step] = line.get("heard"), line.get("error")
    assert wrong == {}, been.stderr


def test_a_client_that_hangs_is_ended_with_all_that_it_started_and_has_heard_nothing() -> None:
    hanging = "import subprocess, sys; sys.stderr.write('I hang'); sys.stderr.flush(); subprocess.run(['sleep', '60'])"
    library = Library("hanging", lambda: [sys.executable, "-c", hanging], ("http",))
    been = visit(library, {"http": ""}, seconds=2)
    assert been.heard == {}
    assert "I hang" in been.stderr
    assert "killed after 2 s" in been.stderr
