"""What the server of examples/everything.py lists, and what its tools do."""

import base64
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import Revision
from callboard.codecs.revisions.revision import LATEST, R1, R3
from callboard.testing import Peer, Refusal
from tests.everything.stage import (
    ACCOUNT,
    EVERY,
    LEGACY,
    SAMPLED,
    TOOLS,
    WITH_CHOICES,
    WITH_FORMS,
    Json,
    accept,
    connect,
    text,
)

# Lists and metadata.


@LEGACY
async def test_the_handshake_declares_everything(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision) as client:
        agreed = client.agreed
    assert agreed["protocolVersion"] == revision
    assert agreed["serverInfo"]["name"] == "everything"
    declared = agreed["capabilities"]
    assert declared["tools"] == declared["prompts"] == {"listChanged": True}
    assert declared["resources"] == {"listChanged": True, "subscribe": True}
    assert "logging" in declared
    assert ("completions" in declared) == (revision > R1)


async def test_discovery_says_who_answers_and_in_which_versions(autojump_clock: MockClock) -> None:
    async with connect() as client:
        found = await client.request("server/discover")
    assert LATEST in found["supportedVersions"]
    assert found["capabilities"]["tools"]["listChanged"] is True
    assert "completions" in found["capabilities"]
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "everything"
    assert found["resultType"] == "complete"


@EVERY
async def test_every_tool_is_listed_in_one_order_and_the_first_needs_nothing(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with connect(revision) as client:
        lists = [(await client.request("tools/list"))["tools"] for _ in range(3)]
        assert lists[0] == lists[1] == lists[2]
        assert {tool["name"] for tool in lists[0]} == TOOLS
        assert all(tool["description"] and tool["inputSchema"]["type"] == "object" for tool in lists[0])
        assert lists[0][0]["name"] == "test_simple_text"
        assert "x-mcp-header" not in str(lists[0][0])
        assert await client.request("tools/call", name="test_simple_text")
        described = {tool["name"]: tool["inputSchema"]["properties"] for tool in lists[0]}
        assert described["test_x_mcp_header"]["region"]["x-mcp-header"] == "Region"


async def test_an_authors_schema_is_listed_unaltered(autojump_clock: MockClock) -> None:
    async with connect() as client:
        tools = (await client.request("tools/list"))["tools"]
        (schema,) = [tool["inputSchema"] for tool in tools if tool["name"] == "json_schema_2020_12_tool"]
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["$defs"]["address"]["$anchor"] == "addressDef"
        assert schema["properties"]["address"] == {"$ref": "#/$defs/address"}
        assert schema["allOf"] == [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}]
        assert schema["if"]["required"] == ["contactMethod"]
        assert (schema["then"], schema["else"]) == ({"required": ["phone"]}, {"required": ["email"]})
        assert schema["additionalProperties"] is False
        assert (
            text(await client.call("json_schema_2020_12_tool", contactMethod="phone", phone="1")) == "Contact by phone"
        )
        refused = await client.call("json_schema_2020_12_tool", contactMethod="phone", email="a@b")
        assert refused["isError"] is True


async def test_what_may_be_cached_says_for_how_long(autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked: list[tuple[str, Json]] = [
            *((f"{kind}/list", {}) for kind in ("tools", "prompts", "resources", "resources/templates")),
            ("server/discover", {}),
            ("resources/read", {"uri": "test://static-text"}),
        ]
        for method, params in asked:
            result = await client.request(method, **params)
            assert result["ttlMs"] >= 0
            assert result["cacheScope"] in ("public", "private")


# Tools that need nobody.


@EVERY
async def test_tools_give_text_pictures_sounds_and_resources(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision) as client:
        assert text(await client.call("test_simple_text")) == "This is a simple text response for testing."
        (image,) = (await client.call("test_image_content"))["content"]
        assert (image["type"], image["mimeType"]) == ("image", "image/png")
        assert base64.b64decode(image["data"], validate=True).startswith(b"\x89PNG")
        (sound,) = (await client.call("test_audio_content"))["content"]
        if revision > R1:
            assert (sound["type"], sound["mimeType"]) == ("audio", "audio/wav")
            assert len(base64.b64decode(sound["data"], validate=True)) == 46
        else:
            assert (sound["type"], sound["resource"]["mimeType"]) == ("resource", "audio/wav")
        (embedded,) = (await client.call("test_embedded_resource"))["content"]
        assert embedded["type"] == "resource"
        assert embedded["resource"] == {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        }
        mixed = (await client.call("test_multiple_content_types"))["content"]
        assert [block["type"] for block in mixed] == ["text", "image", "resource"]
        assert mixed[2]["resource"]["text"] == '{"test":"data","value":123}'
        assert text(await client.call("test_x_mcp_header", region="eu")) == "Runs in eu"


@EVERY
async def test_a_tool_that_fails_has_a_result_that_says_so(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision) as client:
        result = await client.call("test_error_handling")
        assert result["isError"] is True
        assert text(result) == "This tool intentionally returns an error for testing"


@LEGACY
async def test_log_lines_come_before_the_result_at_the_level_that_was_set(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with connect(revision) as client:
        assert await client.request("logging/setLevel", level="debug") == {}
        assert text(await client.call("test_tool_with_logging"))
        lines = client.notifications("notifications/message")
        assert [(line["level"], line["data"]) for line in lines] == [
            ("info", "Tool execution started"),
            ("info", "Tool processing data"),
            ("info", "Tool execution completed"),
        ]
        assert await client.request("logging/setLevel", level="error") == {}
        await client.call("test_tool_with_logging")
        assert len(client.notifications("notifications/message")) == 3


async def test_a_modern_request_hears_log_lines_only_if_it_asks_for_them(autojump_clock: MockClock) -> None:
    async with connect() as client:
        await client.call("test_logging_tool")
        assert not client.heard
    async with connect(log_level="info") as client:
        await client.call("test_logging_tool")
        assert len(client.notifications("notifications/message")) == 1


@EVERY
async def test_progress_rises_under_the_token_before_the_result(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision) as client:
        meta = {"progressToken": "progress-test-1"}
        started = trio.current_time()
        assert text(await client.request("tools/call", name="test_tool_with_progress", meta=meta))
        assert trio.current_time() - started == pytest.approx(0.15)
        reports = client.notifications("notifications/progress")
        assert [(one["progressToken"], one["progress"], one["total"]) for one in reports] == [
            ("progress-test-1", percent, 100) for percent in (0, 50, 100)
        ]
        client.heard.clear()
        await client.call("test_tool_with_progress")
        assert not client.heard


@LEGACY
async def test_a_ping_is_answered_with_nothing(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision) as client:
        assert await client.request("ping") == {}


# Tools that ask.


@EVERY
async def test_the_clients_model_is_asked(revision: Revision, autojump_clock: MockClock) -> None:
    asked: list[Json] = []

    def sample(params: Json) -> Json:
        asked.append(params)
        return SAMPLED

    async with connect(revision, answers={"sampling/createMessage": sample}) as client:
        assert text(await client.call("test_sampling", prompt="Capital of France?")) == "LLM response: Paris"
        (params,) = asked
        assert params["messages"] == [{"role": "user", "content": {"type": "text", "text": "Capital of France?"}}]
        assert params["maxTokens"] == 100
        assert text(await client.call("test_missing_capability")) == "Paris"


async def asked_by(client: Peer, tool: str, answer: Json, **arguments: Any) -> tuple[Json, Json]:
    """Call a tool that asks the user once: the form, and what came of it."""
    forms: list[Json] = []

    def fill_in(params: Json) -> Json:
        forms.append(params)
        return answer

    client.answers = {"elicitation/create": fill_in}
    result = await client.call(tool, **arguments)
    (form,) = forms
    return form, result


@WITH_FORMS
async def test_the_user_is_asked_for_an_account(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision) as client:
        form, result = await asked_by(client, "test_elicitation", ACCOUNT, message="Who are you?")
        assert form["message"] == "Who are you?"
        schema = form["requestedSchema"]
        assert {name: field["type"] for name, field in schema["properties"].items()} == {
            "username": "string",
            "email": "string",
        }
        assert set(schema["required"]) == {"username", "email"}
        assert text(result) == "User response: ada <ada@example.com>"
        _, result = await asked_by(client, "test_streaming_elicitation", ACCOUNT)
        assert text(result) == "Hello, ada!"


@WITH_FORMS
async def test_defaults_stand_in_the_form_where_the_revision_has_them(
    revision: Revision, autojump_clock: MockClock
) -> None:
    answer = accept(name="Ada", age=36, score=99.5, status="pending", verified=False)
    async with connect(revision) as client:
        form, result = await asked_by(client, "test_elicitation_sep1034_defaults", answer)
        fields = form["requestedSchema"]["properties"]
        assert {name: field["type"] for name, field in fields.items()} == {
            "name": "string",
            "age": "integer",
            "score": "number",
            "status": "string",
            "verified": "boolean",
        }
        assert fields["status"]["enum"] == ["active", "inactive", "pending"]
        defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
        all_of_them = {"name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": True}
        assert defaults == (all_of_them if revision > R3 else {"verified": True})
        assert "Ada" in text(result)
        assert "isError" not in result


@WITH_CHOICES
async def test_every_kind_of_choice_is_offered(revision: Revision, autojump_clock: MockClock) -> None:
    answer = accept(
        untitledSingle="option1",
        titledSingle="value1",
        legacyEnum="opt1",
        untitledMulti=["option1", "option2"],
        titledMulti=["value1", "value2"],
    )
    async with connect(revision) as client:
        form, result = await asked_by(client, "test_elicitation_sep1330_enums", answer)
        fields = form["requestedSchema"]["properties"]
        assert fields["untitledSingle"].keys() == {"type", "enum"}
        assert fields["titledSingle"].keys() == {"type", "oneOf"}
        assert all(choice.keys() == {"const", "title"} for choice in fields["titledSingle"]["oneOf"])
        assert fields["legacyEnum"].keys() == {"type", "enum", "enumNames"}
        assert len(fields["legacyEnum"]["enum"]) == len(fields["legacyEnum"]["enumNames"])
        assert fields["untitledMulti"]["items"].keys() == {"type", "enum"}
        assert fields["titledMulti"]["items"].keys() == {"anyOf"}
        assert text(result).startswith("Elicitation completed: ")


async def test_choices_that_a_revision_cannot_offer_are_a_clear_tool_error(autojump_clock: MockClock) -> None:
    async with connect(R3) as client:
        result = await client.call("test_elicitation_sep1330_enums")
        assert result["isError"] is True
        assert "2025-06-18" in text(result)


async def test_a_modern_client_without_a_model_is_told_what_it_lacks(autojump_clock: MockClock) -> None:
    async with connect(capabilities={}) as client:
        with pytest.raises(Refusal) as refused:
            await client.call("test_missing_capability")
        assert refused.value.code == -32021
        assert refused.value.data == {"requiredCapabilities": {"sampling": {}}}


@LEGACY
async def test_a_legacy_client_without_a_model_gets_a_tool_error(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision, capabilities={}) as client:
        result = await client.call("test_missing_capability")
        assert result["isError"] is True
        assert "sampling" in text(result)


async def test_a_stream_that_asks_carries_notifications_and_a_result_only(autojump_clock: MockClock) -> None:
    async with connect(capabilities={"elicitation": {}}) as client:
        request_id = await client.begin("tools/call", name="test_streaming_elicitation", meta={"progressToken": 1})
        started = trio.current_time()
        report, answer = await client.hear(), await client.hear()
        assert report["method"] == "notifications/progress"
        assert answer["id"] == request_id
        assert answer["result"]["resultType"] == "input_required"
        assert trio.current_time() - started < 0.6
