"""Elicitation at a terminal: a form, field by field, or a URL to open. The user confirms before anything is sent."""

import math
import webbrowser
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import trio
from msgspec import UNSET

from callboard.cli.terminal import Person
from callboard.codecs.oauth.addresses import Page, is_here, locate_page
from callboard.codecs.revisions import (
    LATEST,
    BooleanSchema,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    LegacyTitledEnumSchema,
    NumberSchema,
    PrimitiveSchemaDefinition,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
    write,
)
from callboard.errors import InvalidDefinition, UnsafeUrl
from callboard.server.content.problems import find_problems
from callboard.server.signature.schemas import compile_schema

DECLINE: Final = "/decline"
CANCEL: Final = "/cancel"

MOST_TRIES: Final = 20
"""How often one field may be filled in wrongly before the form is left open."""

_YES: Final = frozenset({"y", "yes", "true", "1", "on"})
_NO: Final = frozenset({"n", "no", "false", "0", "off"})


class _Left(Exception):
    """The person does not go on with the form."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.action = action


@attrs.define(eq=False)
class FormPrompt:
    """Asks a *person* on behalf of one server."""

    person: Person
    server: Callable[[], str]
    """The name of the asking server, as far as is known."""
    open_page: Callable[[str], bool] = webbrowser.open

    async def __call__(self, params: ElicitRequestFormParams | ElicitRequestURLParams) -> ElicitResult:
        try:
            if isinstance(params, ElicitRequestURLParams):
                return await self._visit(params)
            return await self._fill_in(params)
        except _Left as left:
            return ElicitResult(action="decline" if left.action == DECLINE else "cancel")

    # Forms.

    async def _fill_in(self, params: ElicitRequestFormParams) -> ElicitResult:
        form = params.requested_schema
        required = frozenset(() if form.required is UNSET else form.required)
        self.person.say(f"{self.server()} asks: {params.message}", style="bold")
        self.person.say(f"  Enter accepts the default in [brackets]; {DECLINE} declines, {CANCEL} cancels.")
        given: dict[str, Any] = {}
        while True:
            for name, field in form.properties.items():
                asked = _Field(name, field, given.get(name, _default(field)), is_required=name in required)
                value = await self._ask_field(asked)
                given.pop(name, None)
                if value is not UNSET:
                    given[name] = value
            if await self._is_sent(given):
                return ElicitResult(action="accept", content=given)

    async def _is_sent(self, given: Mapping[str, Any]) -> bool:
        self.person.say("  " + ("; ".join(f"{name}: {_shown(value)}" for name, value in given.items()) or "(nothing)"))
        while True:
            match (await self._line("Send this? [y]es, [e]dit, [d]ecline, [c]ancel:")).lower():
                case "y" | "yes" | "":
                    return True
                case "e" | "edit":
                    return False
                case "d" | "decline" | "n" | "no":
                    raise _Left(DECLINE)
                case "c" | "cancel":
                    raise _Left(CANCEL)

    async def _ask_field(self, field: "_Field") -> Any:
        for line in field.choices_shown():
            self.person.say(line)
        for _ in range(MOST_TRIES):
            typed = await self._line(field.question())
            if not typed and field.default is not UNSET:
                return field.default
            if not typed and not field.is_required:
                return UNSET
            try:
                return field.read(typed)
            except ValueError as error:
                self.person.say(f"  {error}", style="yellow")
        raise _Left(CANCEL)

    async def _line(self, question: str) -> str:
        line = await self.person.ask(question)
        if line is None or line.strip() == CANCEL:
            raise _Left(CANCEL)
        if line.strip() == DECLINE:
            raise _Left(DECLINE)
        return line.strip()

    # Pages.

    async def _visit(self, params: ElicitRequestURLParams) -> ElicitResult:
        self.person.say(f"{self.server()} asks you to visit a page: {params.message}", style="bold")
        try:
            page = locate_page(params.url)
        except UnsafeUrl as error:
            self.person.say(f"  {params.url}")
            self.person.say(f"  Declined, since the URL cannot be opened: {error}.", style="yellow")
            return ElicitResult(action="decline")
        self.person.say(f"  {page.url}")
        for warning in _warnings(page):
            self.person.say(f"  {warning}", style="yellow")
        while True:
            match (await self._line(f"Open {page.host} in your browser? [y]es, [d]ecline, [c]ancel:")).lower():
                case "y" | "yes":
                    break
                case "d" | "decline" | "n" | "no":
                    return ElicitResult(action="decline")
                case "c" | "cancel":
                    return ElicitResult(action="cancel")
        if not await trio.to_thread.run_sync(self.open_page, page.url):
            self.person.say("  No browser found: open the URL yourself.", style="yellow")
        return ElicitResult(action="accept")


def _warnings(page: Page) -> list[str]:
    found = []
    if page.scheme == "http" and not is_here(page.host):
        found.append("Warning: the connection is not encrypted.")
    if page.host.startswith("xn--") or ".xn--" in page.host:
        found.append("Warning: the host name has letters that look like others.")
    return found


@attrs.frozen
class _Field:
    """One field of a form."""

    name: str
    schema: PrimitiveSchemaDefinition
    default: Any
    is_required: bool

    def question(self) -> str:
        title = self.name if self.schema.title is UNSET else self.schema.title
        about = "" if self.schema.description is UNSET else f" ({self.schema.description})"
        brackets = "" if self.default is UNSET else f" [{_shown(self._titled(self.default))}]"
        optional = "" if self.is_required or brackets else " (optional)"
        return f"  {title}{about}{optional}{brackets}:"

    def choices_shown(self) -> list[str]:
        return [f"    {number}. {title}" for number, (_, title) in enumerate(self._choices(), 1)]

    def read(self, typed: str) -> Any:
        """The typed text as the value of the field. Raises ValueError with the reason."""
        if not typed:
            raise ValueError("is required")
        value = self._value(typed)
        schema = write(LATEST, self.schema)
        try:
            problems, _ = find_problems(compile_schema(schema), schema, value)
        except InvalidDefinition:
            return value  # what the schema forbids is the server's to say
        if problems:
            raise ValueError(problems[0].text)
        return value

    def _value(self, typed: str) -> Any:
        schema = self.schema
        if isinstance(schema, NumberSchema):
            return _number(typed, is_whole=schema.type == "integer")
        if isinstance(schema, BooleanSchema):
            if typed.lower() not in _YES | _NO:
                raise ValueError("must be yes or no")
            return typed.lower() in _YES
        choices = self._choices()
        if isinstance(schema, UntitledMultiSelectEnumSchema | TitledMultiSelectEnumSchema):
            return list(dict.fromkeys(_chosen(one.strip(), choices) for one in typed.split(",") if one.strip()))
        return _chosen(typed, choices) if choices else typed

    def _titled(self, value: Any) -> Any:
        """A value of a choice as it stands in the list of choices."""
        titles = dict(self._choices())
        return [titles.get(one, one) for one in value] if isinstance(value, list | tuple) else titles.get(value, value)

    def _choices(self) -> list[tuple[str, str]]:
        """Values and their titles, if it is a choice."""
        match self.schema:
            case LegacyTitledEnumSchema(enum=values, enum_names=names) if names is not UNSET:
                return [(value, names[at] if at < len(names) else value) for at, value in enumerate(values)]
            case UntitledSingleSelectEnumSchema(enum=values):
                return [(value, value) for value in values]
            case TitledSingleSelectEnumSchema(one_of=titled):
                return [(one.const, one.title) for one in titled]
            case UntitledMultiSelectEnumSchema(items=items):
                return [(value, value) for value in items.enum]
            case TitledMultiSelectEnumSchema(items=titled_items):
                return [(one.const, one.title) for one in titled_items.any_of]
            case _:
                return []


def _default(field: PrimitiveSchemaDefinition) -> Any:
    return field.default


def _number(typed: str, *, is_whole: bool) -> int | float:
    try:
        return int(typed)
    except ValueError:
        pass
    try:
        number = math.nan if is_whole else float(typed)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("must be a whole number" if is_whole else "must be a number")
    return number


def _chosen(typed: str, choices: list[tuple[str, str]]) -> str:
    for value, title in choices:
        if typed in (value, title):
            return value
    if typed.isdigit() and 1 <= int(typed) <= len(choices):
        return choices[int(typed) - 1][0]
    raise ValueError(f"must be one of the choices, or its number: 1 to {len(choices)}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)
