"""The server of examples/everything.py, and a client that answers whatever it asks."""

import importlib.util
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from callboard import Revision, Server
from callboard.codecs.revisions.revision import LATEST, R3, R4
from callboard.testing import Peer
from tests import by_the_book
from tests.shared import ROOT

EXAMPLE = ROOT / "examples" / "everything.py"
EVERY = pytest.mark.parametrize("revision", list(Revision), ids=str)
LEGACY = pytest.mark.parametrize("revision", [r for r in Revision if r < LATEST], ids=str)
WITH_FORMS = pytest.mark.parametrize("revision", [r for r in Revision if r >= R3], ids=str)
WITH_CHOICES = pytest.mark.parametrize("revision", [r for r in Revision if r >= R4], ids=str)

TOOLS = {
    *("test_simple_text", "test_image_content", "test_audio_content", "test_embedded_resource"),
    *("test_multiple_content_types", "test_tool_with_logging", "test_tool_with_progress", "test_error_handling"),
    *("test_sampling", "test_elicitation", "test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums"),
    *("json_schema_2020_12_tool", "test_x_mcp_header", "test_missing_capability", "test_streaming_elicitation"),
    *("test_logging_tool", "test_trigger_tool_change", "test_trigger_prompt_change", "test_reconnection"),
    *("test_input_required_result_elicitation", "test_input_required_result_sampling"),
    *("test_input_required_result_list_roots", "test_input_required_result_request_state"),
    *("test_input_required_result_multiple_inputs", "test_input_required_result_multi_round"),
    *("test_input_required_result_tampered_state", "test_input_required_result_capabilities"),
    *("greet", "slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input"),
    "test_tool_with_task",
}
"""What the suite calls by name, and one with a mirrored header."""

Json = dict[str, Any]


def load_server() -> Server:
    spec = importlib.util.spec_from_file_location("everything", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server: Server = module.server
    return server


server = load_server()


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


SAMPLED = {"role": "assistant", "model": "m-1", "content": {"type": "text", "text": "Paris"}}
ROOTS = {"roots": [{"uri": "file:///test/root", "name": "Test Root"}]}
ACCOUNT = accept(username="ada", email="ada@example.com")
ANSWERS = {
    "elicitation/create": lambda params: ACCOUNT,
    "sampling/createMessage": lambda params: SAMPLED,
    "roots/list": lambda params: ROOTS,
}


def connect(revision: Revision = LATEST, **options: Any) -> AbstractAsyncContextManager[Peer]:
    return by_the_book.connect(server, revision, **{"answers": ANSWERS, **options})


def text(result: Json) -> str:
    (block,) = result["content"]
    assert block["type"] == "text"
    words: str = block["text"]
    return words
