"""WebSocket: one message per text frame, both eras, and sessions that outlive their sockets."""
