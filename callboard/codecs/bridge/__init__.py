"""Translation of messages between client and backend: pure functions, one for each kind of message."""
