"""Lists of a server that has mounted others: their parts pass through their own middlewares."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from callboard.actors.server.exchange import Exchange
from callboard.codecs.revisions import UNSET, Model
from callboard.server.compose import Mount, PassedOn
from callboard.server.handlers import Declarations
from callboard.server.middleware import Serve
from callboard.server.registry import Registry, Section


@attrs.frozen
class _ListKind:
    member: str
    key: str
    section: Callable[[Registry], Section[Any]]


_KINDS: Final[Mapping[str, _ListKind]] = {
    "tools/list": _ListKind("tools", "name", lambda registry: registry.tools),
    "prompts/list": _ListKind("prompts", "name", lambda registry: registry.prompts),
    "resources/list": _ListKind("resources", "uri", lambda registry: registry.resources),
    "resources/templates/list": _ListKind("resource_templates", "uri_template", lambda registry: registry.templates),
}


def around_lists(front: Declarations, below: list[Mount]) -> Callable[[Serve], Serve] | None:
    """What is put around the lists of a server that has mounted these. None if no middleware stands before any."""
    if not any(mount.has_middlewares for mount in below):
        return None

    def around(listed: Serve) -> Serve:
        async def serve(exchange: Exchange) -> Model:
            return await _narrowed(front, exchange, await listed(exchange))

        return serve

    return around


async def _narrowed(front: Declarations, exchange: Exchange, result: Model) -> Model:
    """*result*, with each mounted server's part as its middlewares leave it."""
    kind = _KINDS[exchange.request.method]
    entries, parts, order = kind.section(front.registry).entries, dict[Mount, list[Any]](), list[Any]()
    for one in getattr(result, kind.member):
        entry = entries.get(getattr(one, kind.key))
        mount = entry.signature.mount if entry is not None and isinstance(entry.signature, PassedOn) else None
        if mount is None or not mount.has_middlewares:
            order.append(one)
        elif mount in parts:
            parts[mount].append(one)
        else:
            parts[mount] = [one]
            order.append(mount)
    if not parts:
        return result
    kept: list[Any] = []
    for place in order:
        kept += await _part(kind, place, front, exchange, result, parts[place]) if isinstance(place, Mount) else [place]
    changes: dict[str, Any] = {kind.member: kept, "cache_scope": "private"}
    return attrs.evolve(result, **changes)


async def _part(
    kind: _ListKind, mount: Mount, front: Declarations, exchange: Exchange, result: Model, shown: list[Any]
) -> list[Any]:
    theirs = mount.other.registry
    offer = mount.runs[exchange.engine, front]
    prefix = mount.prefix if kind.key == "name" else ""
    own = [kind.section(theirs).entries[getattr(one, kind.key).removeprefix(prefix)].shown for one in shown]

    async def listed(asked: Exchange) -> Model:
        page: dict[str, Any] = {kind.member: own, "next_cursor": UNSET}
        return await _narrowed(offer.server, asked, attrs.evolve(result, **page))

    found = getattr(await offer.list_through(listed, exchange), kind.member)
    return [attrs.evolve(one, name=prefix + one.name) for one in found] if prefix else list(found)
