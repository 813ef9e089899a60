"""Load for any MCP server: what is asked of it, how fast, and what came of it."""
