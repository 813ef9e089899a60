"""Skills of all backends: their lists as one, and each skill found at its own server."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import attrs
import msgspec
from msgspec import UNSET, Raw

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.catalogue import CURSOR_TTL, Catalogue
from callboard.actors.broker.custom import CustomForward
from callboard.actors.broker.forward import ForwardTarget
from callboard.actors.broker.listing import MAX_CURSOR
from callboard.actors.broker.routes import BrokerRoutes
from callboard.actors.rules import CallerView
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.extensions import AddedMethod, added_row
from callboard.codecs.bridge.results import COMPLETE, Forwarded
from callboard.codecs.bridge.skills import SKILL_SCHEME, check_skill, directory_with_uris, shown_skill, shown_skills
from callboard.codecs.envelope import Request
from callboard.codecs.members import Members, raw
from callboard.codecs.revisions.nulls import NULL
from callboard.codecs.skills import ID, BadSkill
from callboard.errors import INVALID_PARAMS, BackendRefused, BadAnswer, InvalidParams, MethodNotFound, RequestFailed
from callboard.supervisor import get_logger

log = get_logger("callboard.broker")

MAX_SKILL_PAGES: Final = 100
"""Pages of one server's skills that clients are told of, with twenty skills mostly. One that always has another page
would keep them from the skills of the servers behind it."""

_KEPT: Final = {"ttlMs": raw(0), "cacheScope": raw("private")}
_UNKNOWN: Final = "Unknown skill"
_NO_DIRECTORY: Final = "Not a directory"
_NOTHING: Final = raw([])
_CONTEXT: Final = [b"skills"]


@attrs.frozen(eq=False)
class BrokeredSkills:
    """The methods of the extension for skills, for clients of a broker."""

    routes: BrokerRoutes
    catalogue: Catalogue

    def methods(self) -> Iterator[tuple[str, AddedMethod]]:
        handlers: dict[str, Handler] = {
            "skills/list": self._list,
            "skills/get": self._get,
            "resources/directory/read": self._read_directory,
        }
        for name, handler in handlers.items():
            yield name, AddedMethod(row=added_row(name), handler=handler)

    async def _list(self, exchange: Exchange) -> Forwarded:
        """A page of one backend, and then of the next. One that cannot be asked is left out, and logged."""
        view, backends = _view(exchange), self._backends(exchange)
        name, cursor, number = self._opened(exchange, next(iter(backends)))
        if name not in backends:
            raise InvalidParams("Invalid cursor")
        order = list(backends)
        for at in range(order.index(name), len(order)):
            backend, rest = backends[order[at]], order[at + 1 :]
            following = self._closed(rest[0]) if rest else None
            try:
                result = await self._page(exchange, backend, {} if cursor is None else {"cursor": raw(cursor)})
            except RequestFailed as error:
                log.warning("skills_not_listed", backend=backend.name, failure=str(error)[:200])
                result = {}
            shown = self.catalogue.shown_skills(backend.name)
            found, bad = shown_skills(result, backend.name, shown, _lets(view, backend, "skills/list"))
            if bad:
                log.warning("skills_left_out", backend=backend.name, count=len(bad), failure=str(bad[0])[:300])
            if (told := _next_cursor(backend, result, cursor, number)) is not None:
                following = self._closed(backend.name, told, number + 1)
            if found or following is None or told is not None:  # after an empty page, the client asks for the next
                break
            cursor, number = None, 1
        return _answered(exchange, {"skills": raw(found), **({"nextCursor": raw(following)} if following else {})})

    async def _get(self, exchange: Exchange) -> Forwarded:
        backend, there = self._find(exchange, _UNKNOWN)
        if backend.skills is not None:
            await backend.skills.open_for(exchange.slot.account)
        result = await self._ask_known(exchange, backend, {"uri": raw(there)}, _UNKNOWN)
        if backend.skills is not None:
            backend.skills.check_entry(result.get("skill"), there, _asked_uri(exchange))
        shown = self.catalogue.shown_skills(backend.name)
        entry = result.get("skill", Raw(NULL))
        try:
            is_it = check_skill(entry) == there
        except BadSkill:
            is_it = False
        if not is_it:
            raise BadAnswer(f"{backend.name}: an invalid skill")
        return _answered(exchange, {**result, "skill": shown_skill(entry, backend.name, there, shown)})

    async def _read_directory(self, exchange: Exchange) -> Forwarded:
        backend, there = self._find(exchange, _NO_DIRECTORY)
        if (pins := backend.skills) is not None:
            await pins.open_for(exchange.slot.account)
            pins.check_uri(there, _asked_uri(exchange))
        cursor = _given(exchange, "cursor")
        params = {"uri": raw(there), **({} if cursor is None else {"cursor": cursor})}
        result = await self._ask_known(exchange, backend, params, _NO_DIRECTORY)
        view = _view(exchange)
        lets = _lets(view, backend, "resources/read")
        lets = lets if pins is None else pins.lets(lets)
        page = directory_with_uris(result, self.catalogue.shown_skills(backend.name), lets)
        if view is not None and page["resources"] == _NOTHING and cursor is None:
            raise _unknown(_NO_DIRECTORY, exchange)  # as one that there is not
        return _answered(exchange, page)

    # Which backend.

    def _backends(self, exchange: Exchange) -> dict[str, Backend]:
        """Those that have skills, and that the caller may know of. Raises `MethodNotFound` if there are none."""
        view = _view(exchange)
        found = {
            name: backend
            for name, backend in self.routes.backends.items()
            if _has_skills(backend) and (view is None or view.knows_server(name))
        }
        if not found:
            raise MethodNotFound(f"{exchange.request.method} is not supported by this server")
        return found

    def _find(self, exchange: Exchange, otherwise: str) -> tuple[Backend, str]:
        """The backend of the skill or directory that a request names, and its URI there. Raises `InvalidParams`,
        `InsufficientScope`."""
        backends, uri, view = self._backends(exchange), _text(exchange.request.members.get("uri")), _view(exchange)
        if uri is None:
            raise InvalidParams("params.uri: expected a string")
        found = self.catalogue.skill_of(uri)
        if found is None and len(backends) == 1:
            found = next(iter(backends)), uri
        if found is None or found[0] not in backends or not uri.startswith(SKILL_SCHEME):
            raise _unknown(otherwise, exchange)
        if view is not None and view.refuses("resource", *found):
            raise _unknown(otherwise, exchange)
        return backends[found[0]], found[1]

    # How it is asked.

    async def _ask(self, exchange: Exchange, backend: Backend, params: dict[str, Raw]) -> Members:
        request = Request(exchange.request.id, exchange.request.method, params or UNSET)
        target = ForwardTarget(backend=backend, find_headers=None)
        answer = await CustomForward(request, exchange.terms, exchange.route, target, exchange).run()
        return answer.members if isinstance(answer, Forwarded) else {}

    async def _page(self, exchange: Exchange, backend: Backend, params: dict[str, Raw]) -> Members:
        """As `_ask`, without skills that wait for approval."""
        if backend.skills is None:
            return await self._ask(exchange, backend, params)
        return await backend.skills.page(exchange.slot.account, partial(self._ask, exchange, backend, params))

    async def _ask_known(self, exchange: Exchange, backend: Backend, params: dict[str, Raw], otherwise: str) -> Members:
        """As `_ask`. What the backend does not know is told as what the caller may not know of."""
        try:
            return await self._ask(exchange, backend, params)
        except BackendRefused as error:
            if error.error_code != INVALID_PARAMS or "cursor" in params:
                raise
            raise _unknown(otherwise, exchange) from None

    def _closed(self, backend: str, cursor: str | None = None, number: int = 1) -> str:
        payload = msgspec.json.encode([backend, cursor, number])
        return self.catalogue.seal.close(payload, _CONTEXT, expires=self.catalogue.wall() + CURSOR_TTL)

    def _opened(self, exchange: Exchange, first: str) -> tuple[str, str | None, int]:
        """A backend, its cursor, and the number of the page that it stands for. Raises `InvalidParams`."""
        given = _given(exchange, "cursor")
        if given is None:
            return first, None, 1
        text = _text(given)
        opened = None if text is None else self.catalogue.seal.open(text, _CONTEXT, now=self.catalogue.wall())
        if opened is None:
            raise InvalidParams("Invalid cursor")
        return msgspec.json.decode(opened.payload, type=tuple[str, str | None, int])


def _next_cursor(backend: Backend, result: Members, cursor: str | None, number: int) -> str | None:
    """The cursor of the page after one that has a *number*, if there is one, and the backend may have so many."""
    told = _text(result.get("nextCursor"))
    if told is None or told == cursor:
        return None
    if len(told) <= MAX_CURSOR and number < MAX_SKILL_PAGES:
        return told
    log.warning("skills_cut", backend=backend.name, page=number, cursor_size=len(told))
    return None


def _given(exchange: Exchange, name: str) -> Raw | None:
    """A parameter; null is as good as none."""
    given = exchange.request.members.get(name)
    return None if given is None or bytes(given) == NULL else given


def _unknown(otherwise: str, exchange: Exchange) -> InvalidParams:
    return InvalidParams(f"{otherwise}: {_asked_uri(exchange)[:200]}")


def _asked_uri(exchange: Exchange) -> str:
    return _text(exchange.request.members.get("uri")) or ""


def _answered(exchange: Exchange, members: Members) -> Forwarded:
    """A result of ours: what it says of caching is for one caller, since it went through rules."""
    after: dict[str, Any] = {key: value for key, value in members.items() if key not in _KEPT}
    if exchange.terms.revision.dialect.typed_results:
        after |= {**_KEPT, "resultType": COMPLETE}
    return Forwarded(after)


def _view(exchange: Exchange) -> CallerView | None:
    rules = exchange.engine.rules
    return None if rules is None else CallerView(rules, exchange.terms.caller)


def _lets(view: CallerView | None, backend: Backend, method: str) -> Callable[[str], bool]:
    if view is None:
        return lambda _: True
    return partial(_is_known, view, backend.name, method)


def _is_known(view: CallerView, backend: str, method: str, uri: str) -> bool:
    return not view.hides("resource", backend, uri, method)


def _text(given: Raw | None) -> str | None:
    if given is None:
        return None
    try:
        return msgspec.json.decode(given, type=str)
    except msgspec.MsgspecError:
        return None


def _has_skills(backend: Backend) -> bool:
    declared = UNSET if backend.agreed is None else backend.agreed.capabilities.extensions
    return declared is not UNSET and ID in declared
