"""Methods of every client, with or without callbacks: lists, completion, changes, sessions."""

import sys
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, ClassVar, Never, TypeVar, cast

import attrs
import msgspec
import trio
from msgspec import UNSET

from callboard.actors.client.conversation import Conversation, Patience
from callboard.actors.client.link import Link
from callboard.actors.client.negotiate import Agreed, agree
from callboard.actors.frames import custom_frame
from callboard.client.cache import ListCache
from callboard.client.candidates import Candidates
from callboard.client.subscriptions import ChangeStream, ClientSubscriptions
from callboard.codecs.envelope import ErrorResponse
from callboard.codecs.members import write_members
from callboard.codecs.revisions import (
    METHODS,
    CompleteRequestParams,
    CompleteResult,
    CompletionArgument,
    CompletionContext,
    CompletionReference,
    Implementation,
    JSONObject,
    LoggingLevel,
    Model,
    PaginatedRequestParams,
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
from callboard.errors import CallboardError, ConnectionLost, ServerRefused
from callboard.supervisor import Actor, Snapshot, Supervisor

M = TypeVar("M", bound=Model)


def check_by_name(method: str, given: tuple[object, ...]) -> None:
    """Raises TypeError for arguments by position, such as a dict of all of them."""
    if given:
        raise TypeError(
            f"{method}() takes arguments by name: {method}('name', a=1), or {method}_with('name', {{'a': 1}})"
        )


@attrs.define(eq=False)
class _Reader(Actor[Never]):
    """Reads what comes on no request's way."""

    mailbox = None

    link: Link
    conversation: Conversation

    async def run(self) -> None:
        failure: Exception | None = None
        try:
            await self.link.listen(self.conversation.hear)
            if self.link.is_stale and self.conversation.renew is not None:
                await self.conversation.renew()  # which begins to read anew
        except CallboardError as error:
            failure = error
        finally:
            if self.link.lost:
                failure = ConnectionLost(self.link.lost)
            if failure is not None and self.conversation.on_lost is not None:
                self.conversation.on_lost(failure)


@attrs.define(eq=False)
class _Attendant(Actor[Never]):
    """Looks after all requests on a link together."""

    mailbox = None

    link: Link

    async def run(self) -> None:
        await self.link.attend()


@attrs.define(eq=False)
class Readers:
    """The readers of a client: one after the other, if there is one session after the other."""

    background: Supervisor
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    def attend(self, link: Link) -> None:
        self.background.spawn(_Attendant(link), name=f"attendant-{next(self._names)}")

    def begin(self, conversation: Conversation) -> None:
        # When its client ends the link is closed, and nothing can come any more: no pause before a retry is waited for.
        reader = _Reader(conversation.link, conversation)
        self.background.spawn(reader, name=f"reader-{next(self._names)}", shutdown=0)


@attrs.define(eq=False)
class OutgoingRequests(Actor[Never]):
    """The requests of a client that are on their way, in its tree. They have no tasks: their callers wait for them."""

    mailbox = None

    conversation: Conversation

    async def run(self) -> None:
        await self.wait_stopping()

    def snapshots(self, now: float, most: int = sys.maxsize) -> tuple[Snapshot, ...]:
        return self.conversation.snapshots(self.path, now)


class BaseClient:
    """A conversation with one server, but for what it can be asked to do."""

    _is_manual: ClassVar[bool] = False
    """Whether what the server asks is handed to the caller."""

    def __init__(
        self, conversation: Conversation, agreed: Agreed, readers: Readers, patience: Patience, *, checks_results: bool
    ) -> None:
        self._conversation = conversation
        self._agreed = agreed
        self._patience = patience
        self._catalogue = ListCache(conversation, patience, is_manual=self._is_manual, checks_results=checks_results)
        self._switchboard = ClientSubscriptions(conversation, readers.background, self._catalogue.changed)
        self._readers = readers
        self._renewing = trio.Lock()
        self._renewals = 0
        conversation.on_change, conversation.on_lost, conversation.renew = (
            self._switchboard.changed,
            self._switchboard.lose,
            self._renew,
        )

    # The server.

    @property
    def revision(self) -> Revision:
        """The revision of the protocol that was agreed on."""
        return self._agreed.revision

    @property
    def server_info(self) -> Implementation | None:
        """The server's name as it says itself. Hearsay: for display, never for a decision."""
        return self._agreed.info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        return self._agreed.capabilities

    @property
    def instructions(self) -> str | None:
        """The instructions of the server."""
        return self._agreed.instructions

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be asked any more. Over HTTP that is never so: the next request finds a way, or none."""
        return bool(self._conversation.link.lost)

    @property
    def renewals(self) -> int:
        """How often the server has ended the session, and another was opened in its place."""
        return self._renewals

    @property
    def ignored(self) -> int:
        """Late answers, and messages that could not be read."""
        return self._conversation.link.ignored

    # What there is.

    async def tools(self) -> Sequence[Tool]:
        """All tools, kept as long as the server allows."""
        return await self._catalogue.tools()

    async def resources(self) -> Sequence[Resource]:
        """All resources, kept as long as the server allows."""
        return await self._catalogue.resources()

    async def templates(self) -> Sequence[ResourceTemplate]:
        """All templates of resources, kept as long as the server allows."""
        return await self._catalogue.templates()

    async def prompts(self) -> Sequence[Prompt]:
        """All prompts, kept as long as the server allows."""
        return await self._catalogue.prompts()

    # What to ask.

    async def list_anew(self, what: str = "tools") -> Model:
        """Ask for the first page of the tools (or resources, templates, prompts), past the cache."""
        method = "resources/templates/list" if what == "templates" else f"{what}/list"
        return await self._conversation.request(method, PaginatedRequestParams(), patience=self._patience)

    async def read_anew(self, uri: str) -> ReadResourceResult:
        """Read a resource, past the cache."""
        return await self._ask("resources/read", ReadResourceRequestParams(uri=uri), ReadResourceResult, None)

    async def complete(
        self, of: str, argument: str, value: str, *, settled: Mapping[str, str] | None = None
    ) -> Candidates:
        """Candidates for an argument of a prompt (by name), or of a template (by its text): a list, which says also how
        many there are in all."""
        reference: CompletionReference
        reference = ResourceTemplateReference(uri=of) if "://" in of else PromptReference(name=of)
        params = CompleteRequestParams(
            ref=reference,
            argument=CompletionArgument(name=argument, value=value),
            context=UNSET if settled is None else CompletionContext(arguments=dict(settled)),
        )
        return Candidates((await self._ask("completion/complete", params, CompleteResult, None)).completion)

    async def request(self, method: str, /, *, patience: Patience | None = None, **params: Any) -> JSONObject:
        """Ask for a method that the specification does not have, of an extension. Returns the members of the result.

        Raises ValueError for a method of the specification, and as `call` does.
        """
        if method in METHODS:
            raise ValueError(f"the specification has the method {method!r}: there is a function for it")
        body = {**params, "_meta": dict(self._conversation.said())}
        answer = await self._conversation.send(method, body, patience=self._within(patience))
        if isinstance(answer, ErrorResponse):
            raise ServerRefused(answer.code, answer.message, None if answer.data is UNSET else answer.data)
        found: JSONObject = msgspec.json.decode(write_members(answer.result))
        return found

    async def notify(self, method: str, /, **params: Any) -> None:
        """Send a notification that the specification does not have, of an extension. A server that does not know it
        says nothing.

        Raises ValueError for one of the specification, a name that is not ASCII, or one that is too large, and
        `ConnectionLost`.
        """
        if said := self._conversation.said():
            params["_meta"] = {**params.get("_meta", {}), **said}
        await self._conversation.tell(method, custom_frame(method, params))

    async def ping(self, *, patience: Patience | None = None) -> None:
        """See that the server is there. A modern one is asked about itself: it has no ping."""
        method = self.revision.dialect.probe_method
        await self._conversation.request(method, RequestParams(), patience=self._within(patience))

    async def set_log_level(self, level: LoggingLevel) -> None:
        """How much the server shall log to this client."""
        self._conversation.log_level = level
        if not self.revision.dialect.level_per_request:
            await self._conversation.request(
                "logging/setLevel", SetLevelRequestParams(level=level), patience=self._patience
            )

    async def tell_log_level(self) -> None:
        """Tell a server that is told once per session how much to log. One that cannot log is not told."""
        level = self._conversation.log_level
        is_told_once = not self.revision.dialect.level_per_request
        if level is not None and is_told_once and self._agreed.capabilities.logging is not UNSET:
            await self.set_log_level(level)

    def listen(
        self, *, tools: bool = False, prompts: bool = False, lists: bool = False, resources: Sequence[str] = ()
    ) -> ChangeStream:
        """Hear of changes, one after the other: of the lists of *tools*, *prompts* and resources (*lists*), and of the
        contents of *resources*.

        ```python
        async with client.listen(tools=True, resources=["weather://oslo/now"]) as changes:
            async for change in changes: ...
        ```
        """
        return self._switchboard.listen(tools=tools, prompts=prompts, lists=lists, resources=resources)

    async def _ask(self, method: str, params: Model, _: type[M], patience: Patience | None) -> M:
        return cast("M", await self._conversation.request(method, params, patience=self._within(patience)))

    def _within(self, patience: Patience | None) -> Patience:
        return self._patience if patience is None else patience

    async def _renew(self) -> None:
        """Open a session in place of one that the server has ended. Nothing that was asked is asked again."""
        link = self._conversation.link
        async with self._renewing:
            if not link.is_stale:
                return  # another task did
            is_open = False
            try:
                self._agreed = await agree(self._conversation, self.revision)
                self._catalogue.forget()
                await self.tell_log_level()
                await self._switchboard.begin_again()
                is_open = True
                self._renewals += 1
            finally:
                link.is_stale = not is_open
            self._readers.begin(self._conversation)
            await link.wait_listening()
