"""The example that has everything, held to what the official conformance suite asks of a server above HTTP.

Whatever it says is held to the official schema of the revision, too.
"""

import base64
import importlib.util
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import Revision, Server
from callboard.codecs.revisions.revision import LATEST, R1, R3, R4
from callboard.testing import Peer, Refusal
from tests import by_the_book
from tests.shared import needs_protocol

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "everything.py"
EVERY = pytest.mark.parametrize("revision", list(Revision), ids=str)
LEGACY = pytest.mark.parametrize("revision", [r for r in Revision if r < LATEST], ids=str)
WITH_FORMS = pytest.mark.parametrize("revision", [r for r in Revision if r >= R3], ids=str)
WITH_CHOICES = pytest.mark.parametrize("revision", [r for r in Revision if r >= R4], ids=str)

TOOLS = {
    *("test_simple_text", "test_image_content", "test_audio_content", "test_embedded_resource"),
    *("test_multiple_content_types", "test_tool_with_logging", "test_tool_with_progress", "test_error_handling"),
    *("test_sampling", "test_elicitation", "test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums"),
    *("json_schema_2020_12_tool", "test_x_mcp_header", "test_missing_capability", "test_streaming_elicitation"),
    *("test_logging_tool", "test_trigger_tool_change", "test_trigger_prompt_change"),
    *("test_input_required_result_elicitation", "test_input_required_result_sampling"),
    *("test_input_required_result_list_roots", "test_input_required_result_request_state"),
    *("test_input_required_result_multiple_inputs", "test_input_required_result_multi_round"),
    *("test_input_required_result_tampered_state", "test_input_required_result_capabilities"),
}
"""What the suite calls by name, and one with a mirrored header. `test_reconnection` needs a stream to close."""

Json = dict[str, Any]


def load_server() -> Server:
    spec = importlib.util.spec_from_file_location("everything", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server: Server = module.server
    return server


server = load_server()


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


SAMPLED = {"role": "assistant", "model": "m-1", "content": {"type": "text", "text": "Paris"}}
ROOTS = {"roots": [{"uri": "file:///test/root", "name": "Test Root"}]}
ACCOUNT = accept(username="ada", email="ada@example.com")
ANSWERS = {
    "elicitation/create": lambda params: ACCOUNT,
    "sampling/createMessage": lambda params: SAMPLED,
    "roots/list": lambda params: ROOTS,
}


def connect(revision: Revision = LATEST, **options: Any) -> AbstractAsyncContextManager[Peer]:
    return by_the_book.connect(server, revision, **{"answers": ANSWERS, **options})


def text(result: Json) -> str:
    (block,) = result["content"]
    assert block["type"] == "text"
    words: str = block["text"]
    return words


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
        first = (await client.request("resources/list"))["resources"][0]["uri"]
        asked: list[tuple[str, Json]] = [
            *((f"{kind}/list", {}) for kind in ("tools", "prompts", "resources", "resources/templates")),
            ("server/discover", {}),
            ("resources/read", {"uri": first}),
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


# Rounds of the modern era.

ASK = "test_input_required_result_"


async def ask(client: Peer, tool: str, **more: Any) -> Json:
    return await client.request("tools/call", name=ASK + tool, arguments={}, **more)


def reply(asked: Json, **responses: Json) -> Json:
    """A retry with these answers and the state that came along."""
    assert asked["resultType"] == "input_required"
    return {"inputResponses": responses, "requestState": asked["requestState"]}


def methods(asked: Json) -> dict[str, str]:
    return {key: request["method"] for key, request in asked["inputRequests"].items()}


async def test_a_round_for_the_user(autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "elicitation")
        assert methods(asked) == {"user_name": "elicitation/create"}
        form = asked["inputRequests"]["user_name"]["params"]["requestedSchema"]
        assert form["properties"] == {"name": {"type": "string"}}
        done = await ask(client, "elicitation", **reply(asked, user_name=accept(name="Alice")))
        assert text(done) == "Hello, Alice!"
        assert done["resultType"] == "complete"


async def test_a_round_for_the_model(autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "sampling")
        assert methods(asked) == {"capital_question": "sampling/createMessage"}
        params = asked["inputRequests"]["capital_question"]["params"]
        assert params["messages"][0]["content"]["text"] == "What is the capital of France?"
        assert params["maxTokens"] == 100
        done = await ask(client, "sampling", **reply(asked, capital_question=SAMPLED))
        assert text(done) == "The model says: Paris"


async def test_a_round_for_the_roots(autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "list_roots")
        assert methods(asked) == {"client_roots": "roots/list"}
        done = await ask(client, "list_roots", **reply(asked, client_roots=ROOTS))
        assert text(done) == "Roots: file:///test/root"


async def test_a_handler_that_keeps_nothing_goes_by_its_state(autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "request_state")
        assert methods(asked) == {"confirm": "elicitation/create"}
        assert isinstance(asked["requestState"], str)
        assert text(await ask(client, "request_state", **reply(asked, confirm=accept(ok=True)))) == "state-ok"


async def test_three_questions_in_one_round_and_only_the_missing_one_again(autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "multiple_inputs")
        assert methods(asked) == {
            "user_name": "elicitation/create",
            "greeting": "sampling/createMessage",
            "client_roots": "roots/list",
        }
        again = await ask(client, "multiple_inputs", **reply(asked, user_name=accept(name="Ada"), client_roots=ROOTS))
        assert methods(again) == {"greeting": "sampling/createMessage"}
        done = await ask(client, "multiple_inputs", **reply(again, greeting=SAMPLED))
        assert text(done) == "Paris Ada works in 1 folders."


async def test_two_rounds_with_a_state_each(autojump_clock: MockClock) -> None:
    async with connect() as client:
        first = await ask(client, "multi_round")
        assert methods(first) == {"step1": "elicitation/create"}
        second = await ask(client, "multi_round", **reply(first, step1=accept(name="Ada")))
        assert methods(second) == {"step2": "elicitation/create"}
        assert second["requestState"] != first["requestState"]
        done = await ask(client, "multi_round", **reply(second, step2=accept(colour="blue")))
        assert text(done) == "Ada likes blue."


@pytest.mark.parametrize("with_state", [True, False])
async def test_an_answer_under_another_key_is_asked_for_again(with_state: bool, autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "elicitation")
        answered = reply(asked, wrong_key=accept(data="wrong"))
        if not with_state:
            del answered["requestState"]
        assert methods(await ask(client, "elicitation", **answered)) == {"user_name": "elicitation/create"}


async def test_answers_that_nobody_asked_for_are_ignored(autojump_clock: MockClock) -> None:
    responses = {"user_name": accept(name="Alice"), "unknown": accept(foo="bar"), "another": accept(baz=123)}
    async with connect() as client:
        assert text(await ask(client, "elicitation", inputResponses=responses)) == "Hello, Alice!"


@pytest.mark.parametrize("responses", [None, 7, [], {"user_name": 12345}, {"user_name": ROOTS}], ids=str)
async def test_answers_of_the_wrong_shape_are_refused(responses: Any, autojump_clock: MockClock) -> None:
    async with connect() as client:
        with pytest.raises(Refusal, match="-32602"):
            await ask(client, "elicitation", inputResponses=responses)
        asked = await ask(client, "elicitation")
        with pytest.raises(Refusal, match="-3260"):
            await ask(client, "elicitation", inputResponses=responses, requestState=asked["requestState"])
        done = await ask(client, "elicitation", **reply(asked, user_name=accept(name="Alice")))
        assert text(done) == "Hello, Alice!"


@pytest.mark.parametrize("tool", ["tampered_state", "request_state"])
async def test_a_state_that_was_tampered_with_is_refused(tool: str, autojump_clock: MockClock) -> None:
    async with connect() as client:
        good = reply(await ask(client, tool), confirm=accept(ok=True))
        with pytest.raises(Refusal, match="-32602"):
            await ask(client, tool, **{**good, "requestState": good["requestState"] + "-TAMPERED"})
        assert "resultType" in await ask(client, tool, **good)


async def test_only_what_the_client_can_answer_is_asked(autojump_clock: MockClock) -> None:
    async with connect(capabilities={"sampling": {}}) as client:
        assert methods(await ask(client, "capabilities")) == {"model_name": "sampling/createMessage"}
    async with connect(capabilities={"elicitation": {}}) as client:
        assert methods(await ask(client, "capabilities")) == {"user_name": "elicitation/create"}


async def test_a_prompt_asks_too(autojump_clock: MockClock) -> None:
    async with connect() as client:
        get = partial(client.request, "prompts/get", name="test_input_required_result_prompt")
        asked = await get()
        assert methods(asked) == {"user_context": "elicitation/create"}
        form = asked["inputRequests"]["user_context"]["params"]["requestedSchema"]
        assert form["properties"] == {"context": {"type": "string"}}
        done = await get(**reply(asked, user_context=accept(context="testing")))
        assert "testing" in done["messages"][0]["content"]["text"]


@WITH_FORMS
async def test_every_tool_that_asks_by_name_serves_every_revision_with_forms(
    revision: Revision, autojump_clock: MockClock
) -> None:
    by_field = {"name": "Ada", "colour": "blue", "ok": True, "context": "testing"}

    def fill_in(params: Json) -> Json:
        return accept(**{name: by_field[name] for name in params["requestedSchema"]["properties"]})

    said = {
        "elicitation": "Hello, Ada!",
        "sampling": "The model says: Paris",
        "list_roots": "Roots: file:///test/root",
        "request_state": "state-ok",
        "multiple_inputs": "Paris Ada works in 1 folders.",
        "multi_round": "Ada likes blue.",
        "tampered_state": "Confirmed",
        "capabilities": "Hello, Paris!",
    }
    async with connect(revision, answers={**ANSWERS, "elicitation/create": fill_in}) as client:
        assert {tool: text(await client.call(ASK + tool)) for tool in said} == said


# Resources, prompts, completion.


@EVERY
async def test_resources_are_listed_and_read(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(revision) as client:
        resources = (await client.request("resources/list"))["resources"]
        assert [one["uri"] for one in resources] == [
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
