"""The documentation says what the code does."""

import re
import runpy
from pathlib import Path

import pytest

from callboard import errors

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_page_of_limits_is_what_the_constants_say() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "limits.py"))["page"]()
    assert (ROOT / "docs" / "reference" / "limits.md").read_text() == page, (
        "run: python docs/limits.py > docs/reference/limits.md"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


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
