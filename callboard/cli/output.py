"""Output of commands: tables for terminals, plain lines for pipes, JSON for scripts."""

import base64
import binascii
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
from msgspec import UNSET

from callboard.actors.changes import ListChanged
from callboard.cli.media_files import MediaFiles, TextPlace
from callboard.cli.pictures import drawn, protocol_of
from callboard.cli.streams import console_of, forgiving_stderr, is_console
from callboard.client.client import Client
from callboard.client.subscriptions import Change
from callboard.client.tasks import TaskHandle
from callboard.codecs.revisions import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Model,
    Prompt,
    ReadResourceResult,
    Resource,
    ResourceLink,
    ResourceTemplate,
    Revision,
    TextContent,
    TextResourceContents,
    Tool,
    write,
    write_result,
)
from callboard.supervisor.printable import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_BREAKS: Final = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


@attrs.frozen
class Listing:
    """All tools, resources, templates and prompts of a server."""

    tools: Sequence[Tool] = ()
    resources: Sequence[Resource] = ()
    templates: Sequence[ResourceTemplate] = ()
    prompts: Sequence[Prompt] = ()


@attrs.define(eq=False)
class ResultPrinter:
    """Standard output, and its reader: a terminal or a pipe."""

    revision: Revision
    is_json: bool = False
    media: MediaFiles = attrs.field(factory=MediaFiles)
    _console: "Console | None" = None
    _collected: io.StringIO | None = attrs.field(default=None, init=False)
    """In the place of standard output: a result as a pipe gets it."""

    @property
    def is_terminal(self) -> bool:
        if self._collected is not None:
            return False
        return is_console(sys.stdout) if self._console is None else self._console.is_terminal

    @property
    def console(self) -> "Console":
        """The console of a terminal: a pipe needs none."""
        if self._console is None:
            self._console = console_of(sys.stdout)
        return self._console

    # Everything that is there.

    def listing(self, client: Client, listing: Listing) -> None:
        if self.is_json:
            self.json(self._listing_json(client, listing))
        elif self.is_terminal:
            self._listing_tables(client, listing)
        else:
            for row in _rows(listing):
                self.line("\t".join(map(_cell, row)))

    def _listing_json(self, client: Client, listing: Listing) -> Mapping[str, Any]:
        info = client.server_info
        return {
            "server": None if info is None else write(self.revision, info),
            "revision": self.revision.value,
            "instructions": client.instructions,
            **{
                name: [write(self.revision, item) for item in items]
                for name, items in attrs.asdict(listing, recurse=False).items()
            },
        }

    def _listing_tables(self, client: Client, listing: Listing) -> None:
        info = client.server_info
        who = "unnamed server" if info is None else f"{info.name} {info.version}"
        self.console.print(_plain(who), style="bold", end=" ")
        self.console.print(f"({self.revision.value})", highlight=False)
        if client.instructions:
            self.console.print(_plain(client.instructions))
        rows = list(_rows(listing))
        for kind in dict.fromkeys(row[0] for row in rows):
            headings = ("name", "arguments") if kind in ("tool", "prompt") else ("uri", "type")
            cells = [row[1:] for row in rows if row[0] == kind]
            self.table((*headings, "description"), cells, title=f"{kind}s")
        if not rows:
            self.console.print("No tools, resources or prompts.")

    # What was asked for.

    def called(self, result: CallToolResult) -> None:
        if self.is_json:
            self.json(write_result(self.revision, "tools/call", result))
        self.media.is_failed = result.is_error is True
        self._place(lambda: self._called(result), has_bytes=any(map(_has_bytes, result.content)))

    def _called(self, result: CallToolResult) -> None:
        structured = None if result.structured_content is UNSET else result.structured_content
        if self.is_terminal and structured is not None and len(_json_text(result.content)) > self.console.width:
            self.json(structured)  # the text says the same, in one long line
            return
        for block in result.content:
            self._block(block)
        if not result.content and structured is not None:
            self.json(structured)

    def _place(self, show: Callable[[], None], *, has_bytes: bool) -> None:
        """Show a result, or write it to the files of `-o` and `--save`: its bytes, and its text if there are none."""
        place = self.media.place_of_text(has_bytes=has_bytes, is_json=self.is_json)
        if place is TextPlace.SHOWN:
            show()
            return
        if not self.media.flags.is_given:
            return
        self._collected = collected = io.StringIO()
        try:
            show()
        finally:
            self._collected = None
        text = collected.getvalue()
        if place is TextPlace.OUTPUT:
            self.media.keep_text(clean(text) if self.media.is_stdout and self.is_terminal else text)
        elif place is TextPlace.STDERR:
            forgiving_stderr().write(clean(text) if is_console(sys.stderr) else text)

    def task(self, task: TaskHandle) -> None:
        """A task: its id alone for a pipe that reads one line, or all that the server told of it."""
        view = task.view
        if view is None:
            return
        if self.is_json:
            said = msgspec.json.decode(msgspec.json.encode(view))
            self.json({name: _whole(value) for name, value in said.items() if value not in (None, "")})
            return
        self.line("\t".join(map(_cell, (view.task_id, view.status, view.status_message))).rstrip())

    def read(self, result: ReadResourceResult) -> None:
        if self.is_json:
            self.json(write_result(self.revision, "resources/read", result))
        has_bytes = any(isinstance(contents, BlobResourceContents) for contents in result.contents)
        self._place(lambda: self._read(result.contents), has_bytes=has_bytes)

    def _read(self, found: Sequence[Model]) -> None:
        match found:
            case [TextResourceContents(text=text)] if self._collected is not None:
                self._collected.write(text)  # a file has no line break more than the resource
            case _:
                for contents in found:
                    self._contents(contents)

    def prompted(self, result: GetPromptResult) -> None:
        if self.is_json:
            self.json(write_result(self.revision, "prompts/get", result))
            return
        for message in result.messages:
            self.line(f"{message.role}:")
            self._block(message.content)

    def changed(self, change: Change) -> None:
        """One line, at once: its reader may wait for it."""
        now = datetime.now().astimezone()
        if isinstance(change, ListChanged):
            told = {"changed": str(change.name)}
            line = f"{change.name} changed"
        else:
            told = {"updated": change.uri}
            line = f"updated {_cell(change.uri)}"
        if self.is_json:
            self.line(msgspec.json.encode({"at": now.isoformat(timespec="milliseconds"), **told}).decode())
        elif self.is_terminal:
            self.line(f"{now:%H:%M:%S} {line}")
        else:
            self.line(f"{now.isoformat(timespec='milliseconds')}\t{line}")
        sys.stdout.flush()

    def heading(self, name: str, notes: str = "") -> None:
        """The name of something that is described below."""
        if self.is_terminal:
            self.console.print(_plain(_cell(name), "bold"), _plain(f"({notes})" if notes else "", "dim"))
        else:
            self.line(_cell(name) + (f" ({notes})" if notes else ""))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
        """A table at a terminal; lines with tabs in a pipe."""
        if not self.is_terminal:
            for row in rows:
                self.line("\t".join(map(_cell, row)))
            return
        if not rows:
            return
        from rich.table import Table  # a pipe needs none

        table = Table(title=title, title_justify="left", title_style="bold", expand=False)
        for heading in headings:
            table.add_column(heading, overflow="fold")
        for row in rows:
            table.add_row(*(_plain(_cell(cell)) for cell in row))
        self.console.print(table)

    # In pieces.

    def _block(self, block: Model) -> None:
        match block:
            case TextContent(text=text):
                self.line(text)
            case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
                kept = self._keep(block)
                if isinstance(block, ImageContent):
                    self._show(_bytes(data), kind)
                self.line(f"[{block.type}: {kind}, {_size(data)}{kept}]")
            case ResourceLink(uri=uri, name=name):
                self.line(f"[link: {name} at {uri}]")
            case EmbeddedResource(resource=TextResourceContents() as contents):
                self.line(f"[resource: {contents.uri}]")
                self.line(contents.text)
            case EmbeddedResource(resource=BlobResourceContents() as contents):
                kept = self._keep(block)
                self.line(f"[resource: {contents.uri}, {_kind(contents)}, {_size(contents.blob)}{kept}]")
            case _:
                self.json(write(self.revision, block))

    def _contents(self, contents: Model) -> None:
        match contents:
            case TextResourceContents(text=text):
                self.line(text)
            case BlobResourceContents(blob=blob) if self.media.flags.is_given:
                kept = self._keep(EmbeddedResource(resource=contents))
                self.line(f"[{_kind(contents)}, {_size(blob)}{kept}]")
            case BlobResourceContents(blob=blob) if self.is_terminal:
                self._show(_bytes(blob), _kind(contents))
                self.line(f"[{_kind(contents)}, {_size(blob)}]")
            case BlobResourceContents(blob=blob):
                sys.stdout.flush()
                sys.stdout.buffer.write(_bytes(blob))
            case _:
                self.json(write(self.revision, contents))

    def _keep(self, block: Model) -> str:
        """Write the bytes of a block to the files that were asked for. Returns what to say of that."""
        match block:
            case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
                names = self.media.keep(_bytes(data), kind)
            case EmbeddedResource(resource=BlobResourceContents() as contents):
                names = self.media.keep(_bytes(contents.blob), _kind(contents))
            case _:
                names = ""
        return f"; saved as {names}" if names else ""

    def _show(self, data: bytes, kind: str) -> None:
        """A picture, at a terminal that can show it."""
        protocol = protocol_of(os.environ) if self.is_terminal else None
        shown = None if protocol is None else drawn(data, kind, protocol)
        if shown is not None:
            sys.stdout.write(shown)

    def line(self, text: str) -> None:
        """A server's text: for a terminal without commands to it, for a pipe as it is."""
        text = clean(text) if self.is_terminal else text
        stream = sys.stdout if self._collected is None else self._collected
        stream.write(text if text.endswith("\n") else text + "\n")

    def json(self, value: Any) -> None:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        if self.is_terminal:
            from rich.highlighter import JSONHighlighter
            from rich.text import Text

            self.console.print(JSONHighlighter()(Text(_escaped(text))), soft_wrap=True)
        else:
            self.line(text)


def _rows(listing: Listing) -> Iterable[tuple[str, str, str, str]]:
    """Kind, name or URI, what it takes or of what type it is, what it is."""
    for tool in listing.tools:
        yield "tool", tool.name, " ".join(_parameters(tool.input_schema)), _first_line(tool.description or tool.title)
    for resource in listing.resources:
        about = resource.description or resource.title or resource.name
        yield "resource", resource.uri, str(resource.mime_type or ""), _first_line(about)
    for template in listing.templates:
        about = template.description or template.title or template.name
        yield "template", template.uri_template, str(template.mime_type or ""), _first_line(about)
    for prompt in listing.prompts:
        arguments = () if prompt.arguments is UNSET else prompt.arguments
        takes = " ".join(one.name if one.required is True else f"[{one.name}]" for one in arguments)
        yield "prompt", prompt.name, takes, _first_line(prompt.description or prompt.title)


def _parameters(schema: Mapping[str, Any]) -> Iterable[str]:
    properties, required = schema.get("properties"), schema.get("required")
    for name in properties if isinstance(properties, Mapping) else ():
        yield name if isinstance(required, list) and name in required else f"[{name}]"


def _plain(text: str, style: str = "") -> "Text":
    """A server's text for a console, without commands to it."""
    from rich.text import Text

    return Text(clean(text), style=style)


def _cell(text: str) -> str:
    """A server's text without what begins another cell or another row: a program reads them line by line."""
    return _BREAKS.sub(" ", text)


def _first_line(text: object) -> str:
    return text.strip().partition("\n")[0] if isinstance(text, str) else ""


def _escaped(text: str) -> str:
    """JSON, with all that would command a terminal written so that it does not, and still means the same."""
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def _whole(value: Any) -> Any:
    """Milliseconds as they were sent: they are read as floats, in which no size of a number overflows."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _json_text(content: Sequence[Model]) -> str:
    """The content, if it is one text of an object or a list; else nothing."""
    match content:
        case [TextContent(text=text)] if text.lstrip()[:1] in ("{", "["):
            return text
    return ""


def _has_bytes(block: Model) -> bool:
    match block:
        case ImageContent() | AudioContent() | EmbeddedResource(resource=BlobResourceContents()):
            return True
        case _:
            return False


def _bytes(blob: str) -> bytes:
    try:
        return base64.b64decode(blob)
    except binascii.Error:
        return b""


def _size(blob: str) -> str:
    return f"{len(_bytes(blob)):,} bytes"


def _kind(contents: BlobResourceContents) -> str:
    return "application/octet-stream" if contents.mime_type is UNSET else contents.mime_type
