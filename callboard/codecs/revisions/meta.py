"""`_meta`: the reserved keys in one place, and the syntax that every key must follow."""

import re
from typing import Final

from callboard.codecs.revisions.revision import LATEST, R3, R4, R5, Revision

PREFIX: Final = "io.modelcontextprotocol/"

PROGRESS_TOKEN: Final = "progressToken"  # noqa: S105 - the name of a member, not a secret
PROTOCOL_VERSION: Final = PREFIX + "protocolVersion"
CLIENT_CAPABILITIES: Final = PREFIX + "clientCapabilities"
CLIENT_INFO: Final = PREFIX + "clientInfo"
LOG_LEVEL: Final = PREFIX + "logLevel"
SERVER_INFO: Final = PREFIX + "serverInfo"
SUBSCRIPTION_ID: Final = PREFIX + "subscriptionId"
RELATED_TASK: Final = PREFIX + "related-task"
MODEL_IMMEDIATE_RESPONSE: Final = PREFIX + "model-immediate-response"

TRACE_KEYS: Final = frozenset({"traceparent", "tracestate", "baggage"})
"""W3C trace context: reserved without a prefix, by exception, from 2026-07-28 on."""

_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"(?:(?P<prefix>{_LABEL}(?:\.{_LABEL})*)/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")
_OWN: Final = frozenset({"modelcontextprotocol", "mcp"})


def is_valid_meta_key(key: str) -> bool:
    """Whether *key* follows the syntax: optional dotted prefix closed by a slash, then a name, which may be empty."""
    return _KEY.fullmatch(key) is not None


def is_reserved_meta_key(key: str, revision: Revision = LATEST) -> bool:
    """Whether the specification keeps *key* for itself in *revision*. An invalid key is not reserved."""
    if key == PROGRESS_TOKEN or (revision >= R5 and key in TRACE_KEYS):
        return True
    match = _KEY.fullmatch(key)
    labels = match["prefix"].split(".") if match and match["prefix"] else []
    if revision >= R4:
        return len(labels) > 1 and labels[1] in _OWN
    # 2025-06-18 reserves the word wherever another label follows it; before that nothing was said.
    return revision == R3 and bool(_OWN & set(labels[:-1]))
