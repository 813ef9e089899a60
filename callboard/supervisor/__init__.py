"""What an actor is: mailbox, address, life cycle, supervision tree. Knows nothing of MCP."""
