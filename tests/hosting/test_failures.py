import errno

import pytest

from callboard.codecs.revisions import TextContent
from callboard.errors import InvalidParams
from callboard.hosting import BadResult, Problem, ToolError, error_result, failure_text

UNSAID = "Internal error: the tool failed"


BROKEN = "Internal error: the tool returned a result that it may not return"


def crash() -> Exception:
    try:
        return Exception({"a": 1}["secret"])
    except KeyError as error:
        return error


@pytest.mark.parametrize(
    ("exception", "text"),
    [
        (ToolError("no such city"), "no such city"),
        (InvalidParams("bad cursor"), "bad cursor"),
        (ValueError("days must be positive"), "ValueError: days must be positive"),
        (RuntimeError(), "RuntimeError"),
        (ToolError(), "ToolError"),
        (crash(), "KeyError: 'secret'"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/etc/hidden"), "FileNotFoundError: No such file"),
        (OSError("odd"), "OSError: odd"),
        (BadResult("mismatch", [Problem("x", "private")]), BROKEN),
        (ExceptionGroup("", [ToolError("1"), ExceptionGroup("", [ToolError("2"), ToolError("1")])]), "1\n2"),
    ],
)
def test_a_failure_is_told_in_its_own_words_and_never_by_its_traceback(exception: Exception, text: str) -> None:
    result = error_result(exception)
    assert result.is_error is True
    assert result.content == [TextContent(text=text)]


@pytest.mark.parametrize("exception", [ValueError("password=1"), OSError(1, "x"), KeyError("y")])
def test_what_was_not_raised_for_the_peer_can_be_kept_from_it(exception: Exception) -> None:
    assert failure_text(exception, show_unexpected=False) == UNSAID
    assert failure_text(ToolError("meant"), show_unexpected=False) == "meant"


def test_a_failure_is_told_briefly() -> None:
    assert len(failure_text(ValueError("x" * 100_000))) == 2_000
    many = ExceptionGroup("", [ToolError(str(number)) for number in range(100)])
    assert failure_text(many) == "0\n1\n2\n3\n4"
