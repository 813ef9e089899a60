"""Multi round-trip requests of 2026-07-28: a result that asks, and the retry that answers."""

from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias

from callboard.codecs.revisions.base import RequestParams, Result
from callboard.codecs.revisions.elicitation import ElicitRequestParams, ElicitResult
from callboard.codecs.revisions.model import UNSET, Model, UnsetType, model, since, stated_since
from callboard.codecs.revisions.revision import MODERN, R5, Revisions
from callboard.codecs.revisions.roots import ListRootsRequestParams, ListRootsResult
from callboard.codecs.revisions.sampling import CreateMessageRequestParams, CreateMessageResult


@model(kw_only=True)
class CreateMessageRequest(Model):
    """Asks the client's model: bare, without `jsonrpc` and `id`."""

    known: ClassVar[Revisions] = MODERN

    method: Literal["sampling/createMessage"] = "sampling/createMessage"
    params: CreateMessageRequestParams


@model(kw_only=True)
class ListRootsRequest(Model):
    """Asks for the client's roots: bare, without `jsonrpc` and `id`."""

    known: ClassVar[Revisions] = MODERN

    method: Literal["roots/list"] = "roots/list"
    params: ListRootsRequestParams | UnsetType = UNSET


@model(kw_only=True)
class ElicitRequest(Model):
    """Asks the client's user: bare, without `jsonrpc` and `id`."""

    known: ClassVar[Revisions] = MODERN

    method: Literal["elicitation/create"] = "elicitation/create"
    params: ElicitRequestParams


InputRequest: TypeAlias = CreateMessageRequest | ListRootsRequest | ElicitRequest
InputRequests: TypeAlias = Mapping[str, InputRequest]

# Bare results: what tells them apart is the one required member that the others lack.
InputResponse: TypeAlias = CreateMessageResult | ListRootsResult | ElicitResult
InputResponses: TypeAlias = Mapping[str, InputResponse]


@model(kw_only=True)
class InputRequiredResult(Result):
    """Not finished: answer these and send the request again. One of the two members at least is there."""

    known: ClassVar[Revisions] = MODERN

    result_type: str = stated_since(R5, "input_required")
    input_requests: InputRequests | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


@model(kw_only=True)
class InputResponseRequestParams(RequestParams):
    """Params of the three requests that may be answered by a question."""

    input_responses: InputResponses | UnsetType = since(R5)
    request_state: str | UnsetType = since(R5)
