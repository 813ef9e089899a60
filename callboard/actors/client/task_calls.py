"""Calls that may become tasks, and requests about those: as a client makes them."""

from collections.abc import Mapping
from typing import Any, Final, cast

import attrs
import trio
from msgspec import UNSET, Raw

from callboard.actors.client.conversation import MAX_ROUNDS, PATIENT, ROUNDS_TIME, Conversation, Patience
from callboard.actors.client.hearer import NOBODY, NotificationHandler, OnProgress
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.codecs.envelope import ErrorResponse
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.members import Members, raw
from callboard.codecs.revisions import (
    CallToolRequestParams,
    ClientCapabilities,
    InputRequiredResult,
    Model,
    TaskMetadata,
    meta,
    write,
)
from callboard.codecs.tasks import TaskView, created_task
from callboard.errors import ServerRefused, TooManyRounds

MAX_WAIT: Final = 10 * 365 * 86_400.0
"""Seconds that a server of 2025-11-25 may take for the outcome of a task: its own `ttl` ends it."""


def able(capabilities: ClientCapabilities) -> ClientCapabilities:
    """*capabilities*, with the extension of tasks."""
    known = {} if capabilities.extensions is UNSET else capabilities.extensions
    return attrs.evolve(capabilities, extensions={**known, EXTENSION: known.get(EXTENSION, {})})


def said_able(conversation: Conversation) -> dict[str, Any]:
    """The `_meta` of a request that is about a task, or may become one: it declares the extension, this one alone."""
    said: dict[str, Any] = dict(conversation.said())
    if meta.CLIENT_CAPABILITIES in said:
        said[meta.CLIENT_CAPABILITIES] = raw(write(conversation.revision, able(conversation.capabilities)))
    return said


async def call_as_task(
    conversation: Conversation,
    params: CallToolRequestParams,
    *,
    ttl: float | None = None,
    patience: Patience = PATIENT,
    on_progress: OnProgress | None = None,
    header_map: HeaderMap = NO_HEADERS,
) -> Model | TaskView:
    """Call a tool in such a way that it may become a task, and answer what the server wants to know before.

    Raises as `Conversation.request` does.
    """
    hearer = NOBODY if on_progress is None else NotificationHandler(on_progress=on_progress)
    until = trio.current_time() + ROUNDS_TIME
    if conversation.revision.dialect.has_tasks:
        wish = TaskMetadata() if ttl is None else TaskMetadata(ttl=round(ttl * 1000))
        params = attrs.evolve(params, task=wish)
    for _ in range(MAX_ROUNDS):
        body = conversation.body("tools/call", params)
        body["_meta"] = {**body.get("_meta", {}), **said_able(conversation)}
        answer = await conversation.send("tools/call", body, patience=patience, hearer=hearer, header_map=header_map)
        if not isinstance(answer, ErrorResponse):
            begun = created_task(conversation.revision, answer.result)
            if begun is not None:
                return begun
        result = conversation.read("tools/call", answer)
        if not isinstance(result, InputRequiredResult):
            return result
        params = cast("CallToolRequestParams", await conversation.retry_of(params, result, until))
    raise TooManyRounds(rounds=MAX_ROUNDS)


async def ask_about(
    conversation: Conversation, method: str, task_id: str, patience: Patience, more: Mapping[str, Any] | None = None
) -> Members:
    """Ask about a task. Raises `ServerRefused`, and what the link raises."""
    body: dict[str, Any] = {"taskId": task_id, **(more or {})}
    said = said_able(conversation)
    if said:
        body["_meta"] = said
    answer = await conversation.send(method, body, patience=patience, wants_progress=False)
    if isinstance(answer, ErrorResponse):
        raise ServerRefused(answer.code, answer.message, None if answer.data is UNSET else answer.data)
    return cast("dict[str, Raw]", answer.result)
