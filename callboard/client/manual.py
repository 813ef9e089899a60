"""A client that hands over what its server asks: `connect(..., input="manual")`."""

from collections.abc import Mapping
from typing import Any, Final, Generic, Never, TypeAlias, TypeVar, cast

import attrs
from msgspec import UNSET

from callboard.actors.client.conversation import Patience
from callboard.actors.client.hearer import OnProgress
from callboard.client.base import BaseClient, check_by_name
from callboard.client.call import Calling
from callboard.codecs.revisions import (
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequests,
    InputRequiredResult,
    InputResponses,
    ReadResourceRequestParams,
    ReadResourceResult,
)

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Askable: TypeAlias = CallToolRequestParams | ReadResourceRequestParams | GetPromptRequestParams
"""The params of the three requests that a server may answer by a question."""

_NOTHING: Final[InputResponses] = {}


@attrs.frozen
class Asked(Generic[R_co]):
    """A server's question in place of a result. A plain value: it can be answered later, and by another client."""

    params: Askable
    """The original request."""
    result: InputRequiredResult
    """The result of the server."""

    @property
    def questions(self) -> InputRequests:
        """The questions, by key. Empty if the server only wants a retry."""
        return {} if self.result.input_requests is UNSET else self.result.input_requests

    def retry(self, responses: InputResponses) -> Askable:
        """The same request, with these answers and the state as it was given. Raises ValueError."""
        for key in responses:
            if key not in self.questions:
                known = ", ".join(map(repr, self.questions)) or "nothing"
                raise ValueError(f"no question has the key {key!r}; keys: {known}")
        given = dict(responses) if responses else UNSET
        return attrs.evolve(self.params, input_responses=given, request_state=self.result.request_state)


class ManualClient(BaseClient):
    """A client that leaves the server's questions to the caller: `connect(..., input="manual")`.

    ```python
    got = await client.call("book", city="Oslo")
    while isinstance(got, Asked):
        got = await client.answer(got, {key: await ask_user(question) for key, question in got.questions.items()})
    ```
    """

    _is_manual = True

    def call(
        self, tool: str, /, *given: Never, patience: Patience | None = None, **arguments: Any
    ) -> Calling[CallToolResult | Asked[CallToolResult]]:
        """Call a tool: awaited it is the result or a question, entered it also tells of progress."""
        check_by_name("call", given)
        return self.call_with(tool, arguments, patience=patience)

    def call_with(
        self, tool: str, arguments: Mapping[str, Any], *, patience: Patience | None = None
    ) -> Calling[CallToolResult | Asked[CallToolResult]]:
        """As `call`, for arguments that are no Python names, or come as they are."""
        params = CallToolRequestParams(name=tool, arguments=dict(arguments))

        async def ask(on_progress: OnProgress | None) -> CallToolResult | Asked[CallToolResult]:
            result = await self._catalogue.call(params, self._within(patience), on_progress)
            return Asked(params, result) if isinstance(result, InputRequiredResult) else result

        return Calling(ask)

    async def read(
        self, uri: str, *, patience: Patience | None = None
    ) -> ReadResourceResult | Asked[ReadResourceResult]:
        """Read a resource, kept as long as the server allows, unless it took a question."""
        params = ReadResourceRequestParams(uri=uri)
        result = await self._catalogue.read(params, self._within(patience))
        return Asked(params, result) if isinstance(result, InputRequiredResult) else result

    async def prompt(
        self, name: str, /, *given: Never, patience: Patience | None = None, **arguments: str
    ) -> GetPromptResult | Asked[GetPromptResult]:
        """Get a prompt."""
        check_by_name("prompt", given)
        return await self.prompt_with(name, arguments, patience=patience)

    async def prompt_with(
        self, name: str, arguments: Mapping[str, str], *, patience: Patience | None = None
    ) -> GetPromptResult | Asked[GetPromptResult]:
        """As `prompt`, for arguments that are no Python names, or come as they are."""
        params = GetPromptRequestParams(name=name, arguments=dict(arguments) or UNSET)
        result = await self._catalogue.prompt(params, self._within(patience))
        return Asked(params, result) if isinstance(result, InputRequiredResult) else result

    def answer(
        self, asked: Asked[R], responses: InputResponses = _NOTHING, *, patience: Patience | None = None
    ) -> Calling[R | Asked[R]]:
        """Go on with what led to a question: the same request, with *responses* by the keys of `asked.questions`.

        A key may be left out: the server asks again, or does without. What was given as state goes back as it came.
        Raises ValueError for an answer to what was not asked.
        """
        params, within = asked.retry(responses), self._within(patience)

        async def ask(on_progress: OnProgress | None) -> R | Asked[R]:
            result = await self._catalogue.again(params, within, on_progress)
            return Asked(asked.params, result) if isinstance(result, InputRequiredResult) else cast("R", result)

        return Calling(ask)
