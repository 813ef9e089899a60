"""Hooks of mkdocs: the navigation is what `docs/README.md` lists, and files outside of `docs/` become pages, too.

A page links to `../../deploy/nginx.conf` as to any file, which works in a checkout. In the site such a file is a page
below `source/`, and the link leads there.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
SOURCE: Final = "source"
LARGEST: Final = 200_000
"""Bytes of a file that is shown as a page."""

_LINK: Final = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")
_FENCED: Final = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_LIST: Final = re.compile(r"^([^\s|#>`-].*)\n(?=- |\d+\. )", re.MULTILINE)
_KINDS: Final = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".json": "json", ".mjs": "js", ".ts": "ts"}

_SHIM: Final = "https://unpkg.com/iframe-worker/shim"

SECTIONS: Final = {
    "tutorial": "Tutorial",
    "howto": "How to",
    "reference": "Reference",
    "design": "Design",
    SOURCE: "Source",
}


def on_config(config: Any) -> Any:
    """Put the pages into the order in which `README.md` names them, by the folder that they are in."""
    named = dict.fromkeys(re.findall(r"\]\(([a-z][^)#:]*\.md)", (DOCS / "README.md").read_text(encoding="utf-8")))
    nav: list[dict[str, Any]] = [{"Start": "README.md"}]
    for folder, title in SECTIONS.items():
        inside = [path for path in named if path.startswith(f"{folder}/")]
        if folder == SOURCE:
            inside = [source_name(target) for target in sorted(outside())]
        nav.append({title: inside})
    nav[-2]["Design"] += [path for path in named if "/" not in path]
    config["nav"] = nav
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each file outside of the documentation that some page links to."""
    from mkdocs.structure.files import File  # only where the site is built

    for target in sorted(outside()):
        files.append(File.generated(config, source_name(target), content=source_page(target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead where the site has their targets, and lists begin where GitHub sees them begin."""
    name = page.file.src_uri
    here = DOCS / name if not name.startswith(f"{SOURCE}/") else ROOT / _outside_of(name)

    def moved(target: str) -> str:
        found = _resolved(here, target)
        if found is None or not found.exists():
            return target
        inside = found.is_relative_to(DOCS) and found.is_file()
        to = found.relative_to(DOCS).as_posix() if inside else source_name(found.relative_to(ROOT).as_posix())
        return posixpath.relpath(to, posixpath.dirname(name))

    return _outside_of_fences(markdown, lambda text: _LIST.sub(r"\1\n\n", _LINK.sub(lambda m: moved(m[1]), text)))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Have our own script where the theme would load one from the network, for the search in pages on a disk."""
    return output.replace(_SHIM, posixpath.relpath("assets/worker.js", posixpath.dirname(page.file.dest_uri)))


def on_post_template(output: str, template_name: str, **_: Any) -> str:
    """The same for a page without a place of its own, such as 404.html."""
    return output.replace(_SHIM, "assets/worker.js")


def outside() -> set[str]:
    """Every file and folder outside of `docs/` that a page links to, also from such a page."""
    found: set[str] = set()
    waiting = sorted(DOCS.rglob("*.md"))
    while waiting:
        page = waiting.pop()
        for target in _targets(page):
            name = target.relative_to(ROOT).as_posix()
            if name not in found:
                found.add(name)
                waiting += [target] if target.suffix == ".md" else []
    return found


def _targets(page: Path) -> Iterator[Path]:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for target in _LINK.findall(text):
        resolved = _resolved(page, target)
        if resolved is not None and resolved.exists() and not (resolved.is_relative_to(DOCS) and resolved.is_file()):
            yield resolved


def _resolved(page: Path, target: str) -> Path | None:
    found = Path(os.path.normpath(page.parent / target))
    return found if found.is_relative_to(ROOT) else None


def source_name(target: str) -> str:
    """The page of a file outside of `docs/`."""
    return f"{SOURCE}/{target}" if target.endswith(".md") else f"{SOURCE}/{target}.md"


def _outside_of(name: str) -> str:
    plain = name.removeprefix(f"{SOURCE}/")
    return plain if (ROOT / plain).exists() else plain.removesuffix(".md")


def source_page(target: str) -> str:
    """What a reader sees of it: a page as it is, a file as code, a folder as a list."""
    path = ROOT / target
    if path.is_dir():
        names = sorted(one.name for one in path.iterdir() if not one.name.startswith((".", "_")))
        return f"# {target}\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"
    text = path.read_bytes()[:LARGEST].decode(errors="replace")
    if path.suffix == ".md":
        return text
    return f"# {target}\n\n````{_KINDS.get(path.suffix, 'text')}\n{text}\n````\n"


def _outside_of_fences(markdown: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in _FENCED.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])
