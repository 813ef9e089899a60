"""PyPI's `fastmcp` 4 as a proxy of the servers in a file: an application for uvicorn, in its own environment."""

import json
import os
from pathlib import Path
from typing import Any

from fastmcp.server import create_proxy


def app() -> Any:
    """In front of the servers that the file in CALLBOARD_BENCH_SERVERS names."""
    servers = json.loads(Path(os.environ["CALLBOARD_BENCH_SERVERS"]).read_text())
    return create_proxy(servers, name="bench").http_app(json_response=True)
