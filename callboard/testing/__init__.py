"""Scripted peers and faulty streams, for callboard's tests and for yours.

```python
async with connect(server) as client:
    result = await client.call("forecast", city="Oslo")
```

With Trio's `autojump_clock` a wait of minutes takes no time. Not so with plain `def` handlers: they run in threads,
which the clock does not wait for, and would seem to take for ever.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from callboard.actors.server.parking import Parking
from callboard.actors.server.session_tree import open_session
from callboard.codecs.caller import TRUSTED, Caller
from callboard.codecs.revisions import LATEST, Revision
from callboard.server.server import Server
from callboard.testing.peer import EVERYTHING, Answer, Peer, Refusal
from callboard.transports.memory import memory_pair

__all__ = ["EVERYTHING", "Answer", "Peer", "Refusal", "connect"]


@asynccontextmanager
async def connect(
    server: Server,
    revision: Revision = LATEST,
    *,
    answers: Mapping[str, Answer] | None = None,
    capabilities: dict[str, Any] | None = None,
    log_level: str | None = None,
    principal: Caller | str = TRUSTED,
    peer: type[Peer] = Peer,
) -> AsyncIterator[Peer]:
    """Host *server* and connect a client to it, in this process.

    *answers* are the client's own: `{"elicitation/create": lambda params: {"action": "accept", "content": {...}}}`.
    *principal* is who calls, a `Caller` for one with scopes; without it no scope is asked for, as at standard input.
    *peer* is the class of the client, for one that does more.
    """
    # States expire by Trio's clock, so that a test may turn it.
    async with server.host(parking=Parking(server.info.name)) as host:
        there, here = memory_pair()
        await open_session(host, here, "s-1", principal)
        client = peer(
            there, revision, dict(EVERYTHING) if capabilities is None else capabilities, answers or {}, log_level
        )
        if revision.dialect.has_sessions:
            await client.initialize()
        try:
            yield client
        finally:
            there.close()
