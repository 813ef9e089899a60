"""Keys of `_meta`: their syntax, and which the specification keeps for itself."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.bridge.definitions import FLAGS, STALE
from callboard.codecs.bridge.results import BACKEND
from callboard.codecs.revisions import meta
from callboard.codecs.revisions.meta import is_reserved_meta_key, is_valid_meta_key
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5, Revision
from callboard.codecs.websocket.client import SESSION_KEY


@pytest.mark.parametrize(
    "key",
    ["", "a", "a.b_c-d", "0", "com.example/", "com.example/x", "io.modelcontextprotocol/related-task", "a/b",
     "a-b.c1/x", meta.PROTOCOL_VERSION, meta.SUBSCRIPTION_ID, "progressToken"],
)  # fmt: skip
def test_valid_keys(key: str) -> None:
    assert is_valid_meta_key(key)


@pytest.mark.requirement("M041", "M042", "L011")
@pytest.mark.parametrize(
    "key",
    ["-a", "a-", "_a", "a.", "/x", "a//x", "a/b/c", "1a/x", "a-/x", ".a/x", "a./x", "a..b/x", "ä", "a b",
     "a\n", "com.example/-"],
)  # fmt: skip
def test_invalid_keys(key: str) -> None:
    assert not is_valid_meta_key(key)


@pytest.mark.parametrize(
    ("key", "revisions"),
    [
        ("progressToken", {R1, R2, R3, R4, R5}),
        ("traceparent", {R5}),
        ("tracestate", {R5}),
        ("baggage", {R5}),
        ("io.modelcontextprotocol/x", {R4, R5}),
        ("dev.mcp/x", {R4, R5}),
        ("org.modelcontextprotocol.api/", {R3, R4, R5}),
        ("mcp.dev/x", {R3}),
        ("modelcontextprotocol.io/x", {R3}),
        ("com.example.mcp/x", set[Revision]()),
        ("com.mcpx/x", set[Revision]()),
        ("mcp", set[Revision]()),
        ("mcp/x", set[Revision]()),
        ("io.modelcontextprotocol/-bad", set[Revision]()),
    ],
)
def test_reserved_keys_by_revision(key: str, revisions: set[Revision]) -> None:
    assert {revision for revision in Revision if is_reserved_meta_key(key, revision)} == revisions


@given(st.from_regex(re.compile(r"([a-z][a-z0-9]*(\.[a-z][a-z0-9]*)*/)?[A-Za-z0-9]*"), fullmatch=True))
def test_every_key_of_plain_labels_is_valid(key: str) -> None:
    assert is_valid_meta_key(key)


@given(st.text())
def test_no_text_breaks_the_checks(key: str) -> None:
    assert is_reserved_meta_key(key) <= is_valid_meta_key(key)


@pytest.mark.finding("protocol-1.12n")
@pytest.mark.parametrize("key", [BACKEND, STALE, FLAGS, SESSION_KEY])
def test_our_own_keys_are_reverse_names_of_the_dns(key: str) -> None:
    assert is_valid_meta_key(key)
    assert key.startswith("dev.callboard/")
