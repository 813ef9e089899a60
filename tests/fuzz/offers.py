"""What a good server has and says: the values that an odd one spoils."""

from typing import Any, Final, TypeAlias

from callboard.codecs.revisions import MODERN, Revision, meta
from callboard.codecs.revisions.revision import R3, R4

Json: TypeAlias = dict[str, Any]

ICONS: Final = [{"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}]
NOTED: Final = {"audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"}
SCHEMA: Final = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "x-mcp-header": "City"},
        "where": {"type": "object", "properties": {"zone": {"type": "integer", "x-mcp-header": "Zone"}}},
        "all": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/a"}]}},
    },
    "required": ["city"],
    "$defs": {"a": {"minimum": 1}},
}
TOOLS: Final[list[Json]] = [
    {"name": "plain", "inputSchema": {"type": "object"}},
    {
        "name": "full",
        "title": "Full",
        "description": "Has every member there is.",
        "inputSchema": SCHEMA,
        "outputSchema": {"type": "object", "properties": {"n": {"type": "number"}}},
        "annotations": {"title": "F", "readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
        "icons": ICONS,
        "_meta": {"example.com/k": 1},
    },
    {"name": "deferred", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
    {"name": "asks", "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}}},
]
PROMPTS: Final[list[Json]] = [
    {"name": "brief"},
    {
        "name": "long",
        "title": "Long",
        "description": "With arguments.",
        "arguments": [{"name": "a", "title": "A", "description": "first", "required": True}, {"name": "b"}],
        "icons": ICONS,
        "_meta": {},
    },
]
RESOURCES: Final[list[Json]] = [
    {"uri": "notes://one", "name": "one"},
    {
        "uri": "notes://two/2",
        "name": "two",
        "title": "Two",
        "description": "Second.",
        "mimeType": "text/plain",
        "size": 12,
        "annotations": NOTED,
        "icons": ICONS,
        "_meta": {"k": [1]},
    },
]
TEMPLATES: Final[list[Json]] = [
    {"uriTemplate": "notes://by/{name}", "name": "by"},
    {
        "uriTemplate": "files://{+path}{?version}",
        "name": "files",
        "title": "Files",
        "description": "All.",
        "mimeType": "text/plain",
        "annotations": NOTED,
    },
]
LISTS: Final[dict[str, tuple[str, list[Json]]]] = {
    "tools/list": ("tools", TOOLS),
    "prompts/list": ("prompts", PROMPTS),
    "resources/list": ("resources", RESOURCES),
    "resources/templates/list": ("resourceTemplates", TEMPLATES),
}
OLD_CONTENT: Final[list[Json]] = [
    {"type": "text", "text": "hello", "annotations": {"audience": ["user"], "priority": 1}},
    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    {"type": "resource", "resource": {"uri": "notes://one", "text": "one", "mimeType": "text/plain"}},
    {"type": "resource", "resource": {"uri": "notes://one", "blob": "aGk="}},
]
CONTENT: Final[list[Json]] = [
    *OLD_CONTENT,
    {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "notes://two/2", "name": "two", "icons": ICONS, "_meta": {}},
]
FORM: Final = {
    "mode": "form",
    "message": "Who?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "age": {"type": "integer", "minimum": 0},
            "sure": {"type": "boolean", "default": False},
            "one": {"type": "string", "enum": ["a", "b"]},
        },
        "required": ["name"],
    },
}
PAGE: Final = {"mode": "url", "message": "Go there", "url": "https://example.com/in", "elicitationId": "e-1"}
SAMPLE: Final = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
    "maxTokens": 10,
    "systemPrompt": "Be brief.",
    "modelPreferences": {"hints": [{"name": "small"}], "costPriority": 0.5},
    "temperature": 0.5,
    "stopSequences": ["."],
}
QUESTIONS: Final[list[tuple[str, Json]]] = [
    ("elicitation/create", FORM),
    ("elicitation/create", PAGE),
    ("sampling/createMessage", SAMPLE),
    ("roots/list", {}),
    ("ping", {}),
    ("unknown/question", {"a": 1}),
]
TASK: Final = {
    "taskId": "t-1",
    "status": "working",
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00Z",
    "ttl": 60000,
    "pollInterval": 100,
}
HAS: Final[Json] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}
INFO: Final = {"name": "odd", "version": "1", "title": "Odd", "icons": ICONS, "websiteUrl": "https://example.com"}
CACHED: Final = {"ttlMs": 0, "cacheScope": "private"}


def capabilities(revision: Revision) -> Json:
    return HAS if revision != R4 else {**HAS, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


def answer(revision: Revision, method: str, params: Json, pick: int) -> Json | None:
    """A good result for a request, *pick* of several; None for a method that the revision has no answer to."""
    if method == "initialize" and revision not in MODERN:
        return {"protocolVersion": revision.value, "capabilities": capabilities(revision), "serverInfo": INFO}
    if method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        return {}
    modern = {"resultType": "complete"} if revision in MODERN else {}
    cached = {**modern, **(CACHED if modern else {})}
    if method == "server/discover" and modern:
        said = {meta.SERVER_INFO: INFO} if pick % 2 else {}
        return {
            "supportedVersions": [revision.value],
            "capabilities": HAS,
            "instructions": "odd",
            "_meta": said,
            **cached,
        }
    if method in LISTS:
        member, entries = LISTS[method]
        return {member: entries, **cached}
    if method == "resources/read":
        uri = params.get("uri", "notes://one")
        return {"contents": [{"uri": uri, "text": "one"}, {"uri": uri, "blob": "aGk=", "mimeType": "a/b"}], **cached}
    results: dict[str, Json] = {
        "tools/call": _called(revision, params, pick),
        "prompts/get": {"description": "d", "messages": [{"role": "user", "content": OLD_CONTENT[pick % 4]}]},
        "completion/complete": {"completion": {"values": ["a", "b"], "total": 2, "hasMore": False}},
        "tasks/get": {**TASK, "status": ("working", "completed", "failed", "input_required", "cancelled")[pick % 5]},
        "tasks/result": {"content": CONTENT[:1], "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "t-1"}}},
        "tasks/list": {"tasks": [TASK]},
        "tasks/cancel": {**TASK, "status": "cancelled"},
    }
    return {**modern, **results[method]} if method in results else None


def _called(revision: Revision, params: Json, pick: int) -> Json:
    content = CONTENT if revision >= R3 else OLD_CONTENT
    found: Json = {"content": [content[pick % len(content)]]}
    if pick % 3 == 0 and revision >= R3:
        found["structuredContent"] = {"n": 1.5}
    if pick % 5 == 0:
        found["isError"] = True
    if revision == R4 and "task" in params:
        return {"task": TASK}
    return found


def asks_first(pick: int) -> Json:
    """A result of the modern era that asks for more."""
    chosen = QUESTIONS[pick % 4 : pick % 4 + 1 + pick % 2]
    asked = {f"q{n}": {"method": method, "params": params} for n, (method, params) in enumerate(chosen)}
    return {"resultType": "input_required", "inputRequests": asked, "requestState": "state"}


def notifications(subscription: object, token: object) -> list[tuple[str, Json]]:
    """What a server may say unasked, about a subscription and a request that it knows."""
    about: Json = {} if subscription is None else {"_meta": {meta.SUBSCRIPTION_ID: subscription}}
    return [
        *((f"notifications/{kind}/list_changed", about) for kind in ("tools", "prompts", "resources")),
        ("notifications/resources/updated", {"uri": "notes://one", **about}),
        ("notifications/resources/updated", {"uri": "notes://two/2/below", **about}),
        ("notifications/progress", {"progressToken": token, "progress": 1, "total": 3, "message": "on"}),
        ("notifications/message", {"level": "info", "logger": "odd", "data": {"text": "hello"}}),
        ("notifications/cancelled", {"requestId": "q1", "reason": "no longer needed"}),
        ("notifications/subscriptions/acknowledged", {"notifications": {"toolsListChanged": True}, **about}),
        ("notifications/elicitation/complete", {"elicitationId": "e-1"}),
        ("notifications/tasks/status", TASK),
        ("notifications/unknown", {"a": [1]}),
    ]
