"""The client API: the same calls to any server, of any revision, over any transport."""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
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
from callboard.errors import CallboardError, ConnectionLost
from callboard.listening import Listening, Switchboard
from callboard.meeting import Meeting
from callboard.supervisor import Actor, Supervisor, SupervisorSpec, open_tree
from callboard.targets import Access, Target, ways_to
from callboard.transports.client.credentials import Auth
from callboard.transports.client.process import OnStderr

M = TypeVar("M", bound=Model)

THIS: Final = Implementation(name="callboard", version=__version__)


@attrs.define(eq=False)
class _Reader(Actor[Never]):
    """Reads what comes on no request's way."""

    mailbox = None

    link: Link
    caller: Caller

    async def run(self) -> None:
        failure: Exception | None = None
        try:
            await self.link.listen(self.caller.hear)
            if self.link.is_stale and self.caller.renew is not None:
                await self.caller.renew()  # which begins to read anew
        except CallboardError as error:
            failure = error
        finally:
            if self.link.lost:
                failure = ConnectionLost(self.link.lost)
            if failure is not None and self.caller.on_lost is not None:
                self.caller.on_lost(failure)


@attrs.define(eq=False)
class _Readers:
    """Whoever reads for a client: one after the other, if there is one session after the other."""

    background: Supervisor
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    def begin(self, caller: Caller) -> None:
        self.background.spawn(_Reader(caller.link, caller), name=f"reader-{next(self._names)}")


class Client:
    """A conversation with one server. Make it with `connect`."""

    def __init__(self, caller: Caller, agreed: Agreed, readers: _Readers, patience: Patience) -> None:
        self._caller = caller
        self._agreed = agreed
        self._patience = patience
        self._catalogue = Catalogue(caller, patience)
        self._switchboard = Switchboard(caller, readers.background, self._catalogue.changed)
        self._readers = readers
        self._renewing = trio.Lock()
        caller.on_change, caller.on_lost, caller.renew = self._switchboard.changed, self._switchboard.lose, self._renew

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
        return await self.prompt_with(name, arguments, patience=patience)

    async def prompt_with(
        self, name: str, arguments: Mapping[str, str], *, patience: Patience | None = None
    ) -> GetPromptResult:
        """As `prompt`, for arguments that are no Python names, or come as they are."""
        params = GetPromptRequestParams(name=name, arguments=dict(arguments) or UNSET)
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

    async def _renew(self) -> None:
        """Open a session in place of one that the server has ended. Nothing that was asked is asked again."""
        link = self._caller.link
        async with self._renewing:
            if not link.is_stale:
                return  # somebody else did
            is_open = False
            try:
                self._agreed = await agree(self._caller, self.revision)
                self._catalogue.forget()
                if self._caller.log_level is not None and self._agreed.capabilities.logging is not UNSET:
                    await self.set_log_level(self._caller.log_level)
                await self._switchboard.begin_again()
                is_open = True
            finally:
                link.is_stale = not is_open
            self._readers.begin(self._caller)
            await link.wait_listening()


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
    tls: ssl.SSLContext | None = None,
    auth: Auth | None = None,
    on_stderr: OnStderr | None = None,
) -> AsyncIterator[Client]:
    """Connect to an MCP server: a URL, a command (a list), `FILE.py:NAME`, `FILE.json#NAME`, or a `Server`.

    *sampling*, *elicitation* and *roots* answer what the server asks, in whichever way its revision asks. *revision*
    insists on one; otherwise it is the newest that both speak. *headers* go with every HTTP request, and *tls* says
    which certificates are believed. *auth* (from `callboard.oauth`) is asked when a server over HTTP wants to know who
    is there.

    Raises `CannotConnect` or `NotAuthorized` with the reason, in one line.
    """
    spec = SupervisorSpec("client", children=(SupervisorSpec("answers"), SupervisorSpec("background")))
    ways = ways_to(target, Access(headers=headers or {}, tls=tls, auth=auth, on_stderr=on_stderr))
    async with open_tree(spec) as root, AsyncExitStack() as stack:
        answering = Answering(answers_of(sampling, elicitation, roots), root.supervisor_of("answers"))
        capabilities = capabilities_of(sampling, elicitation, roots)
        readers = _Readers(root.supervisor_of("background"))

        def begin(link: Link) -> Caller:
            caller = Caller(link, answering, info, capabilities, log_level, on_log=on_log)
            if not link.is_http:
                readers.begin(caller)
            return caller

        meeting = Meeting(ways, begin, stack)
        caller, agreed = await meeting.meet(None if revision is None else Revision(revision))
        client = Client(caller, agreed, readers, patience)
        if caller.link.is_http:
            readers.begin(caller)
        try:
            if caller.link.is_http and agreed.revision in LEGACY:
                await caller.link.wait_listening()
            yield client
        finally:
            with trio.CancelScope(shield=True):  # bounded by the link
                await caller.link.aclose()
