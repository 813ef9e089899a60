"""Sessions that other workers have: requests for them go there, at most one hop."""

from typing import Final

import attrs

from callboard.actors.frames import error_frame
from callboard.actors.server.host import Host
from callboard.actors.server.request import run_noticing
from callboard.codecs.envelope import Request, decode
from callboard.codecs.home import HomeNames, chosen_home
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.status import RETRY_AFTER
from callboard.codecs.revisions import LATEST
from callboard.errors import HomeGone, Overloaded, PeerError, RequestFailed
from callboard.supervisor import get_logger
from callboard.transports.client.pool import Origin, Pool, Use
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.homes import Elsewhere, not_found
from callboard.transports.server.http.modern import answer_unread
from callboard.transports.server.http.response import Response
from callboard.workers.messages import Peer
from callboard.workers.relay import (
    MAX_STREAMS,
    MISDIRECTED,
    HomeLink,
    HomeLost,
    NotThere,
    RelayedRequest,
    write_forwarded,
)

log = get_logger("callboard.workers")

_LONGEST: Final = 1 << 30  # the worker that answers has bounded its answer


def socket_path(folder: str, name: bytes) -> str:
    """Where the worker of that name listens for the others."""
    return f"{folder}/{name.hex()}"


@attrs.define(eq=False)
class WorkerHomes:
    """The homes of one worker's sessions, and the links to the other workers."""

    names: HomeNames
    folder: str
    host: Host = attrs.field(init=False)
    links: dict[bytes, HomeLink] = attrs.field(factory=dict, init=False)
    forwarded: int = attrs.field(default=0, init=False)

    # What the endpoint asks.

    def new_id(self, principal: str) -> str:
        return self.names.new(principal)

    def missing(self, name: str, principal: str) -> HttpRefusal | Elsewhere:
        home = self.names.home_of(name, principal)
        return not_found() if home is None or home == self.names.here else Elsewhere(name, home)

    def check_state(self, request: Request, state: str, principal: str) -> None:
        found = self.host.parking.home_of(request, state, principal)
        if found is None:
            return
        home, serial = found
        here = self.names.here
        home = home or chosen_home(serial, (here, *self.links))
        if home != here and home in self.links:  # of one that has ended, no other knows more than this one
            raise Elsewhere("", home)

    async def serve_elsewhere(
        self, endpoint: Endpoint, found: Elsewhere, head: Head, body: bytes, principal: str, response: Response
    ) -> None:
        if response.is_forwarded:  # it was forwarded once, and is not again
            await response.answer(MISDIRECTED, ())
            return
        relayed = RelayedRequest(self.host, head, response, found.home.hex())
        run = self._run(endpoint, found, head, body, principal, response, relayed)
        if response.carrier is None:
            relayed.own(self.host.requests.carry(lambda: run, name=relayed.name))
            relayed.begin()
        else:
            await run_noticing(run, self.host.context.copy(), RelayedRequest.begin, relayed)

    async def _run(
        self,
        endpoint: Endpoint,
        found: Elsewhere,
        head: Head,
        body: bytes,
        principal: str,
        response: Response,
        relayed: RelayedRequest,
    ) -> None:
        try:
            await self._serve(endpoint, found, head, body, principal, response)
        except HttpRefusal as refusal:
            await endpoint.refuse(refusal, response)
        except (PeerError, RequestFailed) as error:
            await answer_unread(response, error, None)
        finally:
            relayed.leave()

    async def _serve(
        self, endpoint: Endpoint, found: Elsewhere, head: Head, body: bytes, principal: str, response: Response
    ) -> None:
        link = self.links.get(found.home)
        if link is None:
            raise not_found()
        use: Use = "stream" if head.method == "GET" else "call"
        response.extra = ()  # the home adds the same
        self.forwarded += 1
        try:
            await link.ask(write_forwarded(head, body, principal, response.peer), use, response, _LONGEST)
        except NotThere:
            raise not_found() from None
        except Overloaded as error:
            raise HttpRefusal(503, str(error), headers=RETRY_AFTER) from None
        except HomeLost as lost:
            await self._answer_lost(lost, head, body, response, endpoint)

    async def _answer_lost(
        self, lost: HomeLost, head: Head, body: bytes, response: Response, endpoint: Endpoint
    ) -> None:
        """The home ended meanwhile. A request that it may have begun is never answered 404: some clients would send it
        again, and it would run twice."""
        if response.is_over:
            return
        if not lost.was_sent:
            raise not_found()
        message = decode(body) if head.method == "POST" else None
        if isinstance(message, Request):
            await response.answer_json(error_frame(message.id, LATEST, HomeGone()))
            return
        raise HttpRefusal(503, "the worker that had this session ended", headers=RETRY_AFTER)

    # What the parent tells.

    def know(self, workers: list[Peer]) -> None:
        """These workers can be reached now."""
        living = {peer.name for peer in workers} - {self.names.here}
        for name in self.links.keys() - living:
            self.links.pop(name).pool.close()
        for name in living - self.links.keys():
            pool = Pool(Origin("http", "worker", 0, socket_path(self.folder, name)), most=MAX_STREAMS)
            self.links[name] = HomeLink(name, pool)

    def close(self) -> None:
        self.know([])
