"""Which of many texts fit a few words best: Okapi BM25, as search engines have it. No index to keep: a catalogue of ten
thousand tools is ranked in some milliseconds, and it is another one for each caller.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

MAX_TERMS: Final = 32
"""Most words of a query that count. A sentence has fewer."""

SATURATION: Final = 1.2
"""How little it helps a text to have a word more often: k1 of BM25, as it is mostly set."""

EVENNESS: Final = 0.5
"""How much a long text is held back: b of BM25. Less than usual, as a tool is not worse for being described well."""

Terms: TypeAlias = Mapping[str, float]
"""The words of a text, and how often it has each, or how much each counts."""

_COMMON: Final = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "for", "from", "have", "how", "i", "in"),
        *(
            "into",
            "is",
            "it",
            "me",
            "my",
            "of",
            "on",
            "or",
            "that",
            "the",
            "this",
            "to",
            "want",
            "what",
            "which",
            "with",
            "you",
            "your",
        ),
    )
)
"""Words of English that say nothing of a tool. In a small catalogue they would seem to be rare."""

_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words_of(text: str) -> list[str]:
    """The words of a text or a name, in lower case and without a plural's ending: `listOpenTickets` has three."""
    return [_stem(word.lower()) for whole in _WORD.findall(text) for word in _HUMP.split(whole)]


def terms_of(fields: Iterable[tuple[float, str]]) -> Terms:
    """The words of a text of several fields, each with its weight."""
    found: Counter[str] = Counter()
    for weight, text in fields:
        for word in words_of(text):
            found[word] += weight  # type: ignore[assignment]  # a Counter also adds fractions up
    return dict(found)


def ranked(query: str, texts: Sequence[Terms]) -> list[int]:
    """The places of those *texts* that have any word of *query*, the best first; of equals, the first one first."""
    said = list(dict.fromkeys(words_of(query)))
    wanted = ([word for word in said if word not in _COMMON] or said)[:MAX_TERMS]
    lengths = [sum(text.values()) for text in texts]
    usual = sum(lengths) / len(texts) if texts else 1.0
    worth = {word: _rarity(sum(word in text for text in texts), len(texts)) for word in wanted}
    scores: list[tuple[float, int]] = []
    for place, text in enumerate(texts):
        held = SATURATION * (1 - EVENNESS + EVENNESS * lengths[place] / (usual or 1.0))
        score = sum(
            worth[word] * text[word] * (SATURATION + 1) / (text[word] + held) for word in wanted if word in text
        )
        if score > 0:
            scores.append((-score, place))
    return [place for _, place in sorted(scores)]


def _rarity(having: int, of: int) -> float:
    return math.log(1 + (of - having + 0.5) / (having + 0.5))


def _stem(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
