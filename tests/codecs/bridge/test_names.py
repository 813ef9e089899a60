"""Names of many backends in one list: stable, short enough, and none that looks like another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.bridge.names import MAX_NAME, hides_text, prefixed, problem_with, skeleton


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


@pytest.mark.finding("security-18")
@pytest.mark.parametrize(
    "name",
    [
        *(f"pay{mark}" for mark in "\ufe0f\U000e0100\u034f\u115f\u1160\u17b5\u2800\u3164\uffa0\u180b\u2065"),
        "pay ",
        " pay",
        "pay\u00a0",
        "pay\u0335",  # a combining stroke
        "pay\u05d0",  # Latin and Hebrew
        "pay\u10d0",  # Latin and Georgian
        "\u0440\u0430\u03c5",  # Cyrillic and Greek
        "\u13a0b",  # Cherokee and Latin
    ],
)
def test_a_name_with_what_cannot_be_seen_or_of_two_alphabets_is_refused(name: str) -> None:
    assert problem_with(name) is not None


@pytest.mark.finding("security-18")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pay", "\u0440\u0430\u0443"),  # Cyrillic
        ("A", "\u0391"),  # Greek
        ("ATM", "\u13aa\u13a2\u13b7"),  # Cherokee
        ("pay1", "payl"),
        ("I", "l"),
        ("O", "0"),
        ("kOln", "k\u00d6ln"),
    ],
)
def test_names_that_look_alike_have_one_skeleton(one: str, other: str) -> None:
    assert skeleton(one) == skeleton(other)


@given(st.text(st.characters(categories=["L", "N", "P"]), max_size=30))
def test_a_skeleton_is_its_own(name: str) -> None:
    assert skeleton(skeleton(name)) == skeleton(name)


def test_names_that_differ_have_two_skeletons() -> None:
    names = ["get_user", "get_users", "put_user", "a-b", "a_b", "погода", "x2", "x3"]
    assert len(set(map(skeleton, names))) == len(names)


@pytest.mark.finding("security-18")
@pytest.mark.parametrize(
    "text",
    [
        "Nice." + "".join(chr(0xFE00 + ord(letter) % 16) for letter in "ignore"),
        "Nice." + "".join(chr(0xE0100 + ord(letter)) for letter in "ignore all else"),
        "\U0001f600" + "".join(chr(0xE0100 + ord(letter)) for letter in "ignore"),
        "a\ufe0f",
        "\u3164",
        "a\u115f\u1160b",
        "x" + "\u200d" * 30,
        "\U0001f468" + "\u200d" * 30 + "\U0001f469",
        "\U0001f468\u200d",
        "\u2800",
        "a\u00adb",
        "a\u034fb",
    ],
)
def test_a_message_that_is_drawn_as_nothing_is_seen(text: str) -> None:
    assert hides_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "\u26a0\ufe0f Takes a while",
        "1\ufe0f\u20e3 first",
        "\u2764\ufe0f\u200d\U0001f525",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with a non-joiner
        "\u0915\u094d\u200d\u0937",  # Devanagari, with a joiner
        "für Köln\u00a0\u2013 5\u202f°C",
    ],
)
def test_what_a_script_or_an_emoji_needs_hides_nothing(text: str) -> None:
    assert not hides_text(text)


@pytest.mark.parametrize("name", ["天気API", "カレンダー予定", "नमस्ते", "ไทย", "날씨"])
def test_scripts_that_are_written_together_may_be(name: str) -> None:
    assert problem_with(name) is None


@pytest.mark.parametrize("name", ["get_weather", "a b", "wetter-für-köln", "погода", "天気", "καιρός", "x.y/z"])
def test_names_in_any_one_alphabet_are_fine(name: str) -> None:
    assert problem_with(name) is None


def test_text_may_have_lines_and_joined_emoji_and_nothing_hidden() -> None:
    assert not hides_text("one\n\ttwo\r\nthree")
    assert not hides_text("family: \U0001f468\u200d\U0001f469")
    assert hides_text("ignore\u200b all")
    assert hides_text("bell\x07")
    assert hides_text("tags \U000e0041")
