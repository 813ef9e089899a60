"""`-o FILE` and `--save DIR`: which part of a result goes into the file, and which to the terminal or the pipe."""

import base64
import json
import sys
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from rich.console import Console

from callboard.cli.input_files import BadArgument
from callboard.cli.media_files import MediaFiles, SaveFlags
from callboard.cli.output import ResultPrinter
from callboard.codecs.revisions import (
    LATEST,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ImageContent,
    JSONObject,
    ReadResourceResult,
    TextContent,
    TextResourceContents,
)

BYTES: Final = b"\x89PNG\0"
SOUND: Final = b"RIFF\0"
PICTURE: Final = ImageContent(data=base64.b64encode(BYTES).decode(), mime_type="image/png")
NOISE: Final = AudioContent(data=base64.b64encode(SOUND).decode(), mime_type="audio/wav")
WIDE: Final[JSONObject] = {"words": "long " * 40}
STRUCTURED: Final = CallToolResult(content=[TextContent(text=json.dumps(WIDE))], structured_content=WIDE)
BARE: Final = CallToolResult(content=[], structured_content={"a": 1})
TEXT: Final = CallToolResult(content=[TextContent(text="a text")])
TEXTS: Final = CallToolResult(content=[TextContent(text="one"), TextContent(text="two")])
BOTH: Final = CallToolResult(content=[TextContent(text="before"), PICTURE, NOISE])

RESULTS: Final = {
    "text": (TEXT, b"a text\n"),
    "texts": (TEXTS, b"one\ntwo\n"),
    "wide structured content": (STRUCTURED, f"{json.dumps(WIDE)}\n".encode()),
    "structured content alone": (BARE, b'{\n  "a": 1\n}\n'),
    "picture, sound and text": (BOTH, BYTES),
}
results = pytest.mark.parametrize("name", RESULTS)
Capture: TypeAlias = pytest.CaptureFixture[bytes]
outputs = pytest.mark.parametrize("is_terminal", [False, True], ids=["pipe", "terminal"])


def printer(output: object = None, *, is_terminal: bool = False, is_json: bool = False) -> ResultPrinter:
    console = Console(file=sys.stdout, force_terminal=is_terminal, width=80, no_color=True, color_system=None)
    files = MediaFiles(SaveFlags(output=None if output is None else Path(str(output))), "tool")
    return ResultPrinter(LATEST, is_json, files, console=console)


@results
@outputs
def test_a_file_gets_the_bytes_or_the_text_of_a_result(
    name: str, is_terminal: bool, capsysbinary: Capture, tmp_path: Path
) -> None:
    result, expected = RESULTS[name]
    file = tmp_path / "it.png"
    printer(file, is_terminal=is_terminal).called(result)
    assert file.read_bytes() == expected
    shown = capsysbinary.readouterr().out.decode()
    if result is not BOTH:
        assert shown == ""
        return
    assert (tmp_path / "it-2.png").read_bytes() == SOUND
    assert shown.splitlines() == [
        "before",
        f"[image: image/png, 5 bytes; saved as {file}]",
        f"[audio: audio/wav, 5 bytes; saved as {tmp_path}/it-2.png]",
    ]


@results
@outputs
def test_standard_output_gets_the_bytes_or_the_text_alone(name: str, is_terminal: bool, capsysbinary: Capture) -> None:
    result, expected = RESULTS[name]
    printer("-", is_terminal=is_terminal).called(result)
    written = capsysbinary.readouterr()
    if result is BOTH:
        assert written.out == BYTES + SOUND
        assert written.err.startswith(b"before\n[image: ")
    else:
        assert written == (expected, b"")


@results
def test_json_is_printed_and_the_file_is_the_same(name: str, capsysbinary: Capture, tmp_path: Path) -> None:
    result, expected = RESULTS[name]
    file = tmp_path / "it"
    printer(file, is_json=True).called(result)
    assert file.read_bytes() == expected
    assert len(json.loads(capsysbinary.readouterr().out)["content"]) == len(result.content)


@outputs
@pytest.mark.parametrize("output", ["file", "-"])
def test_the_text_of_a_failed_tool_is_an_error_and_no_file(
    output: str, is_terminal: bool, capsysbinary: Capture, tmp_path: Path
) -> None:
    file = tmp_path / "it"
    failed = CallToolResult(content=[TextContent(text="disk full"), PICTURE], is_error=True)
    printer(file if output == "file" else "-", is_terminal=is_terminal).called(failed)
    assert not file.exists()
    assert capsysbinary.readouterr() == (b"", b"disk full\n[image: image/png, 5 bytes]\n")


def test_a_failed_tool_as_json_writes_no_file(capsysbinary: Capture, tmp_path: Path) -> None:
    failed = CallToolResult(content=[TextContent(text="disk full")], is_error=True)
    printer(tmp_path / "it", is_json=True).called(failed)
    assert not list(tmp_path.iterdir())
    written = capsysbinary.readouterr()
    assert json.loads(written.out)["isError"] is True
    assert written.err == b""


def test_without_a_file_the_text_of_a_failed_tool_is_the_output(capsysbinary: Capture) -> None:
    printer().called(CallToolResult(content=[TextContent(text="disk full")], is_error=True))
    assert capsysbinary.readouterr().out == b"disk full\n"


@outputs
@pytest.mark.parametrize("is_json", [False, True], ids=["text", "json"])
def test_a_resource_is_written_as_it_is(
    is_terminal: bool, is_json: bool, capsysbinary: Capture, tmp_path: Path
) -> None:
    text = ReadResourceResult(contents=[TextResourceContents(uri="x://t", text="no line break")])
    blob = ReadResourceResult(contents=[BlobResourceContents(uri="x://b", blob=PICTURE.data)])
    write = printer(tmp_path / "text", is_terminal=is_terminal, is_json=is_json)
    write.read(text)
    assert (tmp_path / "text").read_bytes() == b"no line break"
    printer(tmp_path / "blob", is_terminal=is_terminal, is_json=is_json).read(blob)
    assert (tmp_path / "blob").read_bytes() == BYTES


def test_a_resource_of_several_texts_is_one_file(capsysbinary: Capture, tmp_path: Path) -> None:
    contents = [TextResourceContents(uri=f"x://{name}", text=name) for name in ("one", "two")]
    printer(tmp_path / "it").read(ReadResourceResult(contents=contents))
    assert (tmp_path / "it").read_bytes() == b"one\ntwo\n"


def test_a_text_resource_goes_to_standard_output(capsysbinary: Capture) -> None:
    printer("-").read(ReadResourceResult(contents=[TextResourceContents(uri="x://t", text="as it is")]))
    assert capsysbinary.readouterr().out == b"as it is"


def test_json_of_a_binary_resource_has_no_bytes_beside_it(capsysbinary: Capture) -> None:
    blob = BlobResourceContents(uri="x://b", blob=PICTURE.data)
    printer(is_json=True).read(ReadResourceResult(contents=[blob]))
    assert json.loads(capsysbinary.readouterr().out)["contents"][0]["blob"] == PICTURE.data


def test_json_and_a_file_at_standard_output_exclude_each_other() -> None:
    with pytest.raises(BadArgument, match="-o -: standard output is used for --json"):
        SaveFlags(output=Path("-")).check(is_json=True)
    SaveFlags(output=Path("-")).check(is_json=False)
