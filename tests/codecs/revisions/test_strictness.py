"""What does not fit is refused, with the path of the member and what was expected there."""

from typing import Any

import msgspec
import pytest

from callboard.codecs.revisions.convert import read, read_form
from callboard.codecs.revisions.elicitation import PrimitiveSchemaDefinition
from callboard.codecs.revisions.messages import read_params, read_result, write_params
from callboard.codecs.revisions.names import model_named
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5, Revision
from callboard.codecs.revisions.tools import Tool
from callboard.errors import INVALID_PARAMS, InvalidParams

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    ("revision", "method", "value", "message"),
    [
        (R4, "tools/call", {"name": 5}, "params.name: expected a string, not 5"),
        (R4, "tools/call", {}, "params.name: is required"),
        (R4, "tools/call", None, "params: expected an object, not null"),
        (R4, "tools/call", [], "params: expected an object, not an array"),
        (R4, "tools/call", {"name": "x", "arguments": []}, "params.arguments: expected an object, not an array"),
        (R4, "tools/call", {"name": "x", "task": {"ttl": 1.5}}, "params.task.ttl: expected an integer, not 1.5"),
        (R4, "tools/call", {"name": "x", "task": {"ttl": True}}, "params.task.ttl: expected an integer, not true"),
        (R4, "tools/call", {"name": "x", "_meta": {"progressToken": 1.5}},
         "params._meta.progressToken: expected a string or an integer, not 1.5"),
        (R5, "tools/list", {}, "params._meta: is required"),
        (R5, "tools/list", {"_meta": {}},
         "params._meta['io.modelcontextprotocol/clientCapabilities']: is required"),
        (R5, "tools/list", {"_meta": META | {"io.modelcontextprotocol/logLevel": "loud"}},
         "params._meta['io.modelcontextprotocol/logLevel']: expected one of 'alert', 'critical', 'debug', 'emerg"),
        (R5, "tools/call", {"_meta": META, "name": "x", "inputResponses": {"a b": {}}},
         "params.inputResponses['a b']: expected a member out of action, model, roots"),
        (R4, "prompts/get", {"name": "x", "arguments": {"n": 1}}, "params.arguments.n: expected a string, not 1"),
        (R4, "completion/complete", {"ref": {"type": "ref/tool"}, "argument": {"name": "a", "value": "b"}},
         "params.ref.type: expected one of 'ref/prompt', 'ref/resource', not 'ref/tool'"),
        (R4, "logging/setLevel", {"level": "trace"}, "params.level: expected one of"),
        (R4, "logging/setLevel", {"level": ["debug"]}, "params.level: expected one of"),
        (R3, "notifications/cancelled", {}, "params.requestId: is required"),
        (R5, "notifications/cancelled", {}, "params.requestId: is required"),
        (R4, "notifications/progress", {"progressToken": 1, "progress": "1"},
         "params.progress: expected a number, not '1'"),
        (R4, "notifications/progress", {"progressToken": 1, "progress": True},
         "params.progress: expected a number, not true"),
        (R4, "notifications/message", {"level": "debug"}, "params.data: is required"),
        (R4, "elicitation/create", {"mode": "voice", "message": "m"},
         "params.mode: expected one of 'form', 'url', not 'voice'"),
        (R4, "elicitation/create", {"mode": "url", "message": "m", "url": "u"}, "params.elicitationId: is required"),
        (R4, "elicitation/create", {"message": "m"}, "params.requestedSchema: is required"),
        (R3, "elicitation/create", {"message": "m", "requestedSchema":
         {"type": "object", "properties": {"a": {"type": "array"}}}},
         "params.requestedSchema.properties.a.type: expected one of 'boolean', 'integer', 'number', 'string'"),
        (R3, "sampling/createMessage",
         {"maxTokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
         "params.messages[0].content: expected an object, not an array"),
        (R1, "sampling/createMessage",
         {"maxTokens": 1, "messages": [{"role": "user", "content": {"type": "audio"}}]},
         "params.messages[0].content.type: expected one of 'image', 'text', not 'audio'"),
        (R4, "sampling/createMessage",
         {"maxTokens": 1, "messages": [{"role": "user", "content": [{"type": "resource"}]}]},
         "params.messages[0].content[0].type: expected one of"),
        (R4, "sampling/createMessage",
         {"maxTokens": 1, "messages": [], "modelPreferences": {"costPriority": 1.01}},
         "params.modelPreferences.costPriority: expected a number from 0 to 1, not 1.01"),
        (R4, "tasks/get", {"taskId": 4}, "params.taskId: expected a string, not 4"),
        (R5, "subscriptions/listen", {"_meta": META, "notifications": {"resourceSubscriptions": [1]}},
         "params.notifications.resourceSubscriptions[0]: expected a string, not 1"),
    ],
)  # fmt: skip
def test_wrong_params_are_refused_with_their_path(revision: Revision, method: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read_params(revision, method, value)
    assert str(caught.value).startswith(message)
    assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize(
    ("revision", "method", "value", "message"),
    [
        (R5, "tools/call", {"content": [{"type": "text", "text": "x"}, {"type": "tool_use"}]},
         "result.content[1].type: expected one of 'audio', 'image', 'resource', 'resource_link', 'text'"),
        (R2, "tools/call", {"content": [{"type": "resource_link"}]}, "result.content[0].type: expected one of"),
        (R1, "tools/call", {"content": [{"type": "audio"}]}, "result.content[0].type: expected one of"),
        (R5, "tools/call", {"content": [{"text": "x"}]}, "result.content[0].type: expected one of"),
        (R5, "tools/call", {"content": [{"type": {}}]}, "result.content[0].type: expected one of"),
        (R5, "tools/call", {"content": [{"type": "resource", "resource": {"uri": "u"}}]},
         "result.content[0].resource: expected a member out of blob, text"),
        (R4, "tools/call", {"content": [], "structuredContent": [1]},
         "result.structuredContent: expected an object, not an array"),
        (R4, "tools/call", {"task": {"taskId": "1"}}, "result.task.createdAt: is required"),
        (R5, "tools/call", {"resultType": "task", "taskId": "1"},
         "result.resultType: expected 'complete' or 'input_required'"),
        (R5, "tools/call", {"resultType": "input_required"}, "result: inputRequests or requestState is required"),
        (R5, "tools/call", {"resultType": "input_required", "inputRequests": {"a": {"method": "ping"}}},
         "result.inputRequests.a.method: expected one of"),
        (R5, "tools/list", {"resultType": "input_required", "tools": []}, "result.resultType: expected 'complete'"),
        (R5, "tools/list", {"resultType": 1, "tools": []}, "result.resultType: expected 'complete'"),
        (R5, "tools/list", {"tools": [{"name": "x", "inputSchema": {"type": "array"}}]},
         "result.tools[0].inputSchema.type: expected 'object', not 'array'"),
        (R4, "tools/list", {"tools": [{"name": "x", "inputSchema": SCHEMA, "outputSchema": {"type": "string"}}]},
         "result.tools[0].outputSchema.type: expected 'object', not 'string'"),
        (R5, "completion/complete", {"completion": {"values": ["x"] * 101}},
         "result.completion.values: expected at most 100 items"),
        (R5, "subscriptions/listen", {"_meta": {}},
         "result._meta['io.modelcontextprotocol/subscriptionId']: is required"),
        (R4, "elicitation/create", {"action": "maybe"},
         "result.action: expected one of 'accept', 'cancel', 'decline', not 'maybe'"),
        (R3, "elicitation/create", {"action": "accept", "content": {"a": ["x"]}},
         "result.content.a: expected a string or a number or a boolean, not an array"),
        (R5, "tools/call", "x", "result: expected an object, not 'x'"),
    ],
)  # fmt: skip
def test_wrong_results_are_refused_with_their_path(revision: Revision, method: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read_result(revision, method, value)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"type": "string"}, "StringSchema"),
        ({"type": "string", "enum": ["a"]}, "UntitledSingleSelectEnumSchema"),
        ({"type": "string", "enum": ["a"], "enumNames": ["A"]}, "LegacyTitledEnumSchema"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, "TitledSingleSelectEnumSchema"),
        ({"type": "array", "items": {"type": "string", "enum": []}}, "UntitledMultiSelectEnumSchema"),
        ({"type": "array", "items": {"anyOf": []}}, "TitledMultiSelectEnumSchema"),
        ({"type": "integer"}, "NumberSchema"),
        ({"type": "number"}, "NumberSchema"),
        ({"type": "boolean"}, "BooleanSchema"),
    ],
)
def test_a_form_property_is_known_by_its_shape(value: Any, name: str) -> None:
    assert type(read_form(R5, PrimitiveSchemaDefinition, value)).__name__ == name


@pytest.mark.parametrize("number", [1, 1.0, 0, -0.5, 10**30])
def test_numbers_keep_the_form_they_were_written_in(number: float) -> None:
    found = read_params(R4, "notifications/progress", {"progressToken": 1, "progress": number})
    assert repr(getattr(found, "progress", None)) == repr(number)


TASK = {"taskId": "1", "status": "working", "createdAt": "", "lastUpdatedAt": "", "ttl": None}


@pytest.mark.parametrize("written", [1.0, 0.0, -0.0, 1e3, -2.0, float(2**53)])
def test_an_integer_may_be_written_with_a_point(written: float) -> None:
    bare = read_params(R4, "tools/call", {"name": "x", "task": {"ttl": written}})
    assert repr(write_params(R4, "tools/call", bare)["task"]["ttl"]) == repr(int(written))
    or_null = read_params(R4, "notifications/tasks/status", TASK | {"ttl": written})
    assert repr(write_params(R4, "notifications/tasks/status", or_null)["ttl"]) == repr(int(written))


@pytest.mark.parametrize("written", [1.5, 1e300, float(2**54), True, "1"])
def test_what_a_float_cannot_hold_exactly_is_no_integer(written: Any) -> None:
    with pytest.raises(InvalidParams, match=r"^params\.task\.ttl: expected an integer, not "):
        read_params(R4, "tools/call", {"name": "x", "task": {"ttl": written}})
    with pytest.raises(InvalidParams, match=r"^params\.ttl: expected an integer( or null)?, not "):
        read_params(R4, "notifications/tasks/status", TASK | {"ttl": written})


@pytest.mark.parametrize(
    ("revision", "method", "value"),
    [
        (R4, "notifications/cancelled", {"requestId": 1.0}),
        (R4, "notifications/progress", {"progressToken": 1.0, "progress": 1}),
        (R4, "tools/call", {"name": "x", "_meta": {"progressToken": 1.0}}),
        (R5, "notifications/tools/list_changed", {"_meta": {"io.modelcontextprotocol/subscriptionId": 1.0}}),
    ],
)
def test_an_id_or_token_is_never_written_with_a_point(revision: Revision, method: str, value: Any) -> None:
    with pytest.raises(InvalidParams, match=r"expected a string or an integer, not 1\.0$"):
        read_params(revision, method, value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 10_000, "'" + "x" * 128 + "'..."),
        (10**5_000, "a huge integer"),
        (-(10**5_000), "a huge integer"),
        (["deep"], "an array"),
        ({"deep": {}}, "an object"),
        (None, "null"),
        (False, "false"),
        (2.5, "2.5"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_message_never_quotes_much_of_what_was_sent(value: Any, shown: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read_params(R4, "logging/setLevel", {"level": value})
    assert str(caught.value).endswith(f", not {shown}")


def test_a_path_never_quotes_much_of_a_name() -> None:
    with pytest.raises(InvalidParams) as caught:
        read_params(R4, "prompts/get", {"name": "x", "arguments": {"k" * 9_999: 1}})
    assert str(caught.value) == "params.arguments['" + "k" * 128 + "'...]: expected a string, not 1"


def test_a_value_of_any_depth_is_named_without_walking_into_it() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidParams, match="not an array"):
        read_params(R4, "logging/setLevel", {"level": deep})
    params = {"name": "x", "arguments": {"deep": deep}}
    assert write_params(R4, "tools/call", read_params(R4, "tools/call", params))["arguments"]["deep"] is deep


@pytest.mark.parametrize("raw", [b'{"name": "x"}', bytearray(b'{"name": "x"}'), msgspec.Raw(b'{"name": "x"}')])
def test_raw_bytes_are_decoded(raw: bytes | bytearray | msgspec.Raw) -> None:
    assert read_params(R4, "tools/call", raw) == read_params(R4, "tools/call", {"name": "x"})


@pytest.mark.parametrize("raw", [b"", b"{", b'{"name": "\xff"}', b"[" * 100_000, b'{"name": "x"} x'])
def test_raw_bytes_that_are_not_json_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidParams, match=r"^params: expected JSON$"):
        read_params(R4, "tools/call", raw)


def test_a_path_begins_where_the_caller_says() -> None:
    with pytest.raises(InvalidParams, match=r"^tools\[3\]\.name: is required$"):
        read(R5, Tool, {"inputSchema": SCHEMA}, at="tools[3]")


@pytest.mark.finding("protocol-1.11")
def test_a_tag_that_may_be_absent_may_be_null() -> None:
    value = {"message": "who?", "mode": None, "requestedSchema": {"type": "object", "properties": {}}}
    read_form(R4, model_named("ElicitRequestParams"), value)
