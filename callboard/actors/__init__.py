"""MCP behaviour as actors. Uses `codecs` and `supervisor`, never a transport."""
