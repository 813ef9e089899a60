"""hypercorn's HTTP/2 protocol, with the one thing changed that a client could break it by.

Its import takes a third of a second, so only a listener with HTTP/2 imports it.
"""

from contextlib import suppress
from typing import Any

from h2.errors import ErrorCodes
from h2.events import DataReceived, Event
from h2.exceptions import ProtocolError
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

__all__ = ["Closed", "Http2Protocol", "RawData", "TaskGroup", "Updated", "WorkerContext", "configured"]


def configured(max_streams: int, max_header: int) -> Config:
    """Settings for hypercorn. Its other settings are for listeners and workers, which are not used here."""
    config = Config()
    config.accesslog = config.errorlog = None
    config.include_server_header = config.include_date_header = False
    config.h2_max_concurrent_streams = max_streams
    config.h2_max_header_list_size = max_header
    return config


class Http2Protocol(H2Protocol):
    """Data for a request that was answered already ends that request's stream, and not the connection."""

    @classmethod
    def of(
        cls, app: Any, config: Config, context: Any, group: TaskGroup, send: Any, *, is_tls: bool
    ) -> "Http2Protocol":
        return cls(ASGIWrapper(app), config, context, group, ConnectionState({}), is_tls, None, None, send)

    async def _handle_events(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, DataReceived) and event.stream_id not in self.streams:
                with suppress(ProtocolError):
                    self.connection.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
                    self.connection.reset_stream(event.stream_id, ErrorCodes.NO_ERROR)
            else:
                await super()._handle_events([event])
        await self._flush()
