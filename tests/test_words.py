"""Docstrings and comments of the package name what they are about (CONTRIBUTING.md, *Words*).

python -m tests.test_words [ROOM]    # the figure, and the worst files
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import attrs

import callboard

PACKAGE = Path(callboard.__file__).parent

NAMELESS = re.compile(
    r"\b(?:who|whom|whose|who(?:m|se)?(?:so)?ever|whatever|whichever"
    r"|(?:no|some|any|every)(?:body|one)(?:'s)?|no one|no-one"
    r"|those who|one who|all who|strangers?|he|him|his|she|her)\b",
    re.IGNORECASE,
)
"""Subjects without a name. *Whose* is sometimes right, and *someone* may be; so there is room for a few."""

WORD = re.compile(r"[A-Za-z']+")

MOST = 1.0
"""In 1,000 words, fewer than this. There were 11.8; trio has 0.9, h11 0.3, httpcore none."""


@attrs.frozen
class Prose:
    """The docstrings and comments of one module."""

    path: Path
    words: int
    nameless: tuple[str, ...]


def texts(source: str) -> Iterator[str]:
    """Every comment, and every string that stands alone: docstrings, and the reasons below constants."""
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def prose(path: Path) -> Prose:
    """What *path* says beside its code."""
    whole = "\n".join(texts(path.read_text()))
    return Prose(path, len(WORD.findall(whole)), tuple(NAMELESS.findall(whole)))


def figure(found: list[Prose]) -> float:
    """Nameless subjects in 1,000 words."""
    return 1000 * sum(len(one.nameless) for one in found) / max(1, sum(one.words for one in found))


def test_docstrings_and_comments_name_their_subjects() -> None:
    found = [prose(path) for path in PACKAGE.rglob("*.py")]
    worst = sorted(found, key=lambda one: len(one.nameless), reverse=True)[:5]
    assert figure(found) < MOST, {str(one.path.relative_to(PACKAGE)): one.nameless for one in worst}


def test_a_nameless_subject_is_seen_in_docstrings_comments_and_reasons_and_not_in_code() -> None:
    source = '"""Whoever."""\nX = 1\n"""Nobody\'s."""\ndef f():\n    """No one."""\n    somebody = "who"  # everybody\n'
    assert len(NAMELESS.findall("\n".join(texts(source)))) == 4
    assert len(NAMELESS.findall("Those who ask a stranger get his answer")) == 3
    assert not NAMELESS.findall("the whole, one, a body, some ones")


def main(room: str = "") -> None:
    found = [prose(path) for path in (PACKAGE / room).rglob("*.py")]
    lines = [f"{figure(found):.2f} in 1,000 words, of {sum(one.words for one in found):,}"]
    worst = sorted(found, key=lambda one: len(one.nameless), reverse=True)[:30]
    lines += [f"{len(one.nameless):4} {one.path.relative_to(PACKAGE)}: {' '.join(one.nameless)}" for one in worst]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
