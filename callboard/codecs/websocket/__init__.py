"""WebSocket, sans-IO: the handshake, the frames, and which messages are kept for a peer that comes back."""
