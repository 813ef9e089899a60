"""The documentation as a site, which `make docs` builds: every page is in it, and nothing comes from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec
import pytest

from tests.browser import browser
from tests.shared import ROOT

DOCS: Final = ROOT / "docs"
TYPED: Final = """
(() => {
  document.querySelector("#__search").click();
  const field = document.querySelector("[data-md-component=search-query]");
  field.value = "elicitation";
  field.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
})()
"""
FOUND: Final = "document.querySelectorAll('.md-search-result__link').length"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site. A link that leads nowhere, or a page without a place, is an error."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        check=True,
        cwd=ROOT,
        timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    return folder


def links(page: Path) -> set[Path]:
    """The pages that a page links to."""
    found = re.findall(r'<a [^>]*?href="([^"#:?]+\.html)', page.read_text(encoding="utf-8"))
    return {(page.parent / unquote(target)).resolve() for target in found}


def test_every_page_can_be_reached_from_the_first_one(site: Path) -> None:
    reached, waiting = set[Path](), [site / "index.html"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += links(page)
    assert all(page.exists() for page in reached)
    wanted = {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")}
    assert {name.replace("README", "index") for name in wanted} <= {
        page.relative_to(site).as_posix() for page in reached
    }
    assert site / "source" / "deploy" / "nginx.conf.html" in reached, "files outside of docs/ are pages, too"


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r'(?:src|<link[^>]*href)="(?:https?:)?//[^"]*', text) == [], page.name


def test_the_search_knows_every_page(site: Path) -> None:
    index = msgspec.json.decode((site / "search" / "search_index.json").read_bytes())
    known = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"index.html", "howto/deploy.html", "reference/python/server.html", "tutorial/host.html"} <= known


async def test_the_search_works_in_a_page_on_the_disk_without_a_network(site: Path) -> None:
    async with browser() as page:
        await page.open((site / "index.html").as_uri())
        await page.value(TYPED)
        await page.wait(f"{FOUND} > 0")
        assert not [address for address in page.fetched if not address.startswith(("file:", "data:", "blob:"))]
