"""Revisions are ordered, and fall into two eras."""

import pytest

from callboard.codecs.revisions.revision import ALL, LATEST, LEGACY, MODERN, R1, R4, R5, Era, Revision, span


def test_revisions_sort_by_age() -> None:
    assert sorted(set(Revision)) == list(Revision)
    assert LATEST is R5


def test_only_the_latest_is_modern() -> None:
    assert frozenset({R5}) == MODERN
    assert LEGACY | MODERN == ALL
    assert [revision.era for revision in (R1, R4, R5)] == [Era.LEGACY, Era.LEGACY, Era.MODERN]


def test_a_revision_is_its_name_on_the_wire() -> None:
    assert Revision("2025-06-18") == "2025-06-18"
    with pytest.raises(ValueError, match="2026-06-30"):
        Revision("2026-06-30")


def test_a_span_includes_both_ends() -> None:
    assert span(R4) == {R4, R5}
    assert span(R1, R1) == {R1}
    assert span() == ALL
