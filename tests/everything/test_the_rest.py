"""Resources, prompts, changes and refusals, with the server of examples/everything.py."""

import base64
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from callboard import Revision
from callboard.codecs.revisions.revision import LATEST, R1, R3
from callboard.testing import Refusal
from tests import by_the_book
from tests.everything.stage import (
    EVERY,
    LEGACY,
    connect,
    server,
)
from tests.shared import needs_protocol

# Resources, prompts, completion.


@EVERY
async def test_resources_are_listed_and_read(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision) as client:
        resources = (await client.request("resources/list"))["resources"]
        assert [one["uri"] for one in resources] == [
            "skill://pdf/SKILL.md",
            "skill://team/data-analysis/SKILL.md",
            "test://static-text",
            "test://static-binary",
            "test://watched-resource",
        ]
        assert all(one["name"] for one in resources)
        (template,) = (await client.request("resources/templates/list"))["resourceTemplates"]
        assert template["uriTemplate"] == "test://template/{id}/data"
        read = partial(client.request, "resources/read")
        assert (await read(uri="test://static-text"))["contents"] == [
            {
                "uri": "test://static-text",
                "mimeType": "text/plain",
                "text": "This is the content of the static text resource.",
            }
        ]
        (picture,) = (await read(uri="test://static-binary"))["contents"]
        assert picture["mimeType"] == "image/png"
        assert base64.b64decode(picture["blob"], validate=True)
        (data,) = (await read(uri="test://template/123/data"))["contents"]
        assert data["uri"] == "test://template/123/data"
        assert data["text"] == '{"id":"123","templateTest":true,"data":"Data for ID: 123"}'
        assert (await read(uri="test://watched-resource"))["contents"]


@EVERY
async def test_a_resource_that_is_not_there_is_an_error_with_its_uri(
    revision: Revision, autojump_clock: MockClock
) -> None:
    uri = "test://nonexistent-resource-for-conformance-testing"
    async with connect(revision) as client:
        with pytest.raises(Refusal) as refused:
            await client.request("resources/read", uri=uri)
        assert refused.value.code == (-32602 if revision == LATEST else -32002)
        assert refused.value.data == {"uri": uri}


@LEGACY
async def test_a_resource_is_watched_until_it_is_not(revision: Revision, autojump_clock: MockClock) -> None:
    uri = "test://watched-resource"
    async with connect(revision) as client:
        assert await client.request("resources/subscribe", uri=uri) == {}
        server.notify_updated(uri)
        assert (await client.hear())["params"] == {"uri": uri}
        assert await client.request("resources/unsubscribe", uri=uri) == {}
        server.notify_updated(uri)
        assert await client.request("ping") == {}
        assert not client.heard


@EVERY
async def test_prompts_are_listed_and_got(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision) as client:
        prompts = (await client.request("prompts/list"))["prompts"]
        assert all(one["name"] and one["description"] for one in prompts)
        required = {
            one["name"]: [argument["name"] for argument in one.get("arguments", ()) if argument["required"]]
            for one in prompts
        }
        assert required == {
            "test_simple_prompt": [],
            "test_prompt_with_arguments": ["arg1", "arg2"],
            "test_prompt_with_embedded_resource": ["resourceUri"],
            "test_prompt_with_image": [],
            "test_input_required_result_prompt": [],
        }
        get = partial(client.request, "prompts/get")
        (simple,) = (await get(name="test_simple_prompt"))["messages"]
        assert simple == {
            "role": "user",
            "content": {"type": "text", "text": "This is a simple prompt for testing."},
        }
        values = {"arg1": "testValue1", "arg2": "testValue2"}
        (argued,) = (await get(name="test_prompt_with_arguments", arguments=values))["messages"]
        assert all(value in argued["content"]["text"] for value in values.values())
        place = {"resourceUri": "test://example-resource"}
        embedded, words = (await get(name="test_prompt_with_embedded_resource", arguments=place))["messages"]
        assert embedded["content"]["type"] == "resource"
        assert embedded["content"]["resource"]["uri"] == "test://example-resource"
        assert words["content"]["type"] == "text"
        picture, words = (await get(name="test_prompt_with_image"))["messages"]
        assert picture["content"]["mimeType"] == "image/png"
        assert words["content"]["type"] == "text"


@EVERY
async def test_an_argument_is_completed(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision) as client:
        ref = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
        found = await client.request("completion/complete", ref=ref, argument={"name": "arg1", "value": "test"})
        assert found["completion"]["values"] == ["test", "testValue1", "testing"]
        none = await client.request("completion/complete", ref=ref, argument={"name": "arg2", "value": "test"})
        assert none["completion"]["values"] == []


# Changes.

CHANGES = [
    ("tools", "toolsListChanged", "test_trigger_tool_change"),
    ("prompts", "promptsListChanged", "test_trigger_prompt_change"),
]


@pytest.mark.parametrize(("kind", "flag", "tool"), CHANGES)
async def test_a_listener_hears_of_the_change_that_it_asked_for_and_of_no_other(
    kind: str, flag: str, tool: str, autojump_clock: MockClock
) -> None:
    async with connect() as client:
        before = await client.request(f"{kind}/list")
        subscription = await client.begin("subscriptions/listen", notifications={flag: True})
        acknowledged = await client.hear()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        for _, _, trigger in CHANGES:
            await client.call(trigger)
        await trio.sleep(1.5)
        assert await client.request(f"{kind}/list") == before
        (change,) = client.heard
        assert change["method"] == f"notifications/{kind}/list_changed"
        for message in (acknowledged, change):
            assert message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == subscription


@LEGACY
async def test_a_legacy_session_hears_of_every_list_that_changes(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision) as client:
        for _, _, trigger in CHANGES:
            await client.call(trigger)
        await client.request("ping")
        assert {message["method"] for message in client.heard} == {
            f"notifications/{kind}/list_changed" for kind, _, _ in CHANGES
        }


# What a modern server refuses.


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "unknown/method"],
)
async def test_what_the_modern_revision_does_not_have_is_not_found(method: str, autojump_clock: MockClock) -> None:
    async with connect() as client:
        with pytest.raises(Refusal, match="-32601"):
            await client.request(method)


async def test_another_version_is_refused_with_those_that_are_spoken(autojump_clock: MockClock) -> None:
    async with connect() as client:
        found = await client.request("server/discover")
        with pytest.raises(Refusal) as refused:
            await client.request("server/discover", meta={"io.modelcontextprotocol/protocolVersion": "v999.0.0"})
        assert refused.value.code == -32022
        assert refused.value.data["requested"] == "v999.0.0"
        assert refused.value.data["supported"]
        assert set(refused.value.data["supported"]) <= set(found["supportedVersions"])


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities", "clientInfo"])
async def test_a_request_must_say_its_version_and_abilities_but_not_its_name(
    missing: str, autojump_clock: MockClock
) -> None:
    async with connect() as client:
        meta = {key: value for key, value in client._meta().items() if not key.endswith(missing)}
        await client.say({"id": 99, "method": "server/discover", "params": {"_meta": meta}})
        answer = await client.hear()
        assert answer["id"] == 99
        if missing == "clientInfo":
            assert "result" in answer
        else:
            assert answer["error"]["code"] == -32602


@needs_protocol
def test_the_book_is_read() -> None:
    sound = {"type": "audio", "data": "", "mimeType": "audio/wav"}
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": [sound]}}
    for revision in (R1, R3):
        judged = by_the_book.judged(revision, answer, {1: "tools/call"})
        assert [name for name, _ in judged] == ["JSONRPCResponse", "CallToolResult"]
        fits = [by_the_book.validator(revision, name).is_valid(value) for name, value in judged]
        assert fits == [True, revision > R1]
