"""The edges: the only rooms that touch the outside."""
