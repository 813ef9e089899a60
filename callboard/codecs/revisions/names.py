"""From the names of the official schemas to the types here."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from callboard.codecs.revisions import (
    base,
    calls,
    capabilities,
    content,
    elicitation,
    error_codes,
    inputs,
    lifecycle,
    prompts,
    resources,
    roots,
    sampling,
    subscriptions,
    tasks,
    tools,
)
from callboard.codecs.revisions._read import is_model
from callboard.codecs.revisions.model import JSONObject, JSONValue, Model

_ROOMS: Final = (
    base, calls, capabilities, content, elicitation, error_codes, inputs, lifecycle, prompts, resources, roots,
    sampling, subscriptions, tasks, tools,
)  # fmt: skip

_OTHER_NAMES: Final[Mapping[str, Any]] = {
    "CancelTaskResult": tasks.TaskResult,
    "ContentBlock": content.ContentBlock,
    "Cursor": base.Cursor,
    "ElicitRequestParams": elicitation.ElicitRequestParams,
    "EmptyResult": base.Result,
    "EnumSchema": elicitation.EnumSchema,
    "GetTaskPayloadResult": base.Result,
    "GetTaskResult": tasks.TaskResult,
    "InputRequest": inputs.InputRequest,
    "InputRequests": inputs.InputRequests,
    "InputResponse": inputs.InputResponse,
    "InputResponses": inputs.InputResponses,
    "JSONArray": Sequence[JSONValue],
    "JSONObject": JSONObject,
    "JSONValue": JSONValue,
    "LoggingLevel": base.LoggingLevel,
    "MetaObject": JSONObject,
    "MultiSelectEnumSchema": elicitation.MultiSelectEnumSchema,
    "PrimitiveSchemaDefinition": elicitation.PrimitiveSchemaDefinition,
    "ProgressToken": base.ProgressToken,
    "RequestId": base.RequestId,
    "ResourceReference": calls.ResourceTemplateReference,
    "ResultType": str,
    "Role": base.Role,
    "SamplingMessageContentBlock": content.SamplingContent,
    "SingleSelectEnumSchema": elicitation.SingleSelectEnumSchema,
    "SubscribeRequestParams": calls.ResourceRequestParams,
    "TaskStatus": tasks.TaskStatus,
    "UnsubscribeRequestParams": calls.ResourceRequestParams,
}
"""Official names that are unions or plain values here, or share a class with another name."""

_MODELS: Final[Mapping[str, type[Model]]] = {
    name: found for room in _ROOMS for name, found in vars(room).items() if is_model(found)
}


def model_named(name: str) -> Any:
    """The model, or the type of values, behind an official definition name. Raises `KeyError`."""
    return _OTHER_NAMES.get(name) or _MODELS[name]
