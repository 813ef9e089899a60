"""The side that calls: a connection to a server, the handshake, requests and answers."""
