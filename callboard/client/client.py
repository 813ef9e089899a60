"""The client API: the same calls to any server, of any revision, over any transport."""

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, Never, TypedDict, TypeVar, Unpack, cast, overload

import attrs
import trio
from msgspec import UNSET

from callboard import tree
from callboard._version import __version__
from callboard.actors.client.answerer import Answer, Answering
from callboard.actors.client.conversation import PATIENT, Conversation, Patience
from callboard.actors.client.hearer import OnLog, OnProgress
from callboard.actors.client.link import Link
from callboard.client.base import BaseClient, OutgoingRequests, Readers, check_by_name
from callboard.client.call import Calling
from callboard.client.callbacks import Elicitation, Roots, Sampling, answers_of, capabilities_of
from callboard.client.connect import Connector
from callboard.client.extensions import ClientExtensions, Extensions
from callboard.client.manual import ManualClient
from callboard.client.routes import ClientAccess, Target, ways_to
from callboard.client.tasks import ClientTasks, TaskHandle
from callboard.codecs.revisions import (
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    GetPromptRequestParams,
    GetPromptResult,
    Implementation,
    JSONObject,
    LoggingLevel,
    ReadResourceRequestParams,
    ReadResourceResult,
    Revision,
)
from callboard.codecs.tasks import TaskView
from callboard.errors import HttpRefused, ServerRefused
from callboard.supervisor import open_tree
from callboard.transports.client.credentials import Auth
from callboard.transports.client.process import OnStderr

if TYPE_CHECKING:
    from callboard.client.skills import LoadedSkill
    from callboard.codecs.skills import SkillEntry

C = TypeVar("C", bound=BaseClient)

THIS: Final = Implementation(name="callboard", version=__version__)


class Client(BaseClient):
    """A conversation with one server. Make it with `connect`."""

    @overload
    def call(
        self, tool: str, /, *, patience: Patience | None = None, task: Literal[True], **arguments: Any
    ) -> Calling[TaskHandle]: ...

    @overload
    def call(self, tool: str, /, *, patience: Patience | None = None, **arguments: Any) -> Calling[CallToolResult]: ...

    def call(
        self, tool: str, /, *given: Never, patience: Patience | None = None, task: Any = UNSET, **arguments: Any
    ) -> Calling[CallToolResult] | Calling[TaskHandle]:
        """Call a tool: awaited it is the result, entered it also tells of progress.

        The end of the block waits for the result. Leaving it by an exception, a cancelled scope or `cancel` cancels the
        call at the server. With `task=True` it may go on as a task, and is a `TaskHandle` as soon as the server has
        begun with it. (A tool with an argument of that name: `call_with`.)
        """
        check_by_name("call", given)
        if task is True:
            return self.call_with(tool, arguments, patience=patience, task=True)
        named = arguments if task is UNSET else {**arguments, "task": task}
        return self.call_with(tool, named, patience=patience)

    @overload
    def call_with(
        self, tool: str, arguments: Mapping[str, Any], *, patience: Patience | None = None, task: Literal[True]
    ) -> Calling[TaskHandle]: ...

    @overload
    def call_with(
        self, tool: str, arguments: Mapping[str, Any], *, patience: Patience | None = None
    ) -> Calling[CallToolResult]: ...

    def call_with(
        self, tool: str, arguments: Mapping[str, Any], *, patience: Patience | None = None, task: bool = False
    ) -> Calling[CallToolResult] | Calling[TaskHandle]:
        """As `call`, for arguments that are no Python names, or come as they are."""
        params = CallToolRequestParams(name=tool, arguments=dict(arguments))
        within = self._within(patience)

        async def ask(on_progress: OnProgress | None) -> CallToolResult:
            return await self._call(params, within, on_progress)

        async def begin(on_progress: OnProgress | None) -> TaskHandle:
            return await self._tasks.begin(params, patience=within, on_progress=on_progress)

        return Calling(begin) if task else Calling(ask)

    async def _call(
        self, params: CallToolRequestParams, patience: Patience, on_progress: OnProgress | None
    ) -> CallToolResult:
        """Call a tool. What its server takes only as a task is seen through as one."""
        if not self._tasks.must_begin(self._conversation.capabilities):
            try:
                return cast("CallToolResult", await self._catalogue.call(params, patience, on_progress))
            except (ServerRefused, HttpRefused) as refused:
                if not self._tasks.is_wanted(refused):
                    raise
        task = await self._tasks.begin(params, patience=patience, on_progress=on_progress)
        return await task.see_through()

    def task(self, task_id: str) -> TaskHandle:
        """The handle of a task that is known by its id. Nothing is asked yet: `refresh` does that."""
        return TaskHandle(self._tasks, None, TaskView(task_id, "working"))

    @property
    def _tasks(self) -> ClientTasks:
        return ClientTasks(self._conversation, self._catalogue, self._patience, self._agreed.capabilities)

    async def read(self, uri: str, *, patience: Patience | None = None) -> ReadResourceResult:
        """Read a resource, kept as long as the server allows."""
        params = ReadResourceRequestParams(uri=uri)
        return cast("ReadResourceResult", await self._catalogue.read(params, self._within(patience)))

    async def prompt(
        self, name: str, /, *given: Never, patience: Patience | None = None, **arguments: str
    ) -> GetPromptResult:
        """Get a prompt."""
        check_by_name("prompt", given)
        return await self.prompt_with(name, arguments, patience=patience)

    async def prompt_with(
        self, name: str, arguments: Mapping[str, str], *, patience: Patience | None = None
    ) -> GetPromptResult:
        """As `prompt`, for arguments that are no Python names, or come as they are."""
        params = GetPromptRequestParams(name=name, arguments=dict(arguments) or UNSET)
        return cast("GetPromptResult", await self._catalogue.prompt(params, self._within(patience)))

    async def skills(self) -> "Sequence[SkillEntry]":
        """The skills that the server lists. None of their files is read."""
        from callboard.client.skills import listed_skills  # with a parser of YAML, which most clients do not need

        return await listed_skills(self._conversation, self._patience)

    async def skill(self, of: "SkillEntry | str") -> "LoadedSkill":
        """Read the SKILL.md of a skill, by its entry or URI. Raises `BadSkill` if it is not what the entry says."""
        from callboard.client.skills import load_skill

        return await load_skill(self._conversation, of, self._patience)


class Common(TypedDict, total=False):
    """Options of `connect`, with or without callbacks."""

    sampling: Sampling | None
    elicitation: Elicitation | None
    roots: Roots | None
    revision: Revision | str | None
    info: Implementation
    log_level: LoggingLevel | None
    on_log: OnLog | None
    patience: Patience
    headers: Mapping[str, str] | None
    tls: ssl.SSLContext | None
    auth: Auth | None
    on_stderr: OnStderr | None
    check_results: bool
    extensions: Extensions | None
    experimental: Mapping[str, JSONObject] | None


@overload
def connect(
    target: Target, *, input: Literal["answer"] = "answer", **common: Unpack[Common]
) -> AbstractAsyncContextManager[Client]: ...


@overload
def connect(
    target: Target,
    *,
    input: Literal["manual"],
    capabilities: ClientCapabilities | None = None,
    **common: Unpack[Common],
) -> AbstractAsyncContextManager[ManualClient]: ...


def connect(
    target: Target,
    *,
    sampling: Sampling | None = None,
    elicitation: Elicitation | None = None,
    roots: Roots | None = None,
    input: Literal["answer", "manual"] = "answer",
    capabilities: ClientCapabilities | None = None,
    revision: Revision | str | None = None,
    info: Implementation = THIS,
    log_level: LoggingLevel | None = None,
    on_log: OnLog | None = None,
    patience: Patience = PATIENT,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    auth: Auth | None = None,
    on_stderr: OnStderr | None = None,
    check_results: bool = True,
    extensions: Extensions | None = None,
    experimental: Mapping[str, JSONObject] | None = None,
) -> AbstractAsyncContextManager[Client] | AbstractAsyncContextManager[ManualClient]:
    """Connect to an MCP server: a URL, a command (a list), `FILE.py:NAME`, `FILE.json#NAME`, or a `Server`.

    *sampling*, *elicitation* and *roots* answer what the server asks, in the way of its revision. With
    `input="manual"` a modern server's questions are handed to the caller, as `Asked`, and *capabilities* says what
    may be asked; without it, what there are functions for. *revision* insists on one; otherwise it is the newest that
    both speak. *headers* go with every HTTP request, and *tls* says which certificates are believed. *auth* (from
    `callboard.oauth`) is asked when a server over HTTP wants authorization. With *check_results* off a tool's
    results are taken as they come, and its list is not fetched to know what it promises. *extensions* (their settings
    by id, or `Extension` objects with functions that hear what the server says) and *experimental* are declared to the
    server; `Client.request` and `Client.notify` use their methods and notifications.

    Raises `CannotConnect` or `NotAuthorized` with the reason, in one line.
    """
    if input not in ("answer", "manual"):
        raise ValueError(f"invalid input={input!r}: expected 'answer' or 'manual'")
    if capabilities is not None and input == "answer":
        raise ValueError("capabilities= is only for input='manual'; otherwise the callbacks declare them")
    declared = capabilities or capabilities_of(sampling, elicitation, roots)
    extended = ClientExtensions.of(extensions)
    if extended.settings:
        declared = attrs.evolve(declared, extensions=extended.settings)
    if experimental:
        declared = attrs.evolve(declared, experimental=dict(experimental))
    said = _Said(
        answers=answers_of(sampling, elicitation, roots),
        capabilities=declared,
        info=info,
        log_level=log_level,
        on_log=on_log,
        extensions=extended,
    )
    access = ClientAccess(headers=headers or {}, tls=tls, auth=auth, on_stderr=on_stderr)
    wanted = None if revision is None else Revision(revision)
    if input == "manual":
        return _connected(ManualClient, target, access, said, wanted, patience, checks_results=check_results)
    return _connected(Client, target, access, said, wanted, patience, checks_results=check_results)


@attrs.frozen(kw_only=True)
class _Said:
    """The client's information for the server, and its callbacks."""

    answers: Mapping[str, Answer]
    capabilities: ClientCapabilities
    info: Implementation
    log_level: LoggingLevel | None
    on_log: OnLog | None
    extensions: ClientExtensions


@asynccontextmanager
async def _connected(
    kind: type[C],
    target: Target,
    access: ClientAccess,
    said: _Said,
    wanted: Revision | None,
    patience: Patience,
    *,
    checks_results: bool,
) -> AsyncIterator[C]:
    if not trio.lowlevel.in_trio_run():
        raise RuntimeError("callboard.connect runs on Trio: use trio.run(), or on asyncio callboard.asyncio.connect")
    ways = ways_to(target, access)
    async with open_tree(tree.client()) as root, AsyncExitStack() as stack:
        answering = Answering(said.answers, root.supervisor_of(tree.ANSWERS), added=said.extensions.answers)
        readers = Readers(root.supervisor_of(tree.BACKGROUND))

        def begin(link: Link) -> Conversation:
            conversation = Conversation(
                link, answering, said.info, said.capabilities, said.log_level, on_log=said.on_log
            )
            conversation.on_added = said.extensions.on_added
            if link.is_http:
                readers.attend(link)
            else:
                readers.begin(conversation)
            return conversation

        conversation, agreed = await Connector(ways, begin, stack).meet(wanted)
        client = kind(conversation, agreed, readers, patience, checks_results=checks_results)
        root.spawn(OutgoingRequests(conversation), name="requests", shutdown=0)
        if conversation.link.is_http:
            readers.begin(conversation)
        try:
            if conversation.link.is_http and agreed.revision.dialect.has_sessions:
                await conversation.link.wait_listening()
            await client.tell_log_level()
            yield client
        finally:
            with trio.CancelScope(shield=True):  # bounded by the link
                await conversation.link.aclose()
