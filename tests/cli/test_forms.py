"""What a person is asked: every kind of field, put right until it fits; pages are opened after a yes, and only then."""

import webbrowser
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio

from callboard.cli.forms import MOST_TRIES, FormPrompt
from callboard.codecs.revisions import LATEST, ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult, read
from callboard.supervisor.printable import clean


@attrs.define(eq=False)
class Somebody:
    """Answers from a list, and goes away when it is at its end."""

    answers: list[str]
    shown: list[str] = attrs.field(factory=list)

    def say(self, text: str, style: str = "") -> None:
        self.shown.append(text)

    async def ask(self, question: str) -> str | None:
        await trio.lowlevel.checkpoint()
        self.shown.append(question)
        return self.answers.pop(0) if self.answers else None


def form(required: Sequence[str] = (), **properties: Any) -> ElicitRequestFormParams:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return read(LATEST, ElicitRequestFormParams, {"mode": "form", "message": "Well?", "requestedSchema": schema})


async def fill_in(asked: ElicitRequestFormParams, *answers: str) -> tuple[ElicitResult, list[str]]:
    person = Somebody(list(answers))
    result = await FormPrompt(person, lambda: "weather")(asked)
    return result, person.shown


@pytest.mark.requirement("M308")
@pytest.mark.parametrize(
    ("schema", "wrong", "typed", "value"),
    [
        ({"type": "string", "minLength": 2}, ["a"], "ab", "ab"),
        ({"type": "string", "maxLength": 2}, ["abc"], "ab", "ab"),
        ({"type": "string", "format": "email"}, ["ada"], "ada@example.org", "ada@example.org"),
        ({"type": "string", "format": "date"}, ["tomorrow", "2026-13-01"], "2026-12-01", "2026-12-01"),
        ({"type": "string", "format": "uri"}, ["here"], "https://here/", "https://here/"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, ["0", "4", "1.5", "one"], "2", 2),
        ({"type": "number", "minimum": 1}, ["0.5", "nan", "inf", "x"], "1.5", 1.5),
        ({"type": "boolean"}, ["maybe", "2"], "yes", True),
        ({"type": "boolean"}, [], "N", False),
        ({"type": "string", "enum": ["red", "green"]}, ["blue", "0", "3"], "2", "green"),
        ({"type": "string", "enum": ["red", "green"]}, [], "red", "red"),
        ({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}, ["Blue"], "Green", "g"),
        ({"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}, ["Green"], "1", "r"),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "maxItems": 2},
            ["a,b,c", "d"],
            "a, 3",
            ["a", "c"],
        ),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A!"}]}, "minItems": 1}, [","], "A!", ["a"]),
    ],
)
async def test_a_field_is_asked_again_until_it_fits(schema: Any, wrong: list[str], typed: str, value: Any) -> None:
    result, shown = await fill_in(form(["it"], it=schema), *wrong, typed, "y")
    assert result == ElicitResult(action="accept", content={"it": value})
    assert len([line for line in shown if "must" in line or "expected" in line]) == len(wrong), shown


async def test_defaults_are_offered_and_what_is_optional_may_be_left_out() -> None:
    asked = form(
        ["name"],
        name={"type": "string", "default": "Ada", "title": "Your name", "description": "as in your passport"},
        age={"type": "integer"},
        colours={"type": "array", "items": {"type": "string", "enum": ["r", "g"]}, "default": ["g"]},
    )
    result, shown = await fill_in(asked, "", "", "", "")
    assert result == ElicitResult(action="accept", content={"name": "Ada", "colours": ["g"]})
    assert "  Your name (as in your passport) [Ada]:" in shown
    assert "  age (optional):" in shown
    assert "  colours [g]:" in shown
    assert "  name: Ada; colours: g" in shown


async def test_what_is_required_must_be_said() -> None:
    result, _ = await fill_in(form(["n"], n={"type": "integer"}), "", "", "7", "yes")
    assert result.content == {"n": 7}
    result, shown = await fill_in(form(["s"], s={"type": "string"}), "", "x", "yes")
    assert result.content == {"s": "x"}
    assert "  is required" in shown


async def test_what_is_offered_of_a_choice_is_called_as_it_stands_there() -> None:
    titled = [{"const": "v1", "title": "First"}, {"const": "v2", "title": "Second"}]
    asked = form(
        one={"type": "string", "oneOf": titled, "default": "v2"},
        many={"type": "array", "items": {"anyOf": titled}, "default": ["v1", "v2"]},
        other={"type": "string", "oneOf": titled, "default": "v3"},
    )
    result, shown = await fill_in(asked, "", "", "", "")
    assert result.content == {"one": "v2", "many": ["v1", "v2"], "other": "v3"}
    assert {"  one [Second]:", "  many [First, Second]:", "  other [v3]:"} <= set(shown)


async def test_who_asks_and_what_is_shown_first() -> None:
    _, shown = await fill_in(form(x={"type": "string"}), "/decline")
    assert shown[0] == "weather asks: Well?"
    assert "/decline" in shown[1]
    assert "/cancel" in shown[1]
    assert len(shown[1]) < 80


@pytest.mark.parametrize(
    ("answers", "action"),
    [
        (["/decline"], "decline"),
        (["/cancel"], "cancel"),
        ([], "cancel"),
        (["x", "d"], "decline"),
        (["x", "n"], "decline"),
        (["x", "c"], "cancel"),
        (["x", "/decline"], "decline"),
        (["x", "what?", "e", "/cancel"], "cancel"),
        (["x"], "cancel"),
    ],
)
async def test_at_every_step_one_may_decline_or_leave_it_open(answers: list[str], action: str) -> None:
    result, _ = await fill_in(form(["x"], x={"type": "string"}), *answers)
    assert result == ElicitResult(action=action)  # type: ignore[arg-type]  # as the table has it


async def test_whoever_never_gets_it_right_is_not_asked_for_ever() -> None:
    result, shown = await fill_in(form(["n"], n={"type": "integer"}), *["x"] * 100)
    assert result.action == "cancel"
    assert len([line for line in shown if line == "  n:"]) == MOST_TRIES


# Pages.


async def visit(url: str, *answers: str) -> tuple[ElicitResult, list[str], list[str]]:
    opened: list[str] = []

    def open_page(address: str) -> bool:
        opened.append(address)
        return "unopened" not in address

    person = Somebody(list(answers))
    result = await FormPrompt(person, lambda: "weather", open_page)(ElicitRequestURLParams(message="Sign in", url=url))
    return result, person.shown, opened


@pytest.mark.requirement("M299", "M300", "L154", "L155")
@pytest.mark.parametrize(
    ("answers", "action"),
    [
        (["d"], "decline"),
        (["no"], "decline"),
        (["c"], "cancel"),
        ([], "cancel"),
        (["", "what?", "/decline"], "decline"),
    ],
)
async def test_a_page_is_neither_opened_nor_fetched_without_a_yes(answers: list[str], action: str) -> None:
    result, _, opened = await visit("https://example.org/x", *answers)
    assert result == ElicitResult(action=action)  # type: ignore[arg-type]  # as the table has it
    assert opened == []


@pytest.mark.requirement("M302", "L157")
async def test_a_yes_opens_the_page_in_the_browser_of_the_system_and_is_consent_alone() -> None:
    result, _, opened = await visit("https://example.org/x", "y")
    assert result == ElicitResult(action="accept")
    assert opened == ["https://example.org/x"]
    assert attrs.fields(FormPrompt).open_page.default is webbrowser.open


async def test_where_there_is_no_browser_the_person_is_told() -> None:
    result, shown, _ = await visit("https://example.org/unopened", "y")
    assert result.action == "accept"
    assert "open the URL yourself" in shown[-1]


@pytest.mark.requirement("M303")
@pytest.mark.parametrize(
    ("url", "warning"),
    [
        ("http://example.org/", "not encrypted"),
        ("https://xn--pple-43d.com/", "look like others"),
    ],
)
async def test_a_suspicious_page_is_warned_about_and_its_host_stands_out(url: str, warning: str) -> None:
    _, shown, opened = await visit(url, "d")
    assert url in shown[1]
    assert any(warning in line for line in shown)
    assert shown[-1].startswith("Open ")
    assert opened == []


@pytest.mark.parametrize("url", ["http://localhost:8000/x", "https://example.org/x"])
async def test_what_is_not_suspicious_is_not_warned_about(url: str) -> None:
    _, shown, _ = await visit(url, "d")
    assert len(shown) == 3


@pytest.mark.parametrize(
    "url",
    ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "ftp://x/", "https://", "http://[::1/", "x"],
)
async def test_what_is_no_page_is_declined_without_a_question(url: str) -> None:
    result, _, opened = await visit(url, "y")
    assert result.action == "decline"
    assert opened == []


@pytest.mark.finding("security-13")
@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example\\@bank.example/login",
        "https://evil.example\\.bank.example/",
        "https:\\\\evil.example\\bank.example",
        "https://bank.example@evil.example/",
        "https://user:password@bank.example/",
        "https://bank.example\t.evil.example/",
        "https://bank.example\n/",
        "https://bank.example /",
        " https://bank.example/",
        "https://bank.example\u3002evil.example/",
        "https://\u0430pple.com/",
        "https://bank.example\uff0fevil.example/",
        "https://bank.example/\x1b[2J",
        "https://bank.example%2eevil.example/",
        "https://bank.example%40evil.example/",
        "https:///evil.example/",
        "https:evil.example/",
        "https:/evil.example/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://127.1/",
        "https://bank.example:0/",
        "https://bank.example:x/",
        "https://[::1%25eth0]/",
        "https://bank..example/",
        "https://" + "a." * 1100 + "example/",
    ],
)
async def test_an_address_that_a_browser_may_read_otherwise_is_declined_without_a_question(url: str) -> None:
    result, shown, opened = await visit(url, "y")
    assert (result.action, opened) == ("decline", [])
    assert not any(line.startswith("Open ") for line in shown)
    assert shown[-1].startswith("  Declined, since the URL cannot be opened: ")


@pytest.mark.finding("security-13")
@pytest.mark.parametrize(
    ("url", "host", "opened"),
    [
        ("https://Bank.Example", "bank.example", "https://bank.example/"),
        ("HTTPS://bank.example:8443/a?b=c#d", "bank.example", "https://bank.example:8443/a?b=c#d"),
        ("https://bank.example:/x", "bank.example", "https://bank.example/x"),
        ("https://bank.example?@evil.example/", "bank.example", "https://bank.example/?@evil.example/"),
        ("https://bank.example#@evil.example/", "bank.example", "https://bank.example/#@evil.example/"),
        ("https://bank.example/@evil.example/", "bank.example", "https://bank.example/@evil.example/"),
        ("http://[::1]:8000/x", "::1", "http://[::1]:8000/x"),
        ("http://127.0.0.1:8000/x", "127.0.0.1", "http://127.0.0.1:8000/x"),
    ],
)
async def test_what_is_opened_is_what_was_shown(url: str, host: str, opened: str) -> None:
    result, shown, visited = await visit(url, "y")
    assert (result.action, visited) == ("accept", [opened])
    assert shown[1].strip() == opened
    assert any(line.startswith(f"Open {host} in your browser?") for line in shown)


def test_what_would_command_a_terminal_is_taken_out() -> None:
    assert clean("a\x1b[2Jb\x07c\r\u202ed\u0085") == "a\ufffd[2Jb\ufffdc\ufffd\ufffdd\ufffd"
    assert clean("two\n\tlines, ü, 世界") == "two\n\tlines, ü, 世界"
