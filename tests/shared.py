"""The protocol reference that lies beside a checkout: official schemas, examples, the seeds' messages.

A user's clone has no such folder, and the tests that need it skip there with this reason. CI has it, so a
missing one is a failure there and never a quiet skip.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""
APPS = ROOT / "tests" / "apps"
"""Servers that tests start as a process."""
PROTOCOL = ROOT.parent / "shared" / "protocol"
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

needs_protocol = pytest.mark.skipif(
    not PROTOCOL.is_dir() and not IN_CI,
    reason="the protocol reference (../shared/protocol) is not beside this checkout",
)


def load(*parts: str) -> Any:
    """The JSON value of a file below the protocol reference."""
    return json.loads(PROTOCOL.joinpath(*parts).read_text(encoding="utf-8"))


def paths(*parts: str, pattern: str = "*.json") -> list[Path]:
    """Files below a folder of the reference, in a stable order; empty on a machine without it."""
    return sorted(PROTOCOL.joinpath(*parts).rglob(pattern))
