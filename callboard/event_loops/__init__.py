"""Trio and asyncio side by side: each event loop in a thread of its own, and calls from one to the other."""
