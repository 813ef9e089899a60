"""callboard for programs on asyncio: `connect`, as `callboard.connect`, with calls that are awaited on asyncio."""

from callboard.asyncio.client import AsyncioCalling, AsyncioChanges, AsyncioClient, AsyncioTask, connect

__all__ = ["AsyncioCalling", "AsyncioChanges", "AsyncioClient", "AsyncioTask", "connect"]
