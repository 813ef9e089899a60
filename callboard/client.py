"""The client API: the same calls to any server, of any revision, over any transport."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Never, TypeVar, cast

import attrs
import trio
from msgspec import UNSET

from callboard import __version__
from callboard.actors.answering import Answering
from callboard.actors.caller import PATIENT, Caller, OnLog, Patience
from callboard.actors.eras import Agreed, agree
from callboard.actors.link import Link
from callboard.answers import Elicitation, Roots, Sampling, answers_of, capabilities_of
from callboard.calling import Calling
from callboard.catalogue import Catalogue
from callboard.codecs.revisions import (
    LEGACY,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    CompletionArgument,
    CompletionContext,
    CompletionReference,
    GetPromptRequestParams,
    GetPromptResult,
    Implementation,
    LoggingLevel,
    Model,
    Prompt,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    Revision,
    ServerCapabilities,
    SetLevelRequestParams,
    Tool,
)
from callboard.errors import CannotConnect, RequestFailed
from callboard.listening import Listening, Switchboard
from callboard.supervisor import Actor, Supervisor, SupervisorSpec, open_tree
from callboard.targets import Target, open_link

M = TypeVar("M", bound=Model)

THIS: Final = Implementation(name="callboard", version=__version__)


@attrs.define(eq=False)
class _Reader(Actor[Never]):
    """Reads what comes on no request's way."""

    mailbox = None

    link: Link
    caller: Caller

    async def run(self) -> None:
        await self.link.listen(self.caller.hear)


class Client:
    """A conversation with one server. Make it with `connect`."""

    def __init__(self, caller: Caller, agreed: Agreed, background: Supervisor, patience: Patience) -> None:
        self._caller = caller
        self._agreed = agreed
        self._patience = patience
        self._catalogue = Catalogue(caller, patience)
        self._switchboard = Switchboard(caller, background)
        caller.on_change = self._changed

    # Whom it speaks to.

    @property
    def revision(self) -> Revision:
        return self._agreed.revision

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is. Hearsay: for display, never for a decision."""
        return self._agreed.info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        return self._agreed.capabilities

    @property
    def instructions(self) -> str | None:
        """What the server wants its users to know."""
        return self._agreed.instructions

    # What there is.

    async def tools(self) -> Sequence[Tool]:
        """All tools, kept as long as the server allows."""
        return await self._catalogue.tools()

    async def resources(self) -> Sequence[Resource]:
        return await self._catalogue.resources()

    async def templates(self) -> Sequence[ResourceTemplate]:
        return await self._catalogue.templates()

    async def prompts(self) -> Sequence[Prompt]:
        return await self._catalogue.prompts()

    # What to ask.

    def call(self, tool: str, /, *, patience: Patience | None = None, **arguments: Any) -> Calling:
        """Call a tool: awaited it is the result, entered it also tells of progress.

        Leaving the block before the end cancels the call at the server.
        """
        return self.call_with(tool, arguments, patience=patience)

    def call_with(self, tool: str, arguments: Mapping[str, Any], *, patience: Patience | None = None) -> Calling:
        """As `call`, for arguments that are no Python names, or come as they are."""
        params = CallToolRequestParams(name=tool, arguments=dict(arguments))

        async def ask(on_progress: Callable[..., None] | None) -> CallToolResult:
            return await self._catalogue.call(params, self._within(patience), on_progress)

        return Calling(ask)

    async def read(self, uri: str, *, patience: Patience | None = None) -> ReadResourceResult:
        """Read a resource, kept as long as the server allows."""
        return await self._catalogue.read(ReadResourceRequestParams(uri=uri), self._within(patience))

    async def prompt(self, name: str, /, *, patience: Patience | None = None, **arguments: str) -> GetPromptResult:
        """Get a prompt."""
        params = GetPromptRequestParams(name=name, arguments=arguments or UNSET)
        return await self._ask("prompts/get", params, GetPromptResult, patience)

    async def complete(
        self, of: str, argument: str, value: str, *, settled: Mapping[str, str] | None = None
    ) -> Sequence[str]:
        """Candidates for an argument of a prompt (by name), or of a template (by its text)."""
        reference: CompletionReference
        reference = ResourceTemplateReference(uri=of) if "://" in of else PromptReference(name=of)
        params = CompleteRequestParams(
            ref=reference,
            argument=CompletionArgument(name=argument, value=value),
            context=UNSET if settled is None else CompletionContext(arguments=dict(settled)),
        )
        return (await self._ask("completion/complete", params, CompleteResult, None)).completion.values

    async def ping(self, *, patience: Patience | None = None) -> None:
        """See that the server is there. A modern one is asked about itself: it has no ping."""
        method = "ping" if self.revision in LEGACY else "server/discover"
        await self._caller.request(method, RequestParams(), patience=self._within(patience))

    async def set_log_level(self, level: LoggingLevel) -> None:
        """How much the server shall log to this client."""
        self._caller.log_level = level
        if self.revision in LEGACY:
            await self._caller.request("logging/setLevel", SetLevelRequestParams(level=level), patience=self._patience)

    def listen(
        self, *, tools: bool = False, prompts: bool = False, lists: bool = False, resources: Sequence[str] = ()
    ) -> Listening:
        """Hear of changes, one after the other: of the lists of *tools*, *prompts* and resources (*lists*), and of the
        contents of *resources*.

        ```python
        async with client.listen(tools=True, resources=["weather://oslo/now"]) as changes:
            async for change in changes: ...
        ```
        """
        return self._switchboard.listen(tools=tools, prompts=prompts, lists=lists, resources=resources)

    async def _ask(self, method: str, params: Model, _: type[M], patience: Patience | None) -> M:
        return cast("M", await self._caller.request(method, params, patience=self._within(patience)))

    def _within(self, patience: Patience | None) -> Patience:
        return self._patience if patience is None else patience

    def _changed(self, method: str, params: Mapping[str, Any]) -> None:
        self._catalogue.changed(method, params)
        self._switchboard.changed(method, params)


@asynccontextmanager
async def connect(
    target: Target,
    *,
    sampling: Sampling | None = None,
    elicitation: Elicitation | None = None,
    roots: Roots | None = None,
    revision: Revision | str | None = None,
    info: Implementation = THIS,
    log_level: LoggingLevel | None = None,
    on_log: OnLog | None = None,
    patience: Patience = PATIENT,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[Client]:
    """Connect to an MCP server: a URL, a command, or a `Server` of this process.

    *sampling*, *elicitation* and *roots* answer what the server asks, in whichever way its revision asks. *revision*
    insists on one; otherwise it is the newest that both speak.

    Raises `CannotConnect` with the reason, in one line.
    """
    spec = SupervisorSpec("client", children=(SupervisorSpec("answers"), SupervisorSpec("background")))
    async with open_tree(spec) as root, open_link(target, headers or {}) as link:
        answers = answers_of(sampling, elicitation, roots)
        caller = Caller(
            link,
            Answering(answers, root.supervisor_of("answers")),
            info,
            capabilities_of(sampling, elicitation, roots),
            log_level,
            on_log=on_log,
        )
        background = root.supervisor_of("background")
        if not link.is_http:
            background.spawn(_Reader(link, caller), name="reader")
        try:
            agreed = await agree(caller, None if revision is None else Revision(revision))
        except RequestFailed as error:
            raise CannotConnect(f"no server to speak to: {error}") from None
        if link.is_http:
            background.spawn(_Reader(link, caller), name="reader")
        try:
            yield Client(caller, agreed, background, patience)
        finally:
            with trio.CancelScope(shield=True):  # bounded by the link
                await link.aclose()
