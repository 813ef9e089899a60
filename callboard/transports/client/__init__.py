"""The client's edges: each gives a link to one server."""
