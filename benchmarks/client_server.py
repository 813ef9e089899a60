"""The tools of `hosting.py` on PyPI's `mcp` 2, over stdio."""

from hosting_mcp import echo, noop
from mcp.server.mcpserver import MCPServer

if __name__ == "__main__":
    server = MCPServer("bench", log_level="WARNING")
    for tool in (noop, echo):
        server.add_tool(tool, structured_output=False)
    server.run("stdio")
