"""Tools of an HTTP API: each operation is one, and what a model says goes where it belongs and nowhere else."""

import gzip
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from structlog.testing import capture_logs

from callboard import Server, ToolError
from callboard.codecs.openapi.requests import ApiRequest
from callboard.codecs.revisions import LATEST, LEGACY, Revision
from callboard.errors import CannotServe
from callboard.server.api_client import MAX_API_ANSWER, ApiClient
from callboard.server.lifespan import LifespanFailed
from callboard.server.openapi import MAX_API_TEXT, tool_of
from callboard.testing import connect
from tests.server.api_stage import JSON, Asked, Told, pet_store, served_api, told

ERAS = pytest.mark.parametrize("revision", [LATEST, max(LEGACY)])
ROSIE = {"id": 7, "name": "Rosie", "tag": None}


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def answers(asked: Asked) -> Told:
    match asked.method, asked.target.partition("?")[0]:
        case "GET", "/api/v1/pets":
            return told([ROSIE])
        case "POST", "/api/v1/pets":
            return told({**asked.data, "id": 8}, 201)
        case "GET", "/api/v1/pets/7":
            return told(ROSIE)
        case "GET", "/api/v1/pets/odd":
            return told({"name": 3})
        case "GET", "/api/v1/pets/text":
            return Told(body=b"not JSON")
        case "GET", "/api/v1/pets/large":
            return Told(body=b"x" * (MAX_API_ANSWER + 1))
        case "GET", "/api/v1/pets/moved":
            return Told(302, headers=("location: http://127.0.0.1:1/evil",))
        case "GET", "/api/v1/pets/3/photo":
            return Told(body=b"\x89PNG\r\n\x1a\n", kind="image/png")
        case "GET", "/api/v1/pets/marked":
            return Told(body=b"\xef\xbb\xbf" + told(ROSIE).body)
        case "GET", "/api/v1/pets/latin":
            return Told(body=b'{"id": 7, "name": "\xe9"}')
        case "GET", "/api/v1/pets/deep":
            return Told(body=b'{"id": 7, "name": "x", "more": ' + b"[" * 60 + b"]" * 60 + b"}")
        case "GET", "/api/v1/pets/many":
            return Told(body=b'{"id": 7, "name": "x", "more": [' + b"1," * 120_000 + b"1]}")
        case "GET", "/api/v1/pets/long":
            return Told(body=b'{"id": 7, "name": "' + b"x" * MAX_API_TEXT + b'"}')
        case "GET", "/api/v1/pets/packed":
            return Told(body=gzip.compress(b"{}"), headers=("content-encoding: gzip",))
        case (("DELETE" | "PUT"), _):
            return Told(204, kind="")
        case "POST", "/api/v1/bulk":
            return Told(202, kind="")
        case "GET", "/openapi.json":
            return told(pet_store())
    return told({"error": "no such pet", "rest": "x" * 5000}, 404)


def store(url: str, version: str = "3.1.0", **options: Any) -> Server:
    return Server.from_openapi(pet_store(version), base_url=f"{url}/api/v1", **options)


def text(result: Any) -> str:
    return str(result["content"][0]["text"])


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
async def test_each_operation_is_a_tool(version: str, logged: list[Any]) -> None:
    async with served_api(answers) as (url, _), connect(store(url, version)) as client:
        tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
    assert list(tools) == ["listPets", "create_pet", "getPet", "setPet", "delete_pets_petId", "photo", "bulk"]
    listed = tools["listPets"]
    assert (listed["title"], listed["description"]) == ("List pets", "All pets of a kind.")
    assert listed["annotations"] == {"readOnlyHint": True}
    properties = listed["inputSchema"]["properties"]
    assert list(properties) == ["kind", "tags", "filter", "limit", "X-Request-Id", "session"]
    assert properties["limit"] == {"type": "integer", "minimum": 1, "maximum": 100}
    assert listed["outputSchema"]["properties"]["result"]["items"] == {"$ref": "#/$defs/Pet"}
    made = tools["create_pet"]["inputSchema"]
    assert list(made["properties"]) == ["name", "secret", "parent", "tag"]
    assert made["required"] == ["name"]
    assert made["properties"]["tag"] == {"type": ["string", "null"]}
    assert "secret" not in tools["create_pet"]["outputSchema"]["properties"]
    assert tools["getPet"]["inputSchema"]["properties"] == {"petId": {"type": "string", "description": "Which"}}
    assert list(tools["setPet"]["inputSchema"]["properties"]) == ["petId", "body_petId", "name"]
    assert tools["setPet"]["inputSchema"]["required"] == ["petId"]
    assert tools["bulk"]["inputSchema"]["properties"]["body"]["type"] == "array"
    assert tools["delete_pets_petId"]["annotations"]["destructiveHint"]
    assert logged[0]["operations"] == ["POST /pets/{petId}/photo: its body is neither JSON nor a form"]


@ERAS
async def test_arguments_go_where_they_belong(revision: Revision) -> None:
    async with (
        served_api(answers) as (url, asked),
        connect(store(url, headers={"X-Key": "k", "authorization": "Bearer t"}), revision) as client,
    ):
        found = await client.call(
            "listPets",
            kind="cat",
            tags=["a b", "c&d=1"],
            filter={"age": 3},
            limit=5,
            session="a;b",
            **{"X-Request-Id": "r"},
        )
        assert json.loads(text(found)) == [ROSIE]
        if revision is LATEST:
            assert found["structuredContent"] == {"result": [ROSIE]}
        [got] = asked
        assert got.target == "/api/v1/pets?kind=cat&tags=a%20b&tags=c%26d%3D1&filter[age]=3&limit=5"
        assert got.headers["x-request-id"] == "r"
        assert got.headers["cookie"] == "session=a%3Bb"
        assert (got.headers["x-key"], got.headers["authorization"]) == ("k", "Bearer t")
        made = await client.call("create_pet", name="Bo", tag=None)
        assert json.loads(text(made)) == {"name": "Bo", "tag": None, "id": 8}
        assert asked[-1].headers["content-type"] == JSON
        await client.call("setPet", petId="7", body_petId=8, name="Bo")
        assert (asked[-1].target, asked[-1].data) == ("/api/v1/pets/7", {"petId": 8, "name": "Bo"})
        await client.call("bulk", body=[{"name": "x"}])
        assert asked[-1].data == [{"name": "x"}]
        gone = await client.call("delete_pets_petId", petId="a b?c#d%2e;")
        assert asked[-1].target == "/api/v1/pets/a%20b%3Fc%23d%252e%3B"
        assert gone["content"] == []
        photo = await client.call("photo", petId=3)
        assert photo["content"][0]["mimeType"] == "image/png"


@pytest.mark.parametrize("value", ["..", ".", "", "a/b", "..\\x", "../admin", "a\r\nb", "\x00"])
async def test_a_value_never_leads_to_another_path(value: str) -> None:
    async with served_api(answers) as (url, asked), connect(store(url)) as client:
        found = await client.call("getPet", petId=value)
        assert found["isError"]
        assert "not one segment of a path" in text(found)
        assert not asked


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "é", "x" * 5000])
async def test_a_value_never_adds_a_header(value: str) -> None:
    async with served_api(answers) as (url, asked), connect(store(url)) as client:
        found = await client.call("listPets", **{"X-Request-Id": value})
        assert found["isError"]
        assert "a header has" in text(found)
        cookie = await client.call("listPets", session="a\r\nb; admin=1")
        assert not cookie.get("isError")
        assert asked[-1].headers["cookie"] == "session=a%0D%0Ab%3B%20admin%3D1"
        assert "x-evil" not in asked[-1].headers


async def test_headers_of_the_operator_are_no_arguments() -> None:
    async with served_api(answers) as (url, _), connect(store(url, headers={"x-request-id": "mine"})) as client:
        tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
        assert "X-Request-Id" not in tools["listPets"]["inputSchema"]["properties"]


@ERAS
async def test_what_goes_wrong_is_told_to_the_model(revision: Revision) -> None:
    async with served_api(answers) as (url, asked), connect(store(url), revision) as client:
        for pet, words in (
            ("nobody", "the API answered 404: {"),
            ("odd", 'the API answered something else than its description says: {"name": 3}'),
            ("text", "the API answered what is not JSON: not JSON"),
            ("large", "the API's answer cannot be read: response larger than"),
            ("moved", "the API answered 302"),
            ("latin", "the API's answer cannot be passed on, invalid UTF-8"),
            ("deep", "the API's answer cannot be passed on, nested deeper"),
            ("many", "the API's answer cannot be passed on, number of values"),
            ("long", "the API answered 1048597 bytes, and at most 1048576 are passed on"),
            ("packed", "the API answered 200, compressed ('gzip') unasked"),
        ):
            found = await client.call("getPet", petId=pet)
            assert found["isError"]
            assert text(found).startswith(words)
            assert len(text(found)) < 2100
        assert "Invalid arguments for listPets" in text(await client.call("listPets", limit=1000))
        assert "Invalid arguments for listPets" in text(await client.call("listPets", kind="cow"))
        assert len(asked) == 10
        assert asked[-1].headers["accept-encoding"] == "identity"
        assert text(await client.call("getPet", petId="marked")) == json.dumps(ROSIE)
    with capture_logs() as lines:
        async with connect(store(url), revision) as client:
            assert text(await client.call("getPet", petId="7")) == "the API cannot be reached"
    assert [line["reason"] for line in lines if line["event"] == "api_not_reached"] == [f"{url}: Connection refused"]


async def test_a_document_at_a_url_is_fetched_when_the_server_starts() -> None:
    async with served_api(answers) as (url, asked):
        server = Server.from_openapi(f"{url}/openapi.json", headers={"X-Key": "k"})
        assert not asked
        for _ in range(2):
            async with connect(server) as client:
                assert asked[-1].headers["x-key"] == "k"
                assert len((await client.request("tools/list"))["tools"]) == 7
                assert json.loads(text(await client.call("getPet", petId="7"))) == ROSIE
        main = Server("main")
        main.mount(server, prefix="pets")
        async with connect(main) as client:
            assert json.loads(text(await client.call("pets__getPet", petId="7"))) == ROSIE


async def test_a_fetched_document_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()

    def made(operation: Any) -> Any:
        seen.add(threading.get_ident())
        return tool_of(operation)

    monkeypatch.setattr("callboard.server.openapi_source.tool_of", made)
    async with served_api(answers) as (url, _), connect(Server.from_openapi(f"{url}/openapi.json")):
        assert seen
        assert threading.get_ident() not in seen


async def test_an_own_tool_with_the_name_of_a_fetched_one_is_told() -> None:
    async with served_api(answers) as (url, _):
        server = Server.from_openapi(f"{url}/openapi.json")

        @server.tool(name="listPets")
        async def own() -> str:
            return ""

        with pytest.raises(
            LifespanFailed, match=r"^server '127\.0\.0\.1' cannot start: .*tool 'listPets' already exists$"
        ):
            async with server.host():
                pass


@pytest.mark.parametrize("option", ["lifespan", "loop"])
def test_options_that_would_be_ignored_are_refused(option: str) -> None:
    with pytest.raises(TypeError, match=f"takes no '{option}'"):
        Server.from_openapi(pet_store(), base_url="https://x", **{option: None})


async def test_addresses_with_characters_that_must_be_encoded_are_told() -> None:
    async with served_api(lambda _: told({**pet_store(), "servers": [{"url": "/a b\u20ac"}]})) as (url, asked):
        for path in ("/openapi.json", "/open api.json", "/\u20ac.json"):
            with pytest.raises(LifespanFailed, match="characters that must be encoded"):
                async with Server.from_openapi(f"{url}{path}").host():
                    pass
        assert len(asked) == 1


async def test_headers_do_not_go_to_another_origin_than_that_of_the_api() -> None:
    async with served_api(answers) as (there, seen), served_api(answers) as (url, asked):
        server = Server.from_openapi(f"{there}/openapi.json", base_url=f"{url}/api/v1", headers={"X-Key": "k"})
        async with connect(server) as client:
            await client.call("getPet", petId="7")
        assert "x-key" not in seen[0].headers
        assert asked[0].headers["x-key"] == "k"


@pytest.mark.parametrize(
    "server", ["https://evil.example.com", "http://169.254.169.254/latest", "//evil.example.com", "http://127.0.0.1:1"]
)
async def test_a_document_does_not_say_that_requests_go_elsewhere(server: str) -> None:
    document = {**pet_store(), "servers": [{"url": server}]}
    with pytest.raises(CannotServe, match="say where the API is"):
        Server.from_openapi(document)
    async with served_api(lambda _: told(document)) as (url, _):
        with pytest.raises(LifespanFailed, match="comes from elsewhere itself"):
            async with Server.from_openapi(f"{url}/openapi.json").host():
                pass


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Told(404), "answered 404 in place of the document"),
        (Told(301, headers=("location: http://127.0.0.1:1/",)), "answered 301"),
        (Told(body=b"<html>"), "is neither JSON|is not an object"),
        (Told(body=b"x" * (8 * 1024 * 1024 + 1)), "larger than"),
    ],
)
async def test_a_document_that_cannot_be_fetched_is_told_in_one_line(answer: Told, words: str) -> None:
    async with served_api(lambda _: answer) as (url, _):
        with pytest.raises(LifespanFailed, match=words) as caught:
            async with Server.from_openapi(f"{url}/openapi.json?key=secret").host():
                pass
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)


def test_files_are_json_or_yaml(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(yaml.safe_dump(json.loads(json.dumps(pet_store()))))
    server = Server.from_openapi(file, base_url="https://api.example.com")
    assert (server.info.name, server.info.version) == ("Pet store", "1.2")
    assert len(server.registry.tools) == 7
    file.write_text(json.dumps(pet_store()))
    assert len(Server.from_openapi(str(file), base_url="https://api.example.com").registry.tools) == 7


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "is not valid JSON"),
        (b"[]", "is not an object"),
        (b"\xff\xfe", "is not UTF-8|is neither"),
        (b"a: &x [1]\nb: *x", "aliases are not allowed"),
        (b'{"swagger": "2.0"}', "is of Swagger 2"),
        (b'{"openapi": "4.0.0"}', "has no version of OpenAPI 3"),
        (b'{"openapi": "3.1.0", "paths": []}', "paths: is not an object"),
    ],
)
def test_a_file_that_is_no_document_is_told(content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "api"
    file.write_bytes(content)
    with pytest.raises(CannotServe, match=words):
        Server.from_openapi(file, base_url="https://api.example.com")
    with pytest.raises(CannotServe, match="No such file"):
        Server.from_openapi(tmp_path / "nothing")
    with pytest.raises(CannotServe, match="not an http or https URL"):
        Server.from_openapi(pet_store(), base_url="ftp://x")
    for name in ("Host", "Content-Length", "a b", "X\r\nEvil: 1"):
        with pytest.raises(CannotServe, match="invalid header"):
            Server.from_openapi(pet_store(), base_url="https://x", headers={name: "a"})
    with pytest.raises(CannotServe, match="invalid header 'X-Key'"):
        Server.from_openapi(pet_store(), base_url="https://x", headers={"X-Key": "a\r\nb"})


def test_a_title_is_one_short_line() -> None:
    document = {**pet_store(), "info": {"title": "a\r\n\x1b[31m\u202e b" + "x" * 10_000, "version": 3}}
    server = Server.from_openapi(document, base_url="https://x")
    assert server.info.name == "a [31m b" + "x" * 92
    assert server.info.version == "0"


async def test_a_slow_api_costs_no_more_than_its_time() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        client = ApiClient(f"http://127.0.0.1:{listener.socket.getsockname()[1]}", time=0.05)
        with pytest.raises(ToolError, match=r"the API has not answered within 0\.05 s"):
            await client.send(ApiRequest("GET", "/", ()))
        client.close()
        nursery.cancel_scope.cancel()


async def test_results_of_parts_are_objects_and_formats_of_openapi_are_let_be() -> None:
    document = pet_store()
    part = {"properties": {"id": {"type": "integer", "format": "int64"}, "key": {"type": "string", "format": "byte"}}}
    document["components"]["schemas"]["Pet"] = {"allOf": [part, {"required": ["id"]}]}
    async with (
        served_api(lambda _: told({"id": 7, "key": "no Base64!"})) as (url, _),
        connect(Server.from_openapi(document, base_url=url)) as client,
    ):
        found = await client.call("getPet", petId="7")
        assert found["structuredContent"] == {"id": 7, "key": "no Base64!"}
