"""Every example runs, and says what it should."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SAYS = {
    "actors.py": ["before the crash: 5", "after the restart: 0", "cannot count backwards"],
    "app.py": ["page: {'resourceUri': 'ui://dice/view'}", "type: text/html;profile=mcp-app"],
    "beside_others.py": ["Hello Ada!", "echo: HELLO"],
    "extension.py": ["Clouds over: It rains\nIt rains: sad"],
    "everything.py": ["35 tools, the first of which says: This is a simple text response for testing."],
    "mounted.py": ["tool: Welcome, Ada!", "page: Ada"],
    "traced.py": ["\ntools/call forecast\n  look out of the window\n"],
    "weather.py": ["3 days: [20, 19, 18]", "15 days: [20, 19, 18]", "Sunny in oslo."],
    "forward.py": ['weather b\'{"jsonrpc":"2.0","id":7', '"name":"now"', "-32600 duplicate key"],
}


OF_A_RECORDING = "which_tools.py"
"""Takes the file of a recorded session: `tests/serve/test_recording.py` runs it with one."""


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != OF_A_RECORDING))
def test_an_example_runs_and_says_what_it_should(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=EXAMPLES,
        env={**os.environ, "SPANS": str(tmp_path / "spans.jsonl")},
    )
    assert all(line in done.stdout for line in SAYS[name]), done.stdout
