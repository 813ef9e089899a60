"""What a server says with a refusal is read as far as it can be read, and no further."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.oauth.challenge import MAX_CHALLENGES, Challenge, read_challenges, wanted

READ: list[tuple[str, list[tuple[str, dict[str, str]]]]] = [
    ("Bearer", [("bearer", {})]),
    ('Bearer realm="x"', [("bearer", {"realm": "x"})]),
    ('BEARER Scope="a b", ERROR=insufficient_scope', [("bearer", {"scope": "a b", "error": "insufficient_scope"})]),
    ('Bearer scope = "a" , error="b"', [("bearer", {"scope": "a", "error": "b"})]),
    (r'Bearer error_description="say \"no\", \\ and go"', [("bearer", {"error_description": r'say "no", \ and go'})]),
    ('Bearer a="1", a="2"', [("bearer", {"a": "1"})]),
    ('Basic realm="x", Bearer scope="y"', [("basic", {"realm": "x"}), ("bearer", {"scope": "y"})]),
    ("Negotiate, Bearer scope=y", [("negotiate", {}), ("bearer", {"scope": "y"})]),
    ("Negotiate abc==, Bearer scope=y", [("negotiate", {}), ("bearer", {"scope": "y"})]),
    ('DPoP algs="ES256", Bearer', [("dpop", {"algs": "ES256"}), ("bearer", {})]),
    (',, Bearer ,, scope="x",,', [("bearer", {"scope": "x"})]),
    ('Bearer resource_metadata="https://a/b?c=d&e=f"', [("bearer", {"resource_metadata": "https://a/b?c=d&e=f"})]),
    ('Bearer scope="never closed', [("bearer", {})]),
    ("Bearer \x00\x01", [("bearer", {})]),
    ("", []),
    ("= = =", []),
    ('"quoted"', []),
]


@pytest.mark.parametrize(("value", "expected"), READ)
@pytest.mark.requirement("M367", "L209")
def test_challenges_are_read(value: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    assert read_challenges([value.encode("latin-1")]) == [Challenge(*each) for each in expected]


def test_several_headers_are_several_challenges() -> None:
    assert [each.scheme for each in read_challenges([b"Basic", b"Bearer", b"DPoP"])] == ["basic", "bearer", "dpop"]


@pytest.mark.parametrize(
    ("values", "scheme"),
    [([b"Bearer", b"DPoP"], "dpop"), ([b"Basic", b"Bearer"], "bearer"), ([b"Basic"], ""), ([], "")],
)
def test_the_challenge_that_a_token_answers_is_found(values: list[bytes], scheme: str) -> None:
    assert wanted(read_challenges(values)).scheme == scheme


@pytest.mark.parametrize(
    "values",
    [
        [b'Bearer resource_metadata="m", scope=s', b"DPoP algs=ES256"],
        [b"DPoP algs=ES256", b'Bearer resource_metadata="m"', b"Bearer scope=s, algs=none"],
        [b"DPoP algs=ES256, scope=s", b'Bearer resource_metadata="m", scope=other'],
    ],
)
def test_what_one_challenge_says_goes_for_the_other_that_a_token_answers_if_that_says_nothing(
    values: list[bytes],
) -> None:
    challenge = wanted(read_challenges(values))
    assert challenge == Challenge("dpop", {"resource_metadata": "m", "scope": "s", "algs": "ES256"})


def test_the_first_of_two_challenges_of_one_kind_counts() -> None:
    assert wanted(read_challenges([b"Bearer scope=a", b"Bearer scope=b"])).scope == "a"


def test_no_more_is_read_than_makes_sense() -> None:
    assert len(read_challenges([b"Bearer, " * 1000])) == MAX_CHALLENGES
    assert read_challenges([b'Bearer a="' + b"x" * 100_000 + b'"']) == [Challenge("bearer")]


@given(st.binary(max_size=300))
def test_nothing_that_a_server_says_breaks_the_reader(value: bytes) -> None:
    for challenge in read_challenges([value]):
        assert challenge.scheme == challenge.scheme.lower() != ""


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), st.text('ab \\",=é', max_size=9), max_size=4))
def test_what_is_written_as_it_should_be_is_read_as_it_was_meant(parameters: dict[str, str]) -> None:
    quoted = [f'{name}="' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for name, value in parameters.items()]
    [challenge] = read_challenges([f"Bearer {', '.join(quoted)}".encode("latin-1")])
    assert challenge.parameters == parameters
