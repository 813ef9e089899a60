"""A client's own functions, as answers to what a server asks."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from callboard.actors.client.answerer import Answer
from callboard.codecs.revisions import (
    UNSET,
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitationCapability,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ListRootsRequestParams,
    ListRootsResult,
    Model,
    Root,
    RootsCapability,
    SamplingCapability,
    TextContent,
)

Sampling: TypeAlias = Callable[[CreateMessageRequestParams], Any]
"""Asks a model: returns its text, or a whole `CreateMessageResult`; plain or async."""

Elicitation: TypeAlias = Callable[[ElicitRequestFormParams | ElicitRequestURLParams], Any]
"""Asks the user: returns what was filled in (a mapping), None for "no", or an `ElicitResult`; plain or async."""

Roots: TypeAlias = Sequence[Root | str] | Callable[[], Any]
"""The folders that the client works in: file URIs, or a function that gives them."""


def answers_of(sampling: Sampling | None, elicitation: Elicitation | None, roots: Roots | None) -> Mapping[str, Answer]:
    """The callback for each method."""
    answers: dict[str, Answer] = {}
    if sampling is not None:
        answers["sampling/createMessage"] = _sampled_by(sampling)
    if elicitation is not None:
        answers["elicitation/create"] = _elicited_by(elicitation)
    if roots is not None:
        answers["roots/list"] = _rooted_in(roots)
    return answers


def capabilities_of(
    sampling: Sampling | None, elicitation: Elicitation | None, roots: Roots | None
) -> ClientCapabilities:
    """The capabilities to declare: one for each callback."""
    return ClientCapabilities(
        sampling=UNSET if sampling is None else SamplingCapability(tools={}, context={}),
        elicitation=UNSET if elicitation is None else ElicitationCapability(form={}, url={}),
        roots=UNSET if roots is None else RootsCapability(),
    )


def _sampled_by(sampling: Sampling) -> Answer:
    async def answer(params: CreateMessageRequestParams) -> Model:
        said = await _awaited(sampling(params))
        if isinstance(said, CreateMessageResult):
            return said
        return CreateMessageResult(
            role="assistant", content=TextContent(text=str(said)), model="unknown", stop_reason="endTurn"
        )

    return answer


def _elicited_by(elicitation: Elicitation) -> Answer:
    async def answer(params: ElicitRequestFormParams | ElicitRequestURLParams) -> Model:
        said = await _awaited(elicitation(params))
        if isinstance(said, ElicitResult):
            return said
        if said is None or said is False:
            return ElicitResult(action="decline")
        if isinstance(params, ElicitRequestURLParams):
            return ElicitResult(action="accept")
        return ElicitResult(action="accept", content=dict(said))

    return answer


def _rooted_in(roots: Roots) -> Answer:
    static = None if callable(roots) else _checked(roots)

    async def answer(_: ListRootsRequestParams) -> Model:
        named = _checked(await _awaited(roots())) if callable(roots) else static
        return ListRootsResult(roots=named or [])

    return answer


def _checked(roots: Sequence[Root | str]) -> list[Root]:
    """Raises ValueError for a root that is no folder: the protocol has no others."""
    named = [Root(uri=root) if isinstance(root, str) else root for root in roots]
    for root in named:
        if not root.uri.startswith("file://"):
            raise ValueError(f"invalid root {root.uri[:200]!r}: expected a file:// URI")
    return named


async def _awaited(value: Any | Awaitable[Any]) -> Any:
    return await value if inspect.isawaitable(value) else value
