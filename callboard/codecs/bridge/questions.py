"""Questions of a server on their way to a client, and the answers back: BRIDGING.md, section 5.1, as functions."""

from collections.abc import Sequence
from typing import Any, TypeVar

import attrs
from msgspec import UNSET

from callboard.codecs.revisions import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ListRootsRequestParams,
    Model,
    Revision,
    SamplingMessage,
    TextContent,
)
from callboard.codecs.revisions.elicitation import (
    LegacyTitledEnumSchema,
    MultiSelectSchema,
    PrimitiveSchemaDefinition,
    TitledSingleSelectEnumSchema,
)

T = TypeVar("T", bound=Model)


class NotExpressible(Exception):
    """The client's revision has no words for this question: it is answered in the client's place."""


def front_question(revision: Revision, params: Model, elicitation_id: str) -> Model:
    """A question for the client, in its *revision*. *elicitation_id* is for a question that needs an id of the broker.

    Raises `NotExpressible`.
    """
    match params:
        case ElicitRequestFormParams():
            return _form(revision, params)
        case ElicitRequestURLParams():
            ours = elicitation_id if revision.dialect.has_elicitation_ids else UNSET
            return attrs.evolve(params, elicitation_id=ours, task=UNSET, meta=UNSET)
        case CreateMessageRequestParams():
            return _sampling(revision, params)
        case ListRootsRequestParams():
            return ListRootsRequestParams()
    raise NotExpressible


def _form(revision: Revision, params: ElicitRequestFormParams) -> Model:
    params = attrs.evolve(params, task=UNSET, meta=UNSET)
    if revision.dialect.has_elicitation_modes:
        return attrs.evolve(params, mode="form")
    schema = params.requested_schema
    properties = {name: _older(shape) for name, shape in schema.properties.items()}
    return attrs.evolve(params, mode=UNSET, requested_schema=attrs.evolve(schema, properties=properties))


def _older(shape: PrimitiveSchemaDefinition) -> PrimitiveSchemaDefinition:
    if isinstance(shape, MultiSelectSchema):
        raise NotExpressible
    if not isinstance(shape, TitledSingleSelectEnumSchema):
        return shape
    return LegacyTitledEnumSchema(
        title=shape.title,
        description=shape.description,
        enum=[value.const for value in shape.one_of],
        enum_names=[value.title for value in shape.one_of],
    )


def _sampling(revision: Revision, params: CreateMessageRequestParams) -> Model:
    params = attrs.evolve(params, task=UNSET, meta=UNSET)
    if revision.dialect.samples_many_blocks:
        return params
    messages = [apart for message in params.messages for apart in _apart(message)]
    if not revision.dialect.has_audio and any(isinstance(message.content, AudioContent) for message in messages):
        raise NotExpressible
    return attrs.evolve(params, messages=messages)


def _apart(message: SamplingMessage) -> Sequence[SamplingMessage]:
    """One message for each block, said by the same."""
    if not isinstance(message.content, Sequence):
        return [message]
    return [attrs.evolve(message, content=block) for block in message.content]


def back_answer(revision: Revision, answer: Model) -> Model:
    """The client's answer, in words that the server's *revision* has."""
    if not isinstance(answer, CreateMessageResult) or not isinstance(answer.content, Sequence):
        return answer
    if revision.dialect.samples_many_blocks:
        return answer
    blocks: Sequence[Any] = answer.content
    if len(blocks) == 1:
        return attrs.evolve(answer, content=blocks[0])
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    return attrs.evolve(answer, content=TextContent(text="\n".join(texts)))
