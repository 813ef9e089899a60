"""The HTTP edge: one endpoint, and two doors that move its bytes."""
