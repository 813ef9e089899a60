"""Reads of the files of a pinned server's skills: what is read must be what was approved."""

from typing import Any

from callboard.actors.broker.forward import Forward, ForwardTarget
from callboard.actors.broker.skill_pins import SkillPins
from callboard.actors.server.exchange import Exchange
from callboard.actors.terms import Terms
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.envelope import ErrorResponse, Request, ResultResponse
from callboard.codecs.revisions import Model
from callboard.codecs.routing import Route


def forward(request: Request, terms: Terms, route: Route, to: ForwardTarget, exchange: Exchange) -> Forward:
    """A request on its way to *to*: as any other, unless it reads a resource of a server with pinned skills."""
    pins, uri = to.backend.skills, to.uri
    if pins is None or uri is None:
        return Forward(request, terms, route, to, exchange)
    return PinnedRead(request, terms, route, to, exchange, pins, uri)


class PinnedRead(Forward):
    """A `resources/read` of a pinned server, which may be of a file of a skill."""

    __slots__ = ("_asked", "_pins", "_uri")

    def __init__(
        self,
        request: Request,
        terms: Terms,
        route: Route,
        to: ForwardTarget,
        exchange: Exchange,
        pins: SkillPins,
        uri: str,
    ) -> None:
        super().__init__(request, terms, route, to, exchange)
        self._pins, self._uri, self._asked = pins, uri, route.uri or uri

    async def _run(self) -> Model | Forwarded:
        await self._pins.server.wait_up()  # before that it is not known whether it has skills
        if self._pins.governs(self._uri):
            await self._pins.open_for(self.account)
            self._pins.file(self._uri, self._asked)  # before the server is asked
        return await super()._run()

    async def ask(self, body: dict[str, Any]) -> ResultResponse | ErrorResponse:
        answer = await super().ask(body)
        if isinstance(answer, ResultResponse) and "contents" in answer.result and self._pins.governs(self._uri):
            await self._pins.check_read(self._uri, self._asked, answer.result)
        return answer
