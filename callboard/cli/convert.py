"""`callboard convert`: messages and recorded sessions as linked data, and back."""

import json as json_text
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import attrs
import msgspec
from cyclopts import App, Parameter

from callboard.cli.codes import Exit
from callboard.codecs.annotated_schema import annotated_schema, check_message
from callboard.codecs.json_scan import check_value
from callboard.codecs.linked_data import (
    CONTEXT,
    from_graph,
    from_jsonld,
    read_turtle,
    to_jsonld,
    to_turtle,
    write_turtle,
)
from callboard.codecs.linked_session import (
    session_from_graph,
    session_from_jsonld,
    session_to_jsonld,
    session_to_turtle,
)
from callboard.codecs.recording import RecordedMessage, read_lines, write_line
from callboard.errors import CannotServe, PeerError

Form: TypeAlias = Literal["json", "jsonld", "turtle"]

EXAMPLES: Final = """\
Examples:

  callboard convert message.json                      as Turtle
  callboard convert recording.jsonl > session.ttl     a recorded session
  callboard convert --to jsonld message.json
  callboard convert --from turtle --to json session.ttl
  callboard convert --check recording.jsonl           what breaks the schema
  callboard convert --context > context.jsonld        the JSON-LD context
  callboard convert --schema > schema.json            the annotated schema
  callboard convert --shapes > shapes.ttl             SHACL shapes of it

A recording has a JSON line for each message (see callboard record). Turtle
needs the extra `rdf`: pip install 'callboard[rdf]'.

Exit codes: 0 done; 1 --check found problems; 2 wrong arguments, or the input
cannot be read.
"""

_FORMS: Final[dict[str, Form]] = {".jsonld": "jsonld", ".ttl": "turtle", ".turtle": "turtle"}
_FLAG: Final = Parameter(negative="", show_default=False)


@attrs.frozen
class ReadMessages:
    """What was read: one message, or a session of several."""

    messages: list[tuple[int, RecordedMessage]]
    is_session: bool


def convert(
    file: Annotated[
        str,
        Parameter(
            name="FILE", allow_leading_hyphen=True, help="A message, or a recorded session; - for standard input."
        ),
    ] = "-",
    /,
    *,
    from_: Annotated[
        Form | None, Parameter(name="--from", help="Form of the input. Default: by the name of the file, else json.")
    ] = None,
    to: Annotated[
        Form | None, Parameter(help="Form of the output. Default: turtle; for turtle and jsonld, json.")
    ] = None,
    check: Annotated[
        bool, _FLAG, Parameter(help="Convert nothing: print what does not fit the annotated schema, and where.")
    ] = False,
    context: Annotated[bool, _FLAG, Parameter(help="Print the JSON-LD context.")] = False,
    schema: Annotated[bool, _FLAG, Parameter(help="Print the annotated schema.")] = False,
    shapes: Annotated[bool, _FLAG, Parameter(help="Print SHACL shapes, made of the annotated schema.")] = False,
) -> int:
    """Convert messages and recorded sessions between JSON, JSON-LD and Turtle; validate them."""
    if context:
        return _print([_json({"@context": CONTEXT})])
    if schema:
        return _print([_json(annotated_schema())])
    if shapes:
        _check_extra()
        from callboard.codecs.shapes import shapes as make_shapes  # needs the extra

        return _print([write_turtle(make_shapes())])
    form: Form = from_ or _FORMS.get(Path(file).suffix.lower(), "json")
    goal: Form = to or ("turtle" if form == "json" else "json")
    if form == "turtle" or (goal == "turtle" and not check):
        _check_extra()
    name = "standard input" if file == "-" else file
    try:
        found = _read(_bytes(file), form)
        return _checked(found, name) if check else _print(_written(found, goal))
    except PeerError as error:
        raise CannotServe(f"{name}: {error}") from None


def _check_extra() -> None:
    try:
        import rdflib  # noqa: F401
    except ModuleNotFoundError:
        raise CannotServe("Turtle needs rdflib: pip install 'callboard[rdf]'") from None


def _bytes(file: str) -> bytes:
    if file.startswith("-") and file != "-":
        raise CannotServe(f"unknown option {file[:40]}; see callboard convert --help")
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()
    except OSError as error:
        raise CannotServe(f"{file}: {error.strerror or error}") from None


def _read(data: bytes, form: Form) -> ReadMessages:
    if form == "turtle":
        return _read_turtle(data)
    if form == "json" and (recorded := list(_whole_message(data))):
        return ReadMessages(recorded, is_session=False)
    if form == "json":
        return ReadMessages(list(read_lines(data)), is_session=True)
    document = _document(data)
    if not isinstance(document, dict):
        raise CannotServe("a JSON-LD document is an object")
    if "@graph" in document:
        session = [_checked_depth(one) for one in session_from_jsonld(document)]
        return ReadMessages(list(enumerate(session, 1)), is_session=True)
    return ReadMessages([(1, _checked_depth(RecordedMessage(from_jsonld(document))))], is_session=False)


def _checked_depth(one: RecordedMessage) -> RecordedMessage:
    """A message out of another form, whose rules differ. Raises `ParseError` for what no message may be."""
    check_value(msgspec.json.encode(one.message))
    return one


def _read_turtle(data: bytes) -> ReadMessages:
    try:
        graph = read_turtle(data.decode())
    except UnicodeDecodeError:
        raise CannotServe("Turtle is UTF-8") from None
    if not graph:
        return ReadMessages([], is_session=True)  # as an empty recording becomes
    if recorded := session_from_graph(graph):
        return ReadMessages(list(enumerate(recorded, 1)), is_session=True)
    return ReadMessages([(1, RecordedMessage(from_graph(graph)))], is_session=False)


def _whole_message(data: bytes) -> Iterator[tuple[int, RecordedMessage]]:
    """The message, if *data* is one: it may have several lines. Nothing if it is a recording."""
    try:
        value = json_text.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict) and "jsonrpc" in value:
        (found,) = read_lines(json_text.dumps(value).encode())
        yield found


def _document(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)  # not what Python takes for JSON besides: NaN, and half a surrogate pair
    except (msgspec.DecodeError, RecursionError):
        raise CannotServe("not JSON") from None


def _written(found: ReadMessages, goal: Form) -> Iterable[str]:
    if found.is_session:
        if goal == "turtle":
            return session_to_turtle(found.messages)
        if goal == "jsonld":
            return [_json(session_to_jsonld(found.messages))]
        return (write_line(one).decode() for _, one in found.messages)
    message = found.messages[0][1].message
    return [to_turtle(message) if goal == "turtle" else _json(to_jsonld(message) if goal == "jsonld" else message)]


def _checked(found: ReadMessages, name: str) -> int:
    """Print each problem with its place."""
    asked: dict[tuple[str, str, str], str] = {}
    lines = []
    for number, one in found.messages:
        message, at = one.message, f"{name}:{number}: " if found.is_session else f"{name}: "
        key = (one.session, str(message.get("id")), one.direction)
        if "method" in message and "id" in message:
            other = {"to_server": "from_server", "from_server": "to_server"}.get(one.direction, "")
            asked[one.session, key[1], other] = str(message["method"])
        lines += [f"{at}{problem}\n" for problem in check_message(message, asked.get(key))]
    _print(lines)
    return Exit.MISFIT if lines else Exit.FINE


def _json(value: object) -> str:
    return json_text.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _print(pieces: Iterable[str]) -> int:
    for piece in pieces:
        sys.stdout.write(piece)
    sys.stdout.flush()
    return Exit.FINE


APP: Final = App(name="convert", help_epilogue=EXAMPLES)
APP.default(convert)
