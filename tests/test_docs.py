"""The documentation says what the code does."""

import re
import runpy
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import attrs
import pytest
from cyclopts import App

from callboard import errors
from callboard.cli import client
from callboard.cli.client_run import ClientOptions
from callboard.cli.codes import Exit
from callboard.cli.main import app as cli
from callboard.cli.serve_flags import Where
from callboard.codecs.websocket.frames import Code
from callboard.transports.limits import DEFAULTS, Holds, Settings
from tests.shared import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_page_of_limits_is_what_the_constants_say() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "limits.py"))["page"]()
    assert (ROOT / "docs" / "reference" / "limits.md").read_text() == page, (
        "run: python docs/limits.py > docs/reference/limits.md"
    )


def test_the_page_of_settings_is_what_the_settings_say() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "settings.py"))["page"]()
    assert (ROOT / "docs" / "reference" / "settings.md").read_text() == page, (
        "run: python docs/settings.py > docs/reference/settings.md"
    )


def test_the_reference_of_the_python_api_is_what_the_code_says() -> None:
    api = runpy.run_path(str(ROOT / "docs" / "api.py"))
    stale = [name for name in api["PAGES"] if (api["HERE"] / f"{name}.md").read_text() != api["page"](name)]
    assert stale == [], "run: python docs/api.py"


def test_every_public_name_is_in_the_reference_and_has_a_docstring() -> None:
    api = runpy.run_path(str(ROOT / "docs" / "api.py"))
    assert api["undocumented"]() == []
    text = "".join(path.read_text() for path in api["HERE"].glob("*.md"))
    for package in api["OWN"]:
        names = {name.rpartition(".")[2] for name in api["exported"](package).values()}
        assert [name for name in names if f"\n## {name}\n" not in text] == []


def test_every_limit_says_what_it_holds_for_when_several_workers_serve() -> None:
    settings = {field.name: field.metadata for field in attrs.fields(Settings)}
    assert {one["holds"] for one in settings.values()} == set(get_args(Holds))
    per_worker = {name for name, one in settings.items() if one["holds"] == "each worker"}
    assert {name for name, one in settings.items() if one["help"].endswith(" Per worker.")} == per_worker
    page = runpy.run_path(str(ROOT / "docs" / "limits.py"))
    held = {name: page["holds_for"](name) for name, _, _ in page["limits"]()}
    assert set(held.values()) == {"each worker", "all workers", "the keeper"}
    assert held["workers.shared_rate.METERS"] == held["workers.fair_share.SLOTS"] == "all workers"
    rooms = {f"callboard.{name}" for name in page["HOLDS"]}
    assert [room for room in rooms if find_spec(room) is None] == []  # what has moved says nothing


def test_the_pictures_of_the_architecture_are_what_the_imports_say() -> None:
    pictures = runpy.run_path(str(ROOT / "docs" / "architecture.py"))["pictures"]()
    assert {path for path, picture in pictures.items() if path.read_text() != picture} == set(), (
        "run: python docs/architecture.py"
    )


def test_every_file_of_the_package_that_a_design_page_names_exists() -> None:
    for page in PAGES:
        if page.parent.name == "design":
            for named in re.findall(r"`([a-z_0-9]+/[a-z_0-9/]+\.py)`", page.read_text()):
                assert (ROOT / named).exists() or (ROOT / "callboard" / named).exists(), f"{page.name}: {named}"


def test_the_glossary_has_no_more_than_twenty_words() -> None:
    rows = re.findall(r"^\| \*", (ROOT / "docs" / "design" / "glossary.md").read_text(), re.MULTILINE)
    assert 0 < len(rows) <= 20


def test_the_page_of_commands_names_every_flag() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    flags = [field.name.replace("_", "-") for field in attrs.fields(Where)] + ["json", "list"]
    assert len(flags) > 10
    assert [flag for flag in flags if f"`--{flag}" not in page] == []


def test_the_page_of_commands_names_every_command_every_option_of_theirs_and_every_exit_code() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    for command in client.COMMANDS:
        assert f"`callboard {command.__name__.rstrip('_')} TARGET" in page
    flags = [field.name.replace("_", "-") for field in attrs.fields(ClientOptions)]
    assert [flag for flag in flags if f"`--{flag}" not in page] == []
    for written in (
        "login TARGET",
        "logout TARGET",
        "run TARGET",
        "serve [CONFIG]",
        "check CONFIG",
        "approve CONFIG [SERVER [TOOL]]",
    ):
        assert f"`callboard {written}`" in page
    assert [code for code in Exit if f"| {code.value} |" not in page] == []


def _flags(app: App) -> set[str]:
    """Those of every command, and of the commands below it."""
    found = {
        name
        for command in (app[name] for name in app if not name.startswith("-"))
        if command.default_command is not None
        for argument in command.assemble_argument_collection()
        for name in argument.names
        if name.startswith("--")
    }
    return found.union(*(_flags(app[name]) for name in app if not name.startswith("-")))


def test_the_reference_has_every_flag_of_every_command_and_no_other() -> None:
    pages = [(ROOT / "docs" / "reference" / f"{name}.md").read_text() for name in ("commands", "settings")]
    written = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "".join(pages)))
    assert len(_flags(cli)) > 60
    assert _flags(cli) - written == set()
    assert written - _flags(cli) == {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"`[^`\n]*`", "", page.read_text())  # code may look like a link: `Page[int](items=[1])`
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        assert "://" in target or (page.parent / target).exists(), target


def test_no_page_is_orphaned() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages - {"README.md"} - set(re.findall(r"\]\(([^)#]+)[^)]*\)", index)) == set()


def test_every_anchor_is_a_heading() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            linked = (page.parent / target) if target else page
            headings = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
            assert anchor in map(_anchor, headings), f"{page.name}: {target}#{anchor}"


def _anchor(heading: str) -> str:
    """As a heading is linked to: small letters, and hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_page_of_errors_names_every_error_and_every_code() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    for name, found in vars(errors).items():
        if isinstance(found, type) and issubclass(found, errors.PeerError | errors.RequestFailed):
            assert f"| {found.code} | `{name}` |" in page
        elif isinstance(found, type) and issubclass(found, errors.CallboardError):
            assert f"`{name}`" in page
        elif isinstance(found, int) and name.isupper():
            assert f"| {found} |" in page


def test_the_page_of_the_websocket_names_every_close_code_and_the_defaults_as_they_are() -> None:
    page = (ROOT / "docs" / "reference" / "websocket.md").read_text()
    codes = set(re.findall(r"^\| (\d{4}) \|", page, re.MULTILINE))
    assert codes == {str(code.value) for code in Code if code is not Code.NO_CODE}
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", page[page.index("## 8. Limits") :], re.MULTILINE)
    assert len(rows) > 6
    for names, values in rows:
        for name, value in zip(names.split(", "), values.split(", "), strict=True):
            assert getattr(DEFAULTS, name.strip("`")) == _number(value), name


def _number(text: str) -> int:
    """What `4 MiB`, `20,000` and `30 s` stand for."""
    number, _, unit = text.replace(",", "").partition(" ")
    return int(number) * (2**20 if unit == "MiB" else 1)


def test_the_readme_fits_one_screen_and_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    assert "make serve" in text
    assert "make test" in text
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("make test"), "CI runs what people are told to run"


def test_what_the_readme_shows_of_an_example_is_in_the_example() -> None:
    [shown] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    example = (ROOT / "examples" / "weather.py").read_text()
    first, _, rest = shown.partition("\n\n\n")
    assert f"{first}\n" in example
    assert rest in example
