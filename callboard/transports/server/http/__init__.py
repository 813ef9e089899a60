"""The HTTP edge: one endpoint, and two HTTP engines in front of it."""
