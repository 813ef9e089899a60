"""Interceptors: middleware of a broker, loaded from the files that its configuration names.

An interceptor is written as the middleware of a server is, and stands before the same requests, lists and methods of
extensions, also those that go on to a server, and before requests about tasks. It sees the results of backends as
models. A result that it hands on untouched goes out as the bytes that the backend sent.
"""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.frames import Outcome
from callboard.actors.server.exchange import Exchange, Handler
from callboard.broker.no_news import NO_NEWS
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.members import raw, write_members
from callboard.codecs.revisions import METHODS, Model, read_result, write_result
from callboard.errors import CannotServe, PeerError, RequestFailed
from callboard.server.context import Context
from callboard.server.faults import log_failure
from callboard.server.load import load_name, split_target
from callboard.server.middleware import Middleware, checked, guarded, read_added, through, written

_RESULT_OF: Final[Mapping[str, str]] = {"tasks/result": "tools/call"}
"""Methods with the result of another one."""


def load_interceptors(targets: Sequence[str]) -> tuple[Middleware, ...]:
    """The functions that *targets* name, as `FILE.py:NAME`. Raises `CannotServe`, in words for their author."""
    return tuple(_load(target) for target in targets)


def _load(target: str) -> Middleware:
    file, name = split_target(target)
    if name is None:
        raise CannotServe(f"{target} names no function: expected FILE.py:NAME")
    found = load_name(file, name)
    if not callable(found):
        raise CannotServe(f"{target} is not a function but {type(found).__name__}")
    try:
        inspect.signature(found).bind(None, None)
    except (TypeError, ValueError):
        raise CannotServe(f"{target} does not take two arguments: async def NAME(ctx, go_on)") from None
    if not inspect.iscoroutinefunction(found) and not inspect.iscoroutinefunction(type(found).__call__):
        raise CannotServe(f"{target} is not an async function")
    interceptor: Middleware = found
    return interceptor


def intercept(offer: BrokerOffer, interceptors: Sequence[Middleware]) -> None:
    """Put *interceptors* around everything that *offer* serves, the first one outermost; none: take them off."""
    offer.intercept(partial(_around, tuple(interceptors)) if interceptors else None)


def _around(interceptors: tuple[Middleware, ...], offer: BrokerOffer, handler: Handler) -> Handler:
    """One handler of one offer, with the interceptors around it."""

    async def serve(exchange: Exchange) -> Outcome:
        seen = _Results()

        async def modelled(asked: Exchange) -> Model:
            return seen.read(asked, await handler(asked))

        return seen.written(exchange, await through(interceptors, modelled, _context)(exchange))

    # What goes wrong at a backend is told in words for the client already.
    return guarded(checked(serve, offer.guard), _report, show_errors=False, passes=(PeerError, RequestFailed))


@attrs.define(eq=False)
class _Results:
    """What a backend answered, beside the models that interceptors got of it."""

    _known: list[tuple[Model, Any]] = attrs.field(factory=list)

    def read(self, exchange: Exchange, outcome: Any) -> Model:
        if not isinstance(outcome, Forwarded):
            model: Model = outcome
            return model
        revision, kind = exchange.terms.revision, _kind(exchange)
        is_added = kind not in METHODS
        model = (
            read_added(revision, outcome) if is_added else read_result(revision, kind, write_members(outcome.members))
        )
        self._known[:] = [(model, outcome)]
        return model

    def written(self, exchange: Exchange, model: Any) -> Outcome:
        """The answer: as the backend sent it, if it is the very model that was read of that."""
        for known, outcome in self._known:
            if known is model:
                sent: Outcome = outcome
                return sent
        if isinstance(model, Model) and exchange.request.method not in METHODS:
            return written(exchange.terms.revision, model)
        if isinstance(model, Model) and exchange.request.method in _RESULT_OF:
            said = write_result(exchange.terms.revision, _kind(exchange), model)
            return Forwarded({name: raw(value) for name, value in said.items()})
        answer: Outcome = model
        return answer


def _kind(exchange: Exchange) -> str:
    """The method of which the result is one."""
    method = exchange.request.method
    return _RESULT_OF.get(method, method)


def _context(exchange: Exchange) -> Context:
    return Context(exchange, NO_NEWS)


def _report(error: Exception, exchange: Exchange) -> None:
    log_failure(error, exchange.request, exchange.target)
