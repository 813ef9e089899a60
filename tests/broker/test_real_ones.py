"""Other people's servers behind the broker, and other people's clients in front of it, as they are published."""

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest
import trio

from callboard.client import connect
from callboard.config import Remote
from callboard.errors import ServerRefused
from callboard.transports.client.process import Command
from tests.broker.front import backend, ways_in
from tests.broker.front import brokered as broker_of
from tests.clients import libraries as clients
from tests.clients.libraries import STAGE, visit
from tests.node import needs_npm, node
from tests.served import brokered
from tests.servers.running import EVERYTHING, LIBRARIES, Library, listening, packages
from tests.servers.tour import ANSWERS, EXPECTED, Visit, heard, resume

PATIENCE: Final = 120.0
ERAS: Final = {"legacy": "2025-11-25", "modern": "2026-07-28"}

BEHIND: Final = [
    pytest.param(library, way, id=f"{library.name}-{way}", marks=[needs_npm] * ("npm" in library.name))
    for library in LIBRARIES
    for way in library.ways
    if way != "sse"
]


@pytest.mark.parametrize(("library", "way"), BEHIND)
async def test_a_server_behind_the_broker_is_spoken_to_by_clients_of_both_eras(library: Library, way: str) -> None:
    with trio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            target = await _target(library, way, stack)
            host = await stack.enter_async_context(broker_of(backend(target)))
            for revision in ERAS.values():
                assert await _tour(ways_in(host), library, way, revision) == _expected(library, way, revision)


async def _target(library: Library, way: str, stack: AsyncExitStack) -> Command | Remote:
    if way == "stdio":
        return Command(args=tuple(library.command(way)), cwd=str(library.cwd()))
    command = [*library.command(way), "PORT"]
    return Remote(url=await stack.enter_async_context(listening(command, library.cwd(), "/mcp")))


async def _tour(target: Any, library: Library, way: str, revision: str) -> dict[str, Any]:
    async with connect(target, revision=revision, **ANSWERS) as client:
        met = Visit(client)
        steps = [step for step in EXPECTED if _takes(library, way, step.__name__) and step is not resume]
        return {"revision": client.revision.value, **{step.__name__: await heard(step, met) for step in steps}}


def _expected(library: Library, way: str, revision: str) -> dict[str, Any]:
    steps = {step.__name__: outcome for step, outcome in EXPECTED.items() if step is not resume}
    return {"revision": revision, **{name: heard for name, heard in steps.items() if _takes(library, way, name)}}


def _takes(library: Library, way: str, step: str) -> bool:
    """What a library cannot do in the era that the broker speaks to it, no client in front can have; nor what it does
    without having declared it."""
    is_declared = (library.name, step) != ("mcp-1.30.0", "watch")
    return is_declared and library.takes(way, "modern" if library.is_modern else "legacy", step)


@needs_npm
async def test_all_of_them_at_once_are_one_server() -> None:
    reference = Command(args=(str(node()), EVERYTHING, "stdio"), cwd=str(packages()))
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        targets = {library.name: await _target(library, "stdio", stack) for library in LIBRARIES}
        specs = [backend(target, name.partition("-")[0] + name[-1], prefix=None) for name, target in targets.items()]
        host = await stack.enter_async_context(broker_of(*specs, backend(reference, "reference", prefix=None)))
        for revision in ERAS.values():
            async with connect(ways_in(host), revision=revision, **ANSWERS) as client:
                met = Visit(client)
                names = [tool.name for tool in await client.tools()]
                for spec in specs:
                    assert f"{spec.name}__echo" in names
                    assert await met.call(f"{spec.name}__echo", text=spec.name) == spec.name
                    assert await met.call(f"{spec.name}__ask") == "hello ada"
                assert await met.call("reference__echo", message="hi") == "Echo: hi"
                assert "is 5" in await met.call("reference__get-sum", a=2, b=3)


ONLY_FOR_THE_ABLE: Final = {
    "get-roots-list",
    "trigger-elicitation-request",
    "trigger-sampling-request",
    "trigger-url-elicitation",
}


@needs_npm
@pytest.mark.finding("protocol-1.3")
@pytest.mark.parametrize(("way", "order"), [("stdio", 1), ("stdio", -1), ("streamableHttp", 1)])
async def test_the_reference_server_shows_more_to_clients_that_can_do_more(way: str, order: int) -> None:
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        command = [str(node()), EVERYTHING, way]
        target: Command | Remote = Command(args=tuple(command), cwd=str(packages()))
        if way != "stdio":
            target = Remote(url=await stack.enter_async_context(listening(command, packages(), "/mcp")))
        host = await stack.enter_async_context(broker_of(backend(target)))
        able, unable = [
            [await stack.enter_async_context(connect(ways_in(host), revision=era, **can)) for era in ERAS.values()]
            for can in (ANSWERS, {})
        ]
        shown: dict[str, list[set[str]]] = {"able": [], "unable": []}
        for _ in range(2):
            for name, clients in list({"able": able, "unable": unable}.items())[::order]:
                shown[name] += [{tool.name for tool in await client.tools()} for client in clients]
            assert all([await Visit(client).call("echo", message="hi") == "Echo: hi" for client in (*able, *unable)])
        assert [len(names) for names in shown["unable"]] == [13] * 4
        assert [names - shown["unable"][0] for names in shown["able"]] == [ONLY_FOR_THE_ABLE] * 4
        for client in able:
            assert "file:///" in str((await client.call("get-roots-list")).content)
        for client in unable:
            with pytest.raises(ServerRefused, match="Unknown tool"):
                await client.call("get-roots-list")


IN_FRONT: Final = [
    pytest.param(library, wire, step, id=f"{library.name}-{wire}-{step}", marks=[needs_npm] * ("npm" in library.name))
    for library in clients.LIBRARIES
    for wire, step in library.steps()
    if wire.split("-")[0] in ("http", "ws")
]


@pytest.fixture(scope="module", params=[None, ERAS["legacy"]], ids=["modern", "legacy"])
def visits(request: pytest.FixtureRequest) -> Iterator[Callable[[clients.Library], clients.Visit]]:
    """Each library's visit to a broker whose only backend is spoken to in one era or the other."""
    made: dict[str, clients.Visit] = {}
    flags = () if request.param is None else ("--revisions", request.param)
    with brokered(STAGE, "http", *flags, front=("--legacy-sse",)) as at:
        urls = {"http": at.http, "ws": at.ws, "sse": at.sse, "asgi": at.http}

        def of(library: clients.Library) -> clients.Visit:
            if library.name not in made:
                made[library.name] = visit(library, urls)
            return made[library.name]

        yield of


@pytest.mark.parametrize(("library", "wire", "step"), IN_FRONT)
def test_a_client_in_front_of_the_broker_hears_what_it_should(
    library: clients.Library, wire: str, step: str, visits: Callable[[clients.Library], clients.Visit]
) -> None:
    been = visits(library)
    expected = (clients.MODERN if wire.endswith("modern") else {}).get(step, clients.EXPECTED[step])
    line = been.heard.get((wire, step))
    assert line is not None, f"the client did not get there: {been.stderr}"
    assert line.get("heard") == expected, line.get("error")
