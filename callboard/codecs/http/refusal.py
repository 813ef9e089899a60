"""A request that is answered by HTTP alone: it never reaches an actor."""

from callboard.errors import PeerError


class HttpRefusal(PeerError):
    """The peer's HTTP request is refused with *status*. The text is the reason, for a human reader.

    *closes* says that the connection cannot go on: what follows on it cannot be told from this request.
    """

    def __init__(
        self, status: int, reason: str, *, headers: tuple[tuple[bytes, bytes], ...] = (), closes: bool = False
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers
        self.closes = closes
        self.is_bodiless = False
        """Whether the response must have no body: HEAD."""
