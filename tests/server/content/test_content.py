import base64
import datetime
import ipaddress
import re
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import attrs
import msgspec
import pytest

from callboard.codecs.revisions import (
    LATEST,
    UNSET,
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    PromptMessage,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    write,
)
from callboard.server.content.content import assistant, to_contents, to_messages, user
from callboard.server.content.errors import BadResult
from callboard.server.content.media import Audio, Blob, Image
from callboard.server.signature.signature import Signature
from tests.server.kinds import Context, Guest, Level, Opaque, Pair, Place, Point, Row, Stay, Unit
from tests.server.results import to_result

PNG = b"\x89PNG\r\n\x1a\n rest"
WAV = b"RIFF\0\0\0\0WAVEfmt "
LINK = ResourceLink(uri="file:///a", name="a")
TEXT = TextContent(text="t")


def returning(annotation: Any, **options: Any) -> Signature:
    def tool() -> Any: ...

    tool.__annotations__["return"] = annotation
    return Signature.of(tool, context_type=Context, **options)


def text_of(result: CallToolResult) -> list[str]:
    assert all(isinstance(block, TextContent) for block in result.content)
    return [block.text for block in result.content if isinstance(block, TextContent)]


ROW = {"id": {"type": "integer"}, "name": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}}
WRAPPED = {"type": "object", "required": ["result"], "additionalProperties": False}


def wrapped(schema: Any, **more: Any) -> dict[str, Any]:
    return {**WRAPPED, "properties": {"result": schema}, **more}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, None),
        (None, None),
        (Any, None),
        (str | None, None),
        (Annotated[str, "text"], None),
        (bytes, None),
        (Image, None),
        (list[Image | str], None),
        (ImageContent | Place, None),
        (CallToolResult, None),
        (tuple[str, Image], None),
        (int, wrapped({"type": "integer"})),
        (list[str], wrapped({"type": "array", "items": {"type": "string"}})),
        (int | None, wrapped({"anyOf": [{"type": "integer"}, {"type": "null"}]})),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (dict, {"type": "object"}),
        (Row, {"type": "object", "properties": ROW, "required": ["id"]}),
        (
            Unit,
            wrapped(
                {"$ref": "#/$defs/Unit"}, **{"$defs": {"Unit": {"enum": ["metric", "imperial"], "type": "string"}}}
            ),
        ),
    ],
    ids=str,
)
def test_data_is_promised_and_text_is_not(annotation: Any, schema: Any) -> None:
    found = returning(annotation).output
    assert (found and found.schema) == schema


@pytest.mark.parametrize("annotation", [Place, Point, Stay, Row, Guest, dict[str, Any]])
def test_an_object_is_promised_at_the_root(annotation: Any) -> None:
    output = returning(annotation).output
    assert output is not None
    assert output.schema["type"] == "object"
    assert not output.is_wrapped
    assert "$ref" not in output.schema


RETURNED: list[tuple[Any, Any, list[str], Any]] = [  # annotation, value, texts, structured content
    (None, None, [], UNSET),
    (str, "hello", ["hello"], UNSET),
    (Any, 3, ["3"], UNSET),
    (Any, True, ["true"], UNSET),
    (Any, Unit.METRIC, ["metric"], UNSET),
    (Any, datetime.date(2026, 7, 28), ["2026-07-28"], UNSET),
    (int, 3, ["3"], {"result": 3}),
    (bool, False, ["false"], {"result": False}),
    (Level, Level.HIGH, ["2"], {"result": 2}),
    (float | None, None, ["null"], {"result": None}),
    (Any, {"a": 1}, ['{"a":1}'], {"a": 1}),
    (dict[str, int], {"a": 1}, ['{"a":1}'], {"a": 1}),
    (dict[int, Unit], {1: Unit.METRIC}, ['{"1":"metric"}'], {"1": "metric"}),
    (Place, Place("Delft"), ['{"city":"Delft","country":"NL"}'], {"city": "Delft", "country": "NL"}),
    (Any, Point(1), ['{"x":1,"y":0,"tags":[]}'], {"x": 1, "y": 0, "tags": []}),
    (Stay, {"nights": 2}, ['{"nights":2}'], {"nights": 2}),
    (Row, Row(1), ['{"id":1,"name":null}'], {"id": 1, "name": None}),
    (Any, Pair(1, "b"), ['[1,"b"]'], UNSET),
    (Any, ["a", 2, {"b": 3}], ["a", "2", '{"b":3}'], UNSET),
    (Any, ("a", "b"), ["a", "b"], UNSET),
    (list[str], ["a", "b"], ['["a","b"]'], {"result": ["a", "b"]}),
    (list[Place], [Place("D")], ['[{"city":"D","country":"NL"}]'], {"result": [{"city": "D", "country": "NL"}]}),
    (Path, Path("a/b"), ["a/b"], {"result": "a/b"}),
]


@pytest.mark.parametrize(("annotation", "value", "texts", "structured"), RETURNED, ids=lambda part: str(part)[:30])
def test_what_a_tool_returns_is_text_and_where_promised_data(
    annotation: Any, value: Any, texts: list[str], structured: Any
) -> None:
    result = to_result(value, returning(annotation))
    assert text_of(result) == texts
    assert result.structured_content == structured
    assert result.is_error is UNSET
    write(LATEST, result)  # it can be sent


def test_a_pydantic_model_is_an_object_too() -> None:
    result = to_result(Guest(first_name="A"), returning(Guest))
    assert result.structured_content == {"first_name": "A", "age": 30, "unit": "metric", "friend": None}


def test_content_is_passed_on_and_media_become_blocks() -> None:
    result = to_result([LINK, TEXT, Image(PNG), Audio(WAV), "x"], returning(Any))
    assert result.content == [
        LINK,
        TEXT,
        ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png"),
        AudioContent(data=base64.b64encode(WAV).decode(), mime_type="audio/wav"),
        TextContent(text="x"),
    ]
    assert to_result(LINK, returning(Any)).content == [LINK]


def test_a_blob_is_an_embedded_resource_named_by_its_digest_or_its_uri() -> None:
    [block] = to_result(Blob(b"hi", "application/zip"), returning(Blob)).content
    name = "ni:///sha-256;j0NDRmSPa5bfid2pAcUXaxCm2Dlh3TwayItZstwyeqQ"
    assert block == EmbeddedResource(resource=BlobResourceContents(uri=name, mime_type="application/zip", blob="aGk="))
    [block] = to_result(Blob(b"hi", "application/zip", uri="a://b"), returning(Blob)).content
    assert isinstance(block, EmbeddedResource)
    assert block.resource.uri == "a://b"


def test_contents_of_a_resource_are_embedded() -> None:
    contents = TextResourceContents(uri="a://b", text="t")
    assert to_result([contents], returning(Any)).content == [EmbeddedResource(resource=contents)]


def test_a_ready_result_is_passed_on_if_it_keeps_the_promise() -> None:
    ready = CallToolResult(content=[TEXT], structured_content={"nights": 1})
    failed = CallToolResult(content=[TEXT], is_error=True)
    promise = returning(CallToolResult, output_schema={"type": "object", "required": ["nights"]})
    assert to_result(ready, promise) is ready
    assert to_result(failed, promise) is failed
    with pytest.raises(BadResult, match="expected object, got null"):
        to_result(CallToolResult(content=[TEXT]), promise)


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (int, "three", r"does not match the output schema\n- result: expected integer, got \"three\""),
        (Place, None, "expected object, got null"),
        (Stay, {"breakfast": True}, "- nights: is required"),
        (Any, Opaque(), "a result of type Opaque cannot be serialized as JSON"),
        (Any, Fraction(1, 2), "a result of type Fraction cannot be serialized as JSON"),
        (Any, [1j], "complex cannot be serialized as JSON"),
        (Any, re.compile("a"), "Pattern cannot be serialized as JSON"),
        (Any, b"raw", r"bytes has no MIME type: return Blob\(data, mime_type\)"),
        (Any, [b"raw"], "bytes has no MIME type"),
        (Any, {"a": Opaque()}, "Opaque cannot be serialized as JSON"),
        (Any, {("a", "b"): 1}, "cannot be serialized as JSON"),
    ],
)
def test_a_result_that_breaks_the_promise_or_has_no_form_is_never_sent(annotation: Any, value: Any, words: str) -> None:
    with pytest.raises(BadResult, match=words):
        to_result(value, returning(annotation))


def test_a_result_without_a_form_does_not_load_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold up the event loop."""
    monkeypatch.delitem(sys.modules, "pydantic")
    with pytest.raises(BadResult, match="IPv4Address cannot be serialized as JSON"):
        to_result(ipaddress.IPv4Address("10.0.0.1"), returning(Any))
    assert "pydantic" not in sys.modules


def test_the_promise_can_be_switched_off() -> None:
    assert returning(int, output_schema=False).output is None
    assert returning(Opaque, plain=(Opaque,)).output is None


# Media.


def test_media_are_read_from_a_path_and_know_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"anything")
    (tmp_path / "unnamed").write_bytes(PNG)
    assert Image(tmp_path / "a.png").mime_type == "image/png"
    assert Image(tmp_path / "unnamed").mime_type == "image/png"
    assert Image(tmp_path / "a.png", "image/x-own").mime_type == "image/x-own"
    assert repr(Image(PNG)) == "Image(data=<13 bytes>, mime_type='image/png', uri=None, annotations=UNSET)"
    with pytest.raises(FileNotFoundError):
        Image(tmp_path / "missing.png")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
        (WAV, "audio/wav"),
        (b"ID3\x04", "audio/mpeg"),
        (b"OggS", "audio/ogg"),
        (b"fLaC", "audio/flac"),
    ],
)
def test_common_formats_are_known_by_their_first_bytes(data: bytes, kind: str) -> None:
    assert Blob(data).mime_type == kind


@pytest.mark.parametrize("kind", [Blob, Image, Audio])
def test_data_of_no_known_kind_needs_a_type(kind: Callable[[bytes], Blob]) -> None:
    with pytest.raises(ValueError, match="pass mime_type"):
        kind(b"??")


def test_media_carry_their_annotations() -> None:
    annotations = Annotations(priority=1.0)
    assert Image(PNG, annotations=annotations).block().annotations == annotations


# Prompts.


def test_prompts_return_text_messages_or_both() -> None:
    said = PromptMessage(role="assistant", content=TEXT)
    hello = PromptMessage(role="user", content=TextContent(text="hello"))
    assert to_messages("hello") == [hello]
    assert to_messages(["hello", said]) == [hello, said]
    assert to_messages([user("hello"), assistant(TEXT)]) == [hello, said]
    assert to_messages({"role": "assistant", "content": TEXT}) == [said]
    assert to_messages(GetPromptResult(messages=[said])) == [said]
    assert to_messages(None) == []
    assert to_messages(Place("D")) == [user('{"city":"D","country":"NL"}')]
    assert to_messages(Image(PNG))[0].content == Image(PNG).block()


def test_a_message_of_nobody_is_refused() -> None:
    with pytest.raises(BadResult, match=r"the role of a message must be user or assistant: .system."):
        to_messages({"role": "system", "content": "x"})


# Resources.

NOTE = TextResourceContents(uri="a://b", text="t")
URI = "weather://delft/now"


@pytest.mark.parametrize(
    ("value", "mime_type", "expected"),
    [
        ("sun", None, [TextResourceContents(uri=URI, mime_type="text/plain", text="sun")]),
        ("# sun", "text/markdown", [TextResourceContents(uri=URI, mime_type="text/markdown", text="# sun")]),
        (b"hi", None, [BlobResourceContents(uri=URI, mime_type="application/octet-stream", blob="aGk=")]),
        (bytearray(b"hi"), "a/b", [BlobResourceContents(uri=URI, mime_type="a/b", blob="aGk=")]),
        (Blob(b"hi", "a/b"), "c/d", [BlobResourceContents(uri=URI, mime_type="a/b", blob="aGk=")]),
        ({"a": 1}, None, [TextResourceContents(uri=URI, mime_type="application/json", text='{"a":1}')]),
        (["a"], None, [TextResourceContents(uri=URI, mime_type="application/json", text='["a"]')]),
        ([], None, [TextResourceContents(uri=URI, mime_type="application/json", text="[]")]),
        (
            Place("D"),
            "application/ld+json",
            [TextResourceContents(uri=URI, mime_type="application/ld+json", text='{"city":"D","country":"NL"}')],
        ),
        (
            [b"hi", NOTE],
            None,
            [
                BlobResourceContents(uri=URI, mime_type="application/octet-stream", blob="aGk="),
                NOTE,
            ],
        ),
        (EmbeddedResource(resource=NOTE), None, [NOTE]),
        (ReadResourceResult(contents=[]), None, []),
        (None, None, []),
    ],
    ids=lambda part: str(part)[:30],
)
def test_resources_return_text_bytes_data_or_contents(value: Any, mime_type: str | None, expected: list[Any]) -> None:
    assert to_contents(URI, value, mime_type) == expected


def test_a_text_that_is_more_than_text_is_sent_as_text() -> None:
    class Loud(str):
        __slots__ = ()

    [block] = to_result(Loud("x"), returning(str)).content
    assert isinstance(block, TextContent)
    assert type(block.text) is str


@attrs.define
class Tree:
    under: "list[Tree]"


def test_a_result_that_never_ends_is_the_servers_own_fault() -> None:
    tree = Tree([])
    tree.under.append(tree)
    with pytest.raises(BadResult, match="cannot be serialized as JSON"):
        to_result(tree, returning(Any))


def test_structured_content_is_what_a_peer_will_read() -> None:
    result = to_result({"a": float("nan"), "b": {1}}, returning(Any))
    assert result.structured_content == {"a": None, "b": [1]} == msgspec.json.decode(text_of(result)[0])


@pytest.mark.finding("protocol-1.12b")
@pytest.mark.parametrize(
    "annotation", [list, list[Any], tuple, tuple[Any, ...], Sequence[Any], Annotated[list[Any], "x"]]
)
def test_a_list_of_anything_with_content_in_it_is_blocks(annotation: Any) -> None:
    signature = returning(annotation)
    result = to_result([TEXT, "words", Image(PNG), LINK, {"a": 1}], signature)
    kinds = [type(block) for block in result.content]
    assert kinds == [TextContent, TextContent, ImageContent, ResourceLink, TextContent]
    assert signature.output is not None
    structured: Any = result.structured_content
    signature.output.check(structured)
    told = structured["result"]
    assert told[0] == {"type": "text", "text": "t"}
    assert told[1] == "words"
    assert told[2]["mimeType"] == "image/png"
    assert told[3:] == [{"type": "resource_link", "uri": "file:///a", "name": "a"}, {"a": 1}]
    assert "extra" not in str([*result.content, told])


@pytest.mark.parametrize("annotation", [list, list[Any]])
def test_a_list_of_anything_without_content_is_data(annotation: Any) -> None:
    result = to_result([1, "a", {"b": None}], returning(annotation))
    assert text_of(result) == ['[1,"a",{"b":null}]']
    assert result.structured_content == {"result": [1, "a", {"b": None}]}


def test_a_list_of_something_else_may_hold_no_content() -> None:
    with pytest.raises(BadResult):
        to_result([TEXT], returning(list[int]))
