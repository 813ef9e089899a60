"""Names of many backends in one list: stable, short enough, and none that looks like another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.crossing.names import MAX_NAME, hides_text, prefixed, problem_with


def test_a_name_gets_its_prefix_unless_that_is_empty() -> None:
    assert prefixed("weather", "now") == "weather__now"
    assert prefixed("", "now") == "now"


def test_a_name_that_would_be_too_long_ends_in_a_digest_which_is_always_the_same() -> None:
    long = prefixed("weather", "n" * 60)
    assert long == "weather__" + "n" * 46 + "_" + long[-8:]
    assert len(long) == MAX_NAME
    assert long == prefixed("weather", "n" * 60)
    assert prefixed("weather", "n" * 55) == "weather__" + "n" * 55


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=200))
def test_no_shown_name_is_longer_than_clients_take(prefix: str, name: str) -> None:
    assert len(prefixed(prefix, name)) <= MAX_NAME


@given(st.text("ab_", min_size=50, max_size=80), st.text("ab_", min_size=50, max_size=80))
def test_two_long_names_stay_two(one: str, two: str) -> None:
    assert (prefixed("p", one) == prefixed("p", two)) is (one == two)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 1025,
        "pay\u200bpal",  # zero width space
        "pay\u200dpal",  # zero width joiner
        "pay\u202epal",  # right to left override
        "pay\u2066pal",  # isolate
        "pay\ufeffpal",  # byte order mark
        "pay\u00adpal",  # soft hyphen
        "pay\npal",
        "pay\tpal",
        "pay\x00pal",
        "p\u0430ypal",  # Cyrillic a
        "p\u03b1ypal",  # Greek alpha
        "\uff50aypal",  # full width p
        "pay\u2028pal",
        "pay\ue000pal",  # private use
    ],
)
def test_a_name_that_looks_like_what_it_is_not_is_refused(name: str) -> None:
    assert problem_with(name) is not None


@pytest.mark.parametrize("name", ["get_weather", "a b", "wetter-für-köln", "погода", "天気", "καιρός", "x.y/z"])
def test_names_in_any_one_alphabet_are_fine(name: str) -> None:
    assert problem_with(name) is None


def test_text_may_have_lines_and_joined_emoji_and_nothing_hidden() -> None:
    assert not hides_text("one\n\ttwo\r\nthree")
    assert not hides_text("family: \U0001f468\u200d\U0001f469")
    assert hides_text("ignore\u200b all")
    assert hides_text("bell\x07")
    assert hides_text("tags \U000e0041")
