"""Params on their way to a backend: what was checked here is what it reads there."""

import pytest
from msgspec import Raw

from callboard.codecs.bridge.params import back_params
from callboard.errors import InvalidParams

NAMED = {"name": Raw(b'"book"'), "arguments": Raw(b"{}")}


@pytest.mark.parametrize("member", ["Name", "NAME", "Arguments", "argument\u017f", "Uri", "_Meta", "InputResponses"])
def test_what_a_reader_without_cases_takes_for_another_member_is_refused(member: str) -> None:
    with pytest.raises(InvalidParams, match="unknown member"):
        back_params({**NAMED, member: Raw(b'"other"')}, {})


def test_what_means_nothing_here_goes_on_as_it_is() -> None:
    given = {**NAMED, "_meta": Raw(b"{}"), "task": Raw(b"{}"), "example.com/more": Raw(b"1"), "nam": Raw(b"2")}
    assert list(back_params(given, {"name": Raw(b'"it"')}).items()) == [
        ("name", Raw(b'"it"')),
        ("arguments", Raw(b"{}")),
        ("example.com/more", Raw(b"1")),
        ("nam", Raw(b"2")),
    ]
