"""Requests to an HTTP API: each with a limit in time and size, and no redirect is followed."""

import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import attrs
import trio

from callboard._version import __version__
from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.openapi.requests import ApiRequest
from callboard.errors import BadAnswer, CannotConnect, ConnectionLost
from callboard.server.content.errors import ToolError
from callboard.supervisor import get_logger
from callboard.transports.client.pool import Origin, Pool

API_TIME: Final = 30.0
"""Seconds for an API to answer, from the first byte that is sent to the last that is read."""

MAX_API_ANSWER: Final = 2_900_000
"""Largest answer of an API that is read, in bytes. In Base64, as pictures are sent, it fits a message of 4 MiB."""

MAX_REASON: Final = 200
"""Characters of a reason in the log."""

log = get_logger("callboard.handlers")


@attrs.define(eq=False)
class ApiClient:
    """The connections to one API, and what goes with every request."""

    base: str
    """Its URL, without a query."""
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    time: float = API_TIME
    _pool: Pool = attrs.field(init=False)
    _path: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pool = Pool(Origin.of(self.base), self.tls)
        self._path = urlsplit(self.base).path.rstrip("/")

    def close(self) -> None:
        self._pool.close()

    async def send(self, request: ApiRequest) -> tuple[AnswerHead, bytes]:
        """Raises `ToolError` if there is no answer, in words for the model."""
        try:
            return await self.ask(request, MAX_API_ANSWER)
        except CannotConnect as error:
            log.warning("api_not_reached", reason=str(error)[:MAX_REASON])
            raise ToolError("the API cannot be reached") from None
        except ConnectionLost:
            raise ToolError("the connection to the API was lost; whether it did something is not known") from None
        except BadAnswer as error:
            raise ToolError(f"the API's answer cannot be read: {error}") from None
        except trio.TooSlowError:
            raise ToolError(f"the API has not answered within {self.time:g} s") from None

    async def ask(self, request: ApiRequest, most: int) -> tuple[AnswerHead, bytes]:
        """Raises `CannotConnect`, `ConnectionLost`, `BadAnswer` or `trio.TooSlowError`."""
        with trio.fail_after(self.time):
            channel = await self._pool.take()
            is_done = False
            try:
                await channel.send(self._written(request))
                head = await channel.head()
                body = b"" if head.status in (204, 304) else await channel.whole(most)
                is_done = True
                return head, body
            finally:
                self._pool.give_back(channel, is_done=is_done)

    def _written(self, request: ApiRequest) -> bytes:
        own = {name.lower(): value for name, value in self.headers.items()}
        said = {name.lower(): value for name, value in request.headers if name.lower() not in own}
        defaults = {"accept": "application/json, */*;q=0.5", "user-agent": f"callboard/{__version__}"}
        defaults["accept-encoding"] = "identity"  # nothing is unpacked: a few bytes can stand for gigabytes
        body = request.body
        if body is not None or request.method in ("POST", "PUT", "PATCH"):
            defaults["content-length"] = str(len(body or b""))
        lines = [
            f"{request.method} {self._path}{request.target} HTTP/1.1",
            f"host: {self._pool.origin.authority.decode()}",
            *(f"{name}: {value}" for name, value in {**defaults, **said, **own}.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
