"""The entry of an HTTP API: mistakes are told with their lines, and what is right becomes tools of a broker."""

import json
from pathlib import Path
from typing import Any

import pytest

from callboard.broker import Broker
from callboard.config import BadConfiguration, OpenApiTarget, read_configuration
from callboard.testing import Refusal
from tests.broker.front import peer
from tests.server.api_stage import pet_store, served_api, told


def written(folder: Path, entry: Any, document: Any = None) -> Path:
    (folder / "api.json").write_text(json.dumps(pet_store() if document is None else document))
    file = folder / "servers.json"
    file.write_text('{\n  "servers": {\n    "pets":\n' + json.dumps(entry) + "}}")
    return file


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"openapi": "api.json"}, "servers.pets.openapi: needs `server`"),
        ({"openapi": "nothing.json", "server": "https://x"}, "servers.pets.openapi: no such file"),
        ({"openapi": ".", "server": "https://x"}, "servers.pets.openapi: is not a file"),
        ({"openapi": 3, "server": "https://x"}, "servers.pets.openapi: must be a string: a file, or a URL"),
        ({"openapi": "http://x/a b"}, "characters that must be encoded"),
        ({"openapi": "http://", "server": "https://x"}, "is not a URL"),
        ({"openapi": "api.json", "server": "x"}, 'servers.pets.server: "x" is not the URL of an API'),
        ({"openapi": "api.json", "server": "https://x/?a"}, "it has a query"),
        ({"openapi": "api.json", "server": "https://u:p@x/"}, "is not the URL of an API"),
        ({"openapi": "api.json", "server": "https://x", "url": "https://y"}, "must have exactly one of"),
        ({"openapi": "api.json", "server": "https://x", "type": "http"}, "an `openapi` server has no transport"),
        ({"openapi": "api.json", "server": "https://x", "headers": {"a b": "c"}}, "is not a valid header name"),
        ({"openapi": "api.json", "server": "https://x", "headers": {"a": "b\nc"}}, "has an invalid header value"),
        ({"openapi": "api.json", "server": "https://x", "headers": {"Content-Length": "3"}}, "excludes a header"),
        ({"openapi": "api.json", "server": "https://x", "headers": {"a": "${NOT_SET_ANYWHERE}"}}, "not set"),
        ({"openapi": "api.json", "server": "https://x", "callboard": {"oauth": {}}}, "is only for a `url`"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(entry: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration) as caught:
        read_configuration(written(tmp_path, entry))
    assert words in str(caught.value)
    assert "servers.json:4: " in str(caught.value) or "servers.json:3: servers.pets: " in str(caught.value)


def test_a_document_that_is_none_is_told(tmp_path: Path) -> None:
    file = written(tmp_path, {"openapi": "api.json", "server": "https://x"}, {"swagger": "2.0"})
    with pytest.raises(BadConfiguration, match=r"servers\.pets\.openapi: the document is of Swagger 2"):
        read_configuration(file)


def test_what_is_not_offered_is_warned_of(tmp_path: Path) -> None:
    found = read_configuration(written(tmp_path, {"openapi": "api.json", "server": "https://x"}))
    [warning] = found.warnings
    assert "POST /pets/{petId}/photo is not offered: its body is neither JSON nor a form" in str(warning)
    command = {"command": "true", "server": "https://x"}
    [warning] = read_configuration(written(tmp_path, command)).warnings
    assert "server: is only for an `openapi`" in str(warning)


@pytest.mark.parametrize(
    ("server", "headers", "is_warned"),
    [
        ("http://api.example.com", {"Authorization": "Bearer secret"}, True),
        ("http://api.example.com", {}, False),
        ("https://api.example.com", {"Authorization": "Bearer secret"}, False),
        ("http://127.0.0.1:80", {"Authorization": "Bearer secret"}, False),
    ],
)
def test_headers_in_clear_text_are_warned_of(server: str, headers: Any, is_warned: bool, tmp_path: Path) -> None:
    entry = {"openapi": "api.json", "server": server, "headers": headers}
    found = read_configuration(written(tmp_path, entry))
    warnings = "\n".join(map(str, found.warnings))
    assert ("the headers are sent in clear text" in warnings) is is_warned
    assert "secret" not in warnings + repr(found)


def test_another_document_is_another_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_KEY", "k")
    entry = {"openapi": "api.json", "server": "https://x/v1", "headers": {"X-Key": "${PET_KEY}"}}
    [one] = read_configuration(written(tmp_path, entry)).backends
    assert isinstance(one.target, OpenApiTarget)
    assert (one.target.base, one.target.headers, one.transport) == ("https://x/v1", {"X-Key": "k"}, "in process")
    assert read_configuration(written(tmp_path, entry)).backends == (one,)
    [other] = read_configuration(written(tmp_path, entry, {**pet_store(), "paths": {}})).backends
    assert other != one


async def test_a_broker_offers_the_tools_that_are_allowed(tmp_path: Path) -> None:
    async with served_api(lambda _: told([])) as (url, asked):
        entry = {
            "openapi": "api.json",
            "server": f"{url}/v1",
            "headers": {"X-Key": "k"},
            "callboard": {"tools": {"allow": ["list*", "get*"], "deny": ["getPet"]}},
        }
        async with Broker.of_file(written(tmp_path, entry)).host() as host, peer(host) as client:
            assert [tool["name"] for tool in (await client.request("tools/list"))["tools"]] == ["pets__listPets"]
            found = await client.call("pets__listPets", kind="cat")
            assert found["structuredContent"] == {"result": []}
            with pytest.raises(Refusal):
                await client.call("pets__getPet", petId="7")
        assert [(one.target, one.headers["x-key"]) for one in asked] == [("/v1/pets?kind=cat", "k")]


async def test_a_broker_fetches_a_document_from_its_url(tmp_path: Path) -> None:
    async with served_api(lambda asked: told(pet_store() if "openapi" in asked.target else [])) as (url, asked):
        file = written(tmp_path, {"openapi": f"{url}/openapi.json"})
        async with Broker.of_file(file).host() as host, peer(host) as client:
            assert (await client.call("pets__listPets"))["structuredContent"] == {"result": []}
        assert [one.target for one in asked] == ["/openapi.json", "/api/v1/pets"]
