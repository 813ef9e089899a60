"""The `Mcp-*` headers of HTTP that mirror parts of a request: which there are, how their values are written."""
