"""hypercorn's HTTP/2 protocol, with the one thing changed that a client could break it by."""

from contextlib import suppress

from h2.errors import ErrorCodes
from h2.events import DataReceived, Event
from h2.exceptions import ProtocolError
from hypercorn.protocol.h2 import H2Protocol


class Http2Protocol(H2Protocol):
    """Data for a request that was answered already ends that request's stream, and not the connection."""

    async def _handle_events(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, DataReceived) and event.stream_id not in self.streams:
                with suppress(ProtocolError):
                    self.connection.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
                    self.connection.reset_stream(event.stream_id, ErrorCodes.NO_ERROR)
            else:
                await super()._handle_events([event])
        await self._flush()
