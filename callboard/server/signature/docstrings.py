"""Parameter descriptions in docstrings, in the three common formats: Google, NumPy, Sphinx."""

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import attrs

_Block: TypeAlias = list[str]
_GOOGLE: Final = re.compile(r"(Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters):\s*")
_GOOGLE_ENTRY: Final = re.compile(r"\*{0,2}(?P<names>\w+)\s*(?:\(.*?\))?\s*:\s*(?P<text>.*)")
_NUMPY: Final = re.compile(r"(Other )?Parameters\s*")
_NUMPY_ENTRY: Final = re.compile(r"\*{0,2}(?P<names>\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?(?P<text>)")
_RULE: Final = re.compile(r"-{3,}\s*")
_SPHINX: Final = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(?P<names>\w+):\s*(?P<text>.*)"
)
_SPHINX_TYPE: Final = re.compile(r":type\s+\w+:.*")


@attrs.frozen
class Docstring:
    """The prose, without the section on parameters; and what that section says of each."""

    text: str = ""
    parameters: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Docstring":
        kept: list[str] = []
        found: dict[str, str] = {}
        lines = inspect.cleandoc(text).splitlines()
        while lines:
            for section in (_google, _numpy, _sphinx):
                if (entries := section(lines)) is not None:
                    found |= {name: told for name, told in entries if told}
                    break
            else:
                kept.append(lines.pop(0))
        return cls(re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), found)


# Each of these takes its section off the front of *lines*, or returns None and takes nothing.


def _google(lines: list[str]) -> list[tuple[str, str]] | None:
    if not _GOOGLE.fullmatch(lines[0]):
        return None
    del lines[0]
    return list(_entries(_indented(lines), _GOOGLE_ENTRY))


def _numpy(lines: list[str]) -> list[tuple[str, str]] | None:
    if len(lines) < 2 or not _NUMPY.fullmatch(lines[0]) or not _RULE.fullmatch(lines[1]):
        return None
    del lines[:2]
    block: _Block = []
    while lines and not (len(lines) > 1 and _RULE.fullmatch(lines[1])):
        block.append(lines.pop(0))
    return list(_entries(block, _NUMPY_ENTRY))


def _sphinx(lines: list[str]) -> list[tuple[str, str]] | None:
    if not (_SPHINX.fullmatch(lines[0]) or _SPHINX_TYPE.fullmatch(lines[0])):
        return None
    first = lines.pop(0)
    return list(_entries([first, *_indented(lines)], _SPHINX))


def _indented(lines: list[str]) -> _Block:
    """Take the lines that are indented, and the blank ones among them."""
    block: _Block = []
    while lines and (not lines[0].strip() or lines[0].startswith((" ", "\t"))):
        block.append(lines.pop(0))
    return block


def _entries(block: _Block, entry: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Part a section into names and texts: an entry starts where the section itself is indented to."""
    names: list[str] = []
    told: list[str] = []
    for line in inspect.cleandoc("\n".join(["", *block])).splitlines():
        match = entry.fullmatch(line)
        if match is None:
            told.append(line.strip())
            continue
        yield from ((name, " ".join(told).strip()) for name in names)
        names = [name.strip().lstrip("*") for name in match["names"].split(",")]
        told = [match["text"].strip()]
    yield from ((name, " ".join(told).strip()) for name in names)
