"""An extension adds capabilities, methods and notifications to a server, in every revision."""

from pathlib import Path
from runpy import run_path
from typing import Any

import attrs
import pytest
from trio.testing import wait_all_tasks_blocked

from callboard import Server
from callboard import connect as client_of
from callboard.codecs.revisions import LATEST, JSONObject, Model, Revision
from callboard.errors import ServerRefused
from callboard.server import Context, Extension, GoOn, ToolError
from callboard.testing import EVERYTHING, Peer, Refusal, connect

ID = "com.example/echo"
ROOT = Path(__file__).parents[2]


def echo(heard: list[JSONObject], **options: Any) -> Extension:
    extension = Extension(ID, {"loud": True}, **options)

    @extension.method("com.example/shout")
    async def shout(text: str, times: int = 1, *, ctx: Context) -> dict[str, str]:
        if not text:
            raise ToolError("nothing to shout")
        return {"text": text.upper() * times, "server": str(ctx.lifespan)}

    @extension.method("com.example/break")
    def fail() -> None:
        raise RuntimeError("secret")

    @extension.notification("notifications/com.example/typed")
    def typed(params: JSONObject) -> None:
        heard.append(params)

    @extension.notification("notifications/com.example/torn")
    def torn(params: JSONObject) -> None:
        raise RuntimeError("a fault of the author")

    return extension


async def declared(client: Peer) -> Any:
    return client.agreed.get("capabilities") or (await client.request("server/discover"))["capabilities"]


@pytest.mark.parametrize("revision", list(Revision))
async def test_an_extension_is_declared_and_its_methods_are_served(revision: Revision) -> None:
    heard: list[JSONObject] = []
    server = Server("s", extensions=[echo(heard)], experimental={"trial": {"a": 1}})
    async with connect(server, revision) as client:
        capabilities = await declared(client)
        assert capabilities["extensions"] == {ID: {"loud": True}}
        assert capabilities["experimental"] == {"trial": {"a": 1}}
        result = await client.request("com.example/shout", text="hi", times=2)
        assert result["text"] == "HIHI"
        assert ("resultType" in result) is revision.dialect.typed_results
        with pytest.raises(Refusal, match="-32602: Invalid arguments"):
            await client.request("com.example/shout", times=2)
        with pytest.raises(Refusal, match="nothing to shout"):
            await client.request("com.example/shout", text="")
        with pytest.raises(Refusal, match="-32601"):
            await client.request("com.example/whisper")


async def test_what_a_method_raises_by_accident_is_not_told_to_the_client() -> None:
    async with connect(Server("s", extensions=[echo([])])) as client:
        with pytest.raises(Refusal) as refused:
            await client.request("com.example/break")
    assert "secret" not in str(refused.value)


async def test_notifications_of_an_extension_reach_its_function() -> None:
    heard: list[JSONObject] = []
    async with connect(Server("s", extensions=[echo(heard)]), Revision("2025-11-25")) as client:
        for method in ("typed", "other", "torn"):
            await client.say({"method": f"notifications/com.example/{method}", "params": {"key": "x"}})
        await client.request("ping")
        await wait_all_tasks_blocked()
    assert heard == [{"key": "x"}]


async def test_a_modern_client_must_declare_an_extension_that_says_so() -> None:
    server = Server("s", extensions=[echo([], needs_client=True)])
    async with connect(server, LATEST) as client:
        with pytest.raises(Refusal) as refused:
            await client.request("com.example/shout", text="hi")
        assert refused.value.code == -32021
        assert refused.value.data == {"requiredCapabilities": {"extensions": {ID: {}}}}
    able = {**EVERYTHING, "extensions": {ID: {}}}
    async with connect(server, LATEST, capabilities=able) as client:
        assert (await client.request("com.example/shout", text="hi"))["text"] == "HI"


@pytest.mark.parametrize("revision", list(Revision))
async def test_middleware_stands_before_methods_of_extensions_also_of_mounted_servers(revision: Revision) -> None:
    front, middle, inner = Server("front"), Server("middle"), Server("inner", extensions=[echo([])])
    seen: list[tuple[str, str]] = []

    def watch(server: Server, name: str) -> None:
        @server.middleware
        async def look(ctx: Context, go_on: GoOn) -> Model:
            seen.append((name, ctx.method))
            result: Any = await go_on()
            changed: Model = attrs.evolve(result, extra={**result.extra, "by": name})
            return changed

    for server, name in ((front, "front"), (middle, "middle"), (inner, "inner")):
        watch(server, name)
    middle.mount(inner, prefix="in")
    front.mount(middle, prefix="mid")
    async with connect(front, revision) as client:
        result = await client.request("com.example/shout", text="hi")
        assert (result["text"], result["by"]) == ("HI", "front")
        assert ("resultType" in result) is revision.dialect.typed_results
    assert seen == [(name, "com.example/shout") for name in ("front", "middle", "inner")]


async def test_a_middleware_that_fails_fails_a_method_of_an_extension() -> None:
    server = Server("s", extensions=[echo([])])

    @server.middleware
    async def closed(ctx: Context, go_on: GoOn) -> Model:
        raise ToolError("closed")

    async with connect(server, LATEST) as client:
        with pytest.raises(Refusal, match="closed"):
            await client.request("com.example/shout", text="hi")


def test_names_of_the_specification_and_ids_without_a_domain_are_refused() -> None:
    with pytest.raises(ValueError, match="DOMAIN/NAME"):
        Extension("echo")
    with pytest.raises(ValueError, match="tools/call"):
        Extension(ID).method("tools/call")
    with pytest.raises(ValueError, match="already exists"):
        Server("s", extensions=[Extension(ID), Extension(ID)])


async def test_two_extensions_with_one_method_are_refused() -> None:
    other = Extension("com.example/other")

    @other.method("com.example/shout")
    def shout() -> dict[str, str]:
        return {}

    with pytest.raises(ValueError, match="another extension has the method"):
        async with connect(Server("s", extensions=[echo([]), other]), LATEST):
            pass


async def test_the_example_of_a_private_extension_works_for_a_client() -> None:
    name = "moods"
    found = run_path(str(ROOT / "examples" / "extension.py"))
    for revision in (Revision("2025-06-18"), LATEST):
        async with client_of(
            found["server"], revision=revision, extensions={f"com.example/{name}": {}}, experimental={"x": {}}
        ) as client:
            assert client.server_capabilities.extensions == {"com.example/moods": {"languages": ["en"]}}
            assert (await client.request("com.example/mood", text="It rains"))["mood"] == "sad"
            with pytest.raises(ServerRefused, match="text"):
                await client.request("com.example/mood")
            with pytest.raises(ValueError, match="specification"):
                await client.request("tools/list")
