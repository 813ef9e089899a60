"""What callboard hosts in `growth.py`: as many tools as it is told, all alike, and one that takes a text.

CALLBOARD_BENCH_TOOLS=500 callboard run benchmarks/growth_app.py:server --http 0 --json
"""

import os

from callboard import Server

server = Server("growth")


@server.tool
async def length(text: str) -> str:
    """Say how long it is: an answer may not be as large as a request."""
    return f"{len(text)} characters"


for number in range(int(os.environ.get("CALLBOARD_BENCH_TOOLS", "1"))):

    @server.tool(name=f"noop{number}")
    async def noop() -> str:
        """Do nothing."""
        return "ok"
