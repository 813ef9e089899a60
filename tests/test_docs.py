"""The documentation says what the code does."""

import re
import runpy
from pathlib import Path

import attrs
import pytest

from callboard import errors
from callboard.commands import client
from callboard.commands.codes import Exit
from callboard.commands.speaking import Options
from callboard.commands.where import Where

ROOT = Path(__file__).resolve().parents[1]
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


def test_the_page_of_commands_names_every_flag() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    flags = [field.name.replace("_", "-") for field in attrs.fields(Where)] + ["json", "list"]
    assert len(flags) > 10
    assert [flag for flag in flags if f"`--{flag}" not in page] == []


def test_the_page_of_commands_names_every_command_every_option_of_theirs_and_every_exit_code() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    for command in client.COMMANDS:
        assert f"`callboard {command.__name__.rstrip('_')} TARGET" in page
    flags = [field.name.replace("_", "-") for field in attrs.fields(Options)]
    assert [flag for flag in flags if f"`--{flag}" not in page] == []
    for written in ("logout TARGET", "run TARGET", "serve [CONFIG]", "check CONFIG", "approve CONFIG [SERVER [TOOL]]"):
        assert f"`callboard {written}`" in page
    assert [code for code in Exit if f"| {code.value} |" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
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


def test_the_page_of_errors_names_every_error_of_the_wire() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.PeerError) and kind is not errors.PeerError:
            assert f"| {kind.code} | `{name}` |" in page


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
