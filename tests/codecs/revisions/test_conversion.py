"""Between revisions: unknown members survive, and what a revision does not know is left out."""

from collections import OrderedDict, defaultdict
from functools import partial
from types import MappingProxyType
from typing import Any

import attrs
import pytest

from callboard.codecs.revisions.base import Annotations, Icon, Implementation, RequestMetaObject, Result
from callboard.codecs.revisions.calls import CallToolRequestParams, CallToolResult
from callboard.codecs.revisions.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from callboard.codecs.revisions.convert import read, write
from callboard.codecs.revisions.elicitation import ElicitRequestURLParams, ElicitResult
from callboard.codecs.revisions.inputs import InputRequiredResult
from callboard.codecs.revisions.messages import read_params, read_result, write_params, write_result
from callboard.codecs.revisions.model import UNSET, Model
from callboard.codecs.revisions.names import model_named
from callboard.codecs.revisions.prompts import Prompt, PromptArgument
from callboard.codecs.revisions.resources import Resource, ResourceLink, ResourceTemplate, TextResourceContents
from callboard.codecs.revisions.revision import LEGACY, R1, R2, R3, R4, R5, Revision
from callboard.codecs.revisions.roots import Root
from callboard.codecs.revisions.sampling import SamplingMessage
from callboard.codecs.revisions.subscriptions import ProgressNotificationParams
from callboard.codecs.revisions.tools import ListToolsResult, Tool, ToolAnnotations, ToolExecution

ICONS = (Icon(src="data:,"),)
TEXT = TextContent(text="x")
SCHEMA = {"type": "object"}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HELLO: dict[str, Any] = {"protocolVersion": "x", "clientInfo": {"name": "n", "version": "1"}}
FORM: dict[str, Any] = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}
PROGRESS = {"progressToken": 1, "progress": 1}

# REVISIONS.md, section 5: per object what each revision adds or takes away, in order. "-x" is taken away.
FIELDS: list[tuple[Model, list[str]]] = [
    (
        Implementation(name="n", version="1", title="t", description="d", icons=ICONS, website_url="https://x"),
        ["name version", "", "title", "description icons websiteUrl", ""],
    ),
    (
        Tool(
            name="n", title="t", description="d", icons=ICONS, input_schema=SCHEMA, output_schema=SCHEMA, meta={},
            annotations=ToolAnnotations(), execution=ToolExecution(),
        ),
        ["name description inputSchema", "annotations", "title outputSchema _meta", "icons execution", "-execution"],
    ),
    (
        Resource(
            uri="u", name="n", title="t", description="d", mime_type="m", size=1, icons=ICONS, meta={},
            annotations=Annotations(),
        ),
        ["uri name description mimeType size annotations", "", "title _meta", "icons", ""],
    ),
    (
        ResourceTemplate(
            uri_template="u", name="n", title="t", description="d", mime_type="m", icons=ICONS, meta={},
            annotations=Annotations(),
        ),
        ["uriTemplate name description mimeType annotations", "", "title _meta", "icons", ""],
    ),
    (
        Prompt(name="n", title="t", description="d", arguments=[], icons=ICONS, meta={}),
        ["name description arguments", "", "title _meta", "icons", ""],
    ),
    (
        PromptArgument(name="n", title="t", description="d", required=True),
        ["name description required", "", "title", "", ""],
    ),
    (
        Annotations(audience=["user"], priority=1, last_modified="l"),
        ["audience priority", "", "lastModified", "", ""],
    ),
    (
        CallToolResult(content=[TEXT], is_error=False, structured_content={}, meta=UNSET),
        ["content isError", "", "structuredContent", "", "resultType"],
    ),
    (
        CallToolResult(content=[TEXT], is_error=False, structured_content=None),
        ["content isError", "", "", "", "structuredContent resultType"],
    ),
    (Root(uri="file:///", name="n", meta={}), ["uri name", "", "_meta", "", ""]),
    (
        ListToolsResult(tools=[], next_cursor=""),
        ["tools nextCursor", "", "", "", "resultType ttlMs cacheScope"],
    ),
    (Result(), ["", "", "", "", "resultType"]),
    (
        ProgressNotificationParams(progress_token=1, progress=0.5, total=1, message="m"),
        ["progressToken progress total", "message", "", "", ""],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("instance", "changes"), FIELDS, ids=lambda value: type(value).__name__)
def test_each_revision_is_told_only_what_it_knows(instance: Model, changes: list[str]) -> None:
    allowed: set[str] = set()
    for revision, change in zip(Revision, changes, strict=True):
        names = change.split()
        allowed |= {name for name in names if not name.startswith("-")}
        allowed -= {name[1:] for name in names if name.startswith("-")}
        assert write(revision, instance).keys() == allowed, revision


BLOCKS: list[tuple[Model, Revision]] = [
    (TEXT, R1),
    (ImageContent(data="", mime_type="m"), R1),
    (EmbeddedResource(resource=TextResourceContents(uri="u", text="t")), R1),
    (AudioContent(data="", mime_type="m"), R2),
    (ResourceLink(uri="u", name="n"), R3),
    (ToolUseContent(id="1", name="n", input={}), R4),
    (ToolResultContent(tool_use_id="1", content=[]), R4),
]


@pytest.mark.parametrize(("block", "first"), BLOCKS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("revision", Revision)
def test_a_block_is_never_sent_to_a_revision_without_it(block: Model, first: Revision, revision: Revision) -> None:
    if revision >= first:
        assert read(revision, type(block), write(revision, block)) == block
    else:
        with pytest.raises(ValueError, match="does not exist"):
            write(revision, block)


def test_a_block_inside_a_result_is_refused_too() -> None:
    with pytest.raises(ValueError, match="AudioContent does not exist in 2024-11-05"):
        write(R1, CallToolResult(content=[AudioContent(data="", mime_type="m")]))


UNKNOWN = {"vendor": {"a": [1, None]}, "": 0, "extra": True, "x_y": 1.5, "self": "s"}


@pytest.mark.parametrize("revision", Revision)
def test_unknown_members_survive_at_every_level(revision: Revision) -> None:
    block = {"type": "text", "text": "x", **UNKNOWN}
    value: dict[str, Any] = {"content": [block], **UNKNOWN}
    if revision is R5:
        value["resultType"] = "complete"
    result = read_result(revision, "tools/call", value)
    assert result.extra == UNKNOWN
    assert write_result(revision, "tools/call", result) == value
    assert write(R1, result)["content"] == [block]


def test_a_member_without_a_name_is_no_tag() -> None:
    value = {"contents": [{"uri": "u", "text": "t", **UNKNOWN}], "resultType": "complete"}
    assert write(R5, read_result(R5, "resources/read", value)) == value


def test_members_of_a_later_revision_wait_in_extra_untouched() -> None:
    value = {"name": "n", "inputSchema": SCHEMA, "icons": "not icons at all", "title": 5}
    tool = read(R1, Tool, value)
    assert tool.title is UNSET
    assert tool.extra == {"icons": "not icons at all", "title": 5}
    assert write(R1, tool) == value


def test_a_typed_member_wins_over_its_namesake_in_extra() -> None:
    legacy = read_result(R4, "tools/call", {"content": [], "resultType": "strange"})
    assert write(R4, legacy)["resultType"] == "strange"
    assert write(R5, legacy)["resultType"] == "complete"


@pytest.mark.parametrize(
    ("said", "method", "params", "heard", "expected"),
    [
        (R5, "tools/call", {"name": "n", "task": {}, "_meta": META, "x": 1}, R4, {"name": "n", "_meta": {}, "x": 1}),
        (R3, "initialize", HELLO | {"capabilities": {"tasks": {}, "y": 1}}, R4, HELLO | {"capabilities": {"y": 1}}),
        (R3, "elicitation/create", FORM | {"mode": "url"}, R4, FORM),
        (R1, "notifications/progress", PROGRESS | {"message": 5}, R2, PROGRESS),
    ],
)
def test_a_member_never_gets_a_meaning_that_its_author_did_not_know(
    said: Revision, method: str, params: Any, heard: Revision, expected: Any
) -> None:
    found = read_params(said, method, params)
    assert write_params(said, method, found) == params
    assert write_params(heard, method, found) == expected


def test_a_legacy_client_cannot_slip_a_request_state_to_a_modern_server() -> None:
    found = read_params(R4, "tools/call", {"name": "n", "requestState": "forged", "inputResponses": {"a": 1}})
    assert isinstance(found, CallToolRequestParams)
    modern = attrs.evolve(found, meta=read(R5, RequestMetaObject, META))
    assert write_params(R5, "tools/call", modern) == {"name": "n", "_meta": META}


def test_a_legacy_list_becomes_a_modern_one_that_is_stale_at_once_and_private() -> None:
    found = read_result(R3, "tools/list", {"tools": []})
    expected = {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    assert write_result(R5, "tools/list", found) == expected


def test_an_absent_result_type_is_complete_and_is_written() -> None:
    result = read_result(R5, "tools/call", {"content": []})
    assert isinstance(result, CallToolResult)
    assert result.result_type == "complete"
    assert write(R5, result) == {"content": [], "resultType": "complete"}


def test_an_absent_life_time_stays_absent() -> None:
    result = read_result(R5, "resources/read", {"contents": []})
    assert write(R5, result) == {"contents": [], "resultType": "complete"}


def test_null_is_a_value_and_not_absence() -> None:
    result = read_result(R5, "tools/call", {"content": [], "structuredContent": None})
    assert isinstance(result, CallToolResult)
    assert result.structured_content is None
    assert write(R5, result) == {"content": [], "structuredContent": None, "resultType": "complete"}


def test_what_does_not_fit_an_older_revision_is_left_out_if_it_may_be() -> None:
    tool = Tool(name="n", input_schema=SCHEMA, output_schema={"type": "array"})
    assert "outputSchema" in write(R5, tool)
    assert "outputSchema" not in write(R4, tool)
    chosen = ElicitResult(action="accept", content={"many": ["a"]})
    assert write(R4, chosen) == {"action": "accept", "content": {"many": ["a"]}}
    assert write(R3, chosen) == {"action": "accept"}


@pytest.mark.parametrize("made", [OrderedDict, MappingProxyType, partial(defaultdict, int)])
@pytest.mark.parametrize("revision", [R3, R4, R5])
def test_any_mapping_is_an_object_and_any_sequence_an_array(made: Any, revision: Revision) -> None:
    result = CallToolResult(content=(TEXT,), structured_content=made({"a": 1}))
    assert write(revision, result)["structuredContent"] == {"a": 1}
    schema = made({"type": "object", "required": ("a",), "properties": made({"a": made({})})})
    assert write(revision, Tool(name="n", input_schema=schema))["inputSchema"] == schema


def test_the_meta_of_a_legacy_question_does_not_hinder_the_modern_one() -> None:
    asked = read_params(R4, "roots/list", {"_meta": {"progressToken": 1}})
    assert write_params(R5, "roots/list", asked) == {}
    modern = read_params(R5, "roots/list", {"_meta": {"progressToken": 1, "a": 2}})
    assert write_params(R4, "roots/list", modern) == {"_meta": {"progressToken": 1, "a": 2}}


@pytest.mark.parametrize(
    ("instance", "revision"),
    [
        (SamplingMessage(role="user", content=[TEXT]), R3),
        (ElicitRequestURLParams(message="m", url="https://x"), R4),
        (Tool(name="n", input_schema={"type": "string"}), R5),
    ],
)
def test_what_an_older_revision_demands_is_never_left_out(instance: Model, revision: Revision) -> None:
    with pytest.raises(ValueError, match="needs a fitting"):
        write(revision, instance)


@pytest.mark.parametrize("revision", sorted(LEGACY))
def test_a_question_is_never_a_legacy_result(revision: Revision) -> None:
    with pytest.raises(TypeError, match="InputRequiredResult"):
        write_result(revision, "tools/call", InputRequiredResult(request_state="s"))


def test_a_question_that_asks_nothing_is_not_sent() -> None:
    with pytest.raises(ValueError, match="input_requests or request_state"):
        write_result(R5, "tools/call", InputRequiredResult())


def test_a_tool_call_may_become_a_task_in_2025_11_25_alone() -> None:
    stamp = "2026-01-01T00:00:00Z"
    task = {"taskId": "1", "status": "working", "createdAt": stamp, "lastUpdatedAt": stamp, "ttl": None}
    result = read_result(R4, "tools/call", {"task": task})
    assert type(result).__name__ == "CreateTaskResult"
    assert write_result(R4, "tools/call", result) == {"task": task}
    both = read_result(R4, "tools/call", {"task": task, "content": []})
    assert isinstance(both, CallToolResult)


def test_whatever_a_task_ends_with_may_answer_for_it() -> None:
    chosen = ElicitResult(action="decline")
    assert write_result(R4, "tasks/result", chosen) == {"action": "decline"}
    assert read_result(R4, "tasks/result", {"action": "decline"}).extra == {"action": "decline"}


def test_params_that_are_absent_are_empty() -> None:
    assert write_params(R4, "tools/list", read_params(R4, "tools/list")) == {}


def test_models_compare_by_value_and_print_what_is_set() -> None:
    assert TextContent(text="x") == TEXT
    assert TextContent(text="y") != TEXT
    assert TextContent(text="x", extra={"a": 1}) != TEXT
    assert Result() != ListToolsResult(tools=[])
    assert repr(TEXT) == "TextContent(type='text', text='x')"


def test_models_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        TEXT.text = "y"  # type: ignore[misc]  # the test is that it cannot be done


def test_every_model_can_be_found_by_its_official_name() -> None:
    assert model_named("Tool") is Tool
    assert model_named("ResourceReference") is model_named("ResourceTemplateReference")
    with pytest.raises(KeyError):
        model_named("NoSuchThing")
