import errno

import pytest

from callboard.codecs.revisions import TextContent
from callboard.errors import InvalidParams, PeerRefused, RequestFailed
from callboard.server.content.errors import BadResult, ToolError
from callboard.server.content.failures import error_result, failure_text, is_unexpected
from callboard.server.content.problems import Problem


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
        (BadResult("mismatch", [Problem("x", "private")]), "Internal error: mismatch\n- x: private"),
        (ExceptionGroup("", [ToolError("1"), ExceptionGroup("", [ToolError("2"), ToolError("1")])]), "1\n2"),
    ],
)
def test_a_failure_is_told_in_its_own_words_and_never_by_its_traceback(exception: Exception, text: str) -> None:
    result = error_result(exception, show_errors=True)
    assert result.is_error is True
    assert result.content == [TextContent(text=text)]


@pytest.mark.finding("newcomer-A3")
@pytest.mark.parametrize("exception", [ValueError("password=1"), OSError(1, "x"), KeyError("y"), RuntimeError()])
def test_what_was_not_raised_for_the_peer_is_kept_from_it(exception: Exception) -> None:
    assert failure_text(exception) == f"Internal error: {type(exception).__name__}"
    assert is_unexpected(exception)


@pytest.mark.finding("newcomer-A2")
def test_a_result_that_may_not_be_returned_is_named_without_its_values() -> None:
    assert failure_text(BadResult("mismatch", [Problem("x", "private")], found="5")) == "Internal error: mismatch"


@pytest.mark.parametrize(
    "exception", [ToolError("meant"), InvalidParams("meant"), PeerRefused(1, "no"), RequestFailed("over")]
)
def test_what_was_raised_for_the_peer_is_told_in_its_own_words(exception: Exception) -> None:
    assert failure_text(exception) == str(exception)
    assert not is_unexpected(exception)


def test_a_failure_is_told_briefly() -> None:
    assert len(failure_text(ToolError("x" * 100_000))) == 2_000
    many = ExceptionGroup("", [ToolError(str(number)) for number in range(100)])
    assert failure_text(many) == "0\n1\n2\n3\n4"
