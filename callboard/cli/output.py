"""Output of commands: tables for terminals, plain lines for pipes, JSON for scripts."""

import base64
import binascii
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec
from msgspec import UNSET
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

from callboard.actors.changes import ListChanged
from callboard.client.client import Client
from callboard.client.subscriptions import Change
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
    console: Console = attrs.field(factory=Console)

    @property
    def is_terminal(self) -> bool:
        return self.console.is_terminal

    # Everything that is there.

    def listing(self, client: Client, listing: Listing) -> None:
        if self.is_json:
            self._json(self._listing_json(client, listing))
        elif self.is_terminal:
            self._listing_tables(client, listing)
        else:
            for row in _rows(listing):
                self._line("\t".join(map(_cell, row)))

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
        self.console.print(Text(clean(who)), style="bold", end=" ")
        self.console.print(f"({self.revision.value})", highlight=False)
        if client.instructions:
            self.console.print(Text(clean(client.instructions)))
        rows = list(_rows(listing))
        for kind in dict.fromkeys(row[0] for row in rows):
            table = Table(title=f"{kind}s", title_justify="left", title_style="bold", expand=False)
            headings = ("name", "arguments") if kind in ("tool", "prompt") else ("uri", "type")
            for heading in (*headings, "description"):
                table.add_column(heading, overflow="fold")
            for _, *cells in (row for row in rows if row[0] == kind):
                table.add_row(*(Text(clean(_cell(cell))) for cell in cells))
            self.console.print(table)
        if not rows:
            self.console.print("No tools, resources or prompts.")

    # What was asked for.

    def called(self, result: CallToolResult) -> None:
        if self.is_json:
            self._json(write_result(self.revision, "tools/call", result))
            return
        for block in result.content:
            self._block(block)
        if not result.content and result.structured_content is not UNSET:
            self._json(result.structured_content)

    def read(self, result: ReadResourceResult) -> None:
        if self.is_json:
            self._json(write_result(self.revision, "resources/read", result))
            return
        for contents in result.contents:
            self._contents(contents)

    def prompted(self, result: GetPromptResult) -> None:
        if self.is_json:
            self._json(write_result(self.revision, "prompts/get", result))
            return
        for message in result.messages:
            self._line(f"{message.role}:")
            self._block(message.content)

    def changed(self, change: Change) -> None:
        """One line, at once: its reader may wait for it."""
        if isinstance(change, ListChanged):
            told = {"changed": str(change.name)}
            line = f"{change.name} changed"
        else:
            told = {"updated": change.uri}
            line = f"updated {_cell(change.uri)}"
        if self.is_json:
            self._line(msgspec.json.encode(told).decode())
        else:
            self._line(line)
        sys.stdout.flush()

    # In pieces.

    def _block(self, block: Model) -> None:
        match block:
            case TextContent(text=text):
                self._line(text)
            case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
                self._line(f"[{block.type}: {kind}, {_size(data)}]")
            case ResourceLink(uri=uri, name=name):
                self._line(f"[link: {name} at {uri}]")
            case EmbeddedResource(resource=TextResourceContents() as contents):
                self._line(f"[resource: {contents.uri}]")
                self._line(contents.text)
            case EmbeddedResource(resource=BlobResourceContents() as contents):
                self._line(f"[resource: {contents.uri}, {_kind(contents)}, {_size(contents.blob)}]")
            case _:
                self._json(write(self.revision, block))

    def _contents(self, contents: Model) -> None:
        match contents:
            case TextResourceContents(text=text):
                self._line(text)
            case BlobResourceContents(blob=blob) if self.is_terminal:
                self._line(f"[{_kind(contents)}, {_size(blob)}]")
            case BlobResourceContents(blob=blob):
                sys.stdout.flush()
                sys.stdout.buffer.write(_bytes(blob))
            case _:
                self._json(write(self.revision, contents))

    def _line(self, text: str) -> None:
        """A server's text: for a terminal without commands to it, for a pipe as it is."""
        text = clean(text) if self.is_terminal else text
        sys.stdout.write(text if text.endswith("\n") else text + "\n")

    def _json(self, value: Any) -> None:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        if self.is_terminal:
            self.console.print(JSONHighlighter()(Text(_escaped(text))), soft_wrap=True)
        else:
            self._line(text)


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


def _cell(text: str) -> str:
    """A server's text without what begins another cell or another row: a program reads them line by line."""
    return _BREAKS.sub(" ", text)


def _first_line(text: object) -> str:
    return text.strip().partition("\n")[0] if isinstance(text, str) else ""


def _escaped(text: str) -> str:
    """JSON, with all that would command a terminal written so that it does not, and still means the same."""
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def _bytes(blob: str) -> bytes:
    try:
        return base64.b64decode(blob)
    except binascii.Error:
        return b""


def _size(blob: str) -> str:
    return f"{len(_bytes(blob)):,} bytes"


def _kind(contents: BlobResourceContents) -> str:
    return "application/octet-stream" if contents.mime_type is UNSET else contents.mime_type
