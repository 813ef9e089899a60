"""Params and results of a method in a revision: typed in, JSON out. Raw bytes are decoded on the way."""

from functools import cache
from typing import Any, Final, get_args

from callboard.codecs.revisions._write import Writer
from callboard.codecs.revisions.convert import decoded, read, read_form, write, writer
from callboard.codecs.revisions.inputs import InputRequiredResult
from callboard.codecs.revisions.methods import Direction, Method, method_of
from callboard.codecs.revisions.model import UNSET, Model, required_members
from callboard.codecs.revisions.revision import Revision
from callboard.codecs.revisions.tasks import CreateTaskResult
from callboard.errors import InvalidParams

COMPLETE: Final = "complete"
INPUT_REQUIRED: Final = "input_required"


def read_params(revision: Revision, method: str, value: object = UNSET) -> Model:
    """The typed params of a request or notification; absent params are empty ones.

    Raises `InvalidParams` for what does not fit, and `MethodNotFound` for a method that *revision* does not have.
    """
    row = method_of(revision, method)
    params: Model = read_form(revision, row.params, {} if value is UNSET else value)
    return params


def write_params(revision: Revision, method: str, params: Model) -> dict[str, Any]:
    """The JSON object of typed params.

    Raises `MethodNotFound` if *revision* does not have the method, `ValueError` if it cannot say these params, and
    `TypeError` if they are another method's.
    """
    row = method_of(revision, method)
    if type(params) not in (get_args(row.params) or (row.params,)):
        raise TypeError(f"invalid params for {method}: {type(params).__name__}")
    return write(revision, params)


def read_result(revision: Revision, method: str, value: object) -> Model:
    """The typed result of a request: one branch of its union, and no other is tried.

    A modern result is chosen by `resultType`: absent means complete, unknown is refused. In 2025-11-25 the answer
    may be a task.

    Raises `InvalidParams` for what does not fit.
    """
    row = method_of(revision, method)
    body = decoded(value, at="result")
    result = read(revision, _branch(revision, row, body), body, at="result")
    if _asks_nothing(result):
        raise InvalidParams("result: inputRequests or requestState is required")
    return result


def write_result(revision: Revision, method: str, result: Model) -> dict[str, Any]:
    """The JSON object of a typed result: what *revision* does not know is left out.

    Raises `MethodNotFound` if *revision* does not have the method, `ValueError` if it cannot say this result (a
    question in a legacy revision, a block it does not have), and `TypeError` if it is another method's.
    """
    if _asks_nothing(result):
        raise ValueError("a question needs input_requests or request_state")
    kind: Any = type(result)
    written: dict[str, Any] = _result_writer(revision, method, kind)(result)
    return written


@cache
def _result_writer(revision: Revision, method: str, kind: Any) -> Writer:
    row = method_of(revision, method)
    if not _answers(revision, row, kind):
        raise TypeError(f"{kind.__name__} does not answer {method} in {revision}")
    return writer(revision, kind)


def _branch(revision: Revision, row: Method, value: object) -> type[Model]:
    complete = _complete(row)
    if not isinstance(value, dict):
        return complete
    if revision in row.may_defer and "task" in value and not required_members(complete, revision) <= value.keys():
        return CreateTaskResult
    # Answers to input requests are bare: they have no `resultType` to choose by.
    if not revision.dialect.typed_results or revision not in row.spoken[Direction.CLIENT_TO_SERVER]:
        return complete
    match value.get("resultType", COMPLETE):
        case "complete":
            return complete
        case "input_required" if revision in row.may_ask:
            return InputRequiredResult
    allowed = f"{COMPLETE!r} or {INPUT_REQUIRED!r}" if revision in row.may_ask else repr(COMPLETE)
    raise InvalidParams(f"result.resultType: expected {allowed}")


def _answers(revision: Revision, row: Method, kind: type[Model]) -> bool:
    """Whether results of a class may answer a method; any result that a task ends with may answer `tasks/result`."""
    if kind is _complete(row) or row.name == "tasks/result":
        return True
    return (kind is InputRequiredResult and revision in row.may_ask) or (
        kind is CreateTaskResult and revision in row.may_defer
    )


def _complete(row: Method) -> type[Model]:
    if row.result is None:
        raise TypeError(f"{row.name} is a notification: it has no response")
    return row.result


def _asks_nothing(result: Model) -> bool:
    if not isinstance(result, InputRequiredResult):
        return False
    return result.input_requests is UNSET and result.request_state is UNSET
