"""Routes of requests: which backend has what a request names, under which name, and who may use it."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import msgspec

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.catalogue import Catalogue
from callboard.actors.broker.forward import ForwardTarget
from callboard.actors.broker.merging import MergedEntry
from callboard.actors.broker.owners import Knows
from callboard.actors.broker.visible import GUARDED
from callboard.actors.rules import CallerView
from callboard.codecs.bridge.apps import SCHEME as UI_SCHEME
from callboard.codecs.bridge.apps import ShownUri
from callboard.codecs.bridge.askable import NOTHING, Signature
from callboard.codecs.bridge.definitions import PROMPTS, TOOLS, Kind
from callboard.codecs.bridge.names import SEPARATOR
from callboard.codecs.bridge.skills import SKILL_SCHEME, skill_addresses
from callboard.codecs.bridge.tasks import must_defer
from callboard.codecs.envelope import Request
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.members import Members, raw
from callboard.codecs.routing import Route
from callboard.errors import DefinitionChanged, InvalidParams, ResourceNotFound


@attrs.define(eq=False)
class BrokerRoutes:
    """The way of each request to its backend, as the catalogue has it."""

    catalogue: Catalogue
    backends: dict[str, Backend] = attrs.field(factory=dict)
    _tools: dict[str, ForwardTarget] = attrs.field(factory=dict, init=False)  # those that were called
    _tools_of: int = attrs.field(default=0, init=False)  # the version of the catalogue that they were found in

    def forget(self) -> None:
        """The backends, or their settings, are others now."""
        self._tools.clear()

    def destination(
        self, request: Request, route: Route, signature: Signature, view: CallerView | None
    ) -> ForwardTarget:
        """The route of a request that is no call of a tool. Raises `InvalidParams`, `ResourceNotFound` or
        `InsufficientScope`."""
        match request.method:
            case "prompts/get":
                return self._of_prompt(route.name or "", signature, view)
            case "resources/read":
                backend, uri = self.find_resource(route.uri or "", signature, view)
                renamed = {} if uri == route.uri else {"uri": raw(uri)}
                is_private = view is not None and view.rules.gate("resource", backend.name, uri).is_private
                shown_uri = self.catalogue.shown_uris(backend.name, signature)
                if shown_uri is not None and uri.startswith(UI_SCHEME):
                    shown_uri = _as_asked(route.uri or "", uri, shown_uri)
                is_skill = bool(renamed) and uri.startswith(SKILL_SCHEME)
                if is_skill:
                    shown_uri = skill_addresses(backend.name)
                return ForwardTarget(
                    backend=backend,
                    renamed=renamed,
                    uri=uri,
                    asked=route.uri if is_skill else None,
                    may_repeat=True,
                    may_share=not is_private,
                    shown_uri=shown_uri,
                )
        return self._of_completion(request, signature, view)

    def called(self, shown: str) -> ForwardTarget | None:
        """The way to a tool that was called before, if all clients are shown the same. Each call asks twice."""
        if self._tools_of != self.catalogue.version:
            self._tools.clear()
            self._tools_of = self.catalogue.version
        return self._tools.get(shown)

    def check_tool(self, shown: str, backend: str, guarded: str, view: CallerView | None) -> None:
        """Raises as `of_tool` does, for a tool that there is. Rules go by its *guarded* name."""
        if view is not None and view.refuses("tool", backend, guarded):
            self._check_listed(TOOLS, shown, view)
            raise InvalidParams(f"Unknown tool: {shown[:128]}")

    def of_tool(self, shown: str, signature: Signature, view: CallerView | None) -> ForwardTarget:
        """Raises `InvalidParams`, `DefinitionChanged`, `InsufficientScope`."""
        try:
            entry = self.catalogue.tool(shown, signature)
        except DefinitionChanged:
            self.check_tool(shown, *self.catalogue.withholder(shown, signature), view)
            raise
        is_same_for_all = not self.catalogue.tells_apart
        if entry is None:
            bare = self.catalogue.bare_tools(shown, signature)
            entry = _only_tool(shown, bare, view)
            is_same_for_all = is_same_for_all and len(bare) == 1
        if entry is None:
            self._check_listed(TOOLS, shown, view)
            raise InvalidParams(f"Unknown tool: {shown[:128]}")
        self.check_tool(shown, entry.backend, entry.guarded, view)
        backend = self.backends[entry.backend]
        seen = None if is_same_for_all else view  # another caller's would be kept with the route
        to = ForwardTarget(
            backend=backend,
            renamed={} if entry.name == shown else {"name": raw(entry.name)},
            headers=_back_headers(entry),
            front_headers=entry.headers,
            hidden=entry.source.hidden,
            find_headers=lambda: _back_headers(self.tool(shown, signature)),
            find_again=lambda before: self._again(shown, signature, seen, before),
            may_repeat=backend.settings.trusted and _is_harmless(entry),
            must_defer=must_defer(entry.definition),
            guarded=entry.guarded,
            shown_uri=self.catalogue.shown_uris(entry.backend, signature),
        )
        if is_same_for_all:
            self._tools[shown] = to
        return to

    def _again(self, shown: str, signature: Signature, view: CallerView | None, before: ForwardTarget) -> ForwardTarget:
        """The same tool, in the lists as they are now. Its caller may use it. Raises as `of_tool` does."""
        now = self.of_tool(shown, signature, view)
        if now.backend is not before.backend:
            raise before.backend.gone()
        if (now.renamed, now.guarded) != (before.renamed, before.guarded):
            raise InvalidParams(f"Unknown tool: {shown[:128]}")
        return now

    def _of_prompt(self, shown: str, signature: Signature, view: CallerView | None) -> ForwardTarget:
        entry = self.catalogue.prompt(shown, signature)
        if entry is None or (view is not None and view.refuses("prompt", entry.backend, entry.guarded)):
            self._check_listed(PROMPTS, shown, view)
            raise InvalidParams(f"Unknown prompt: {shown[:128]}")
        return ForwardTarget(
            backend=self.backends[entry.backend],
            renamed=_renamed(entry),
            may_repeat=True,
            shown_uri=self.catalogue.shown_uris(entry.backend, signature),
        )

    def _check_listed(self, kind: Kind, shown: str, view: CallerView | None) -> None:
        """Raises `BackendGone` if the name has the prefix of a backend that has not listed what it has, unless the
        caller may not know of that backend."""
        named = {
            name if one.settings.prefix is None else one.settings.prefix: one for name, one in self.backends.items()
        }
        fitting = [prefix for prefix in named if prefix and shown.startswith(prefix + SEPARATOR)]
        backend = named[max(fitting, key=len)] if fitting else None
        if backend is None or backend.listings.has_read(kind):
            return
        if view is None or view.knows_server(backend.name) or not view.hides(GUARDED[kind], backend.name, shown):
            raise backend.gone()

    def _of_completion(self, request: Request, signature: Signature, view: CallerView | None) -> ForwardTarget:
        params, method = request.members, request.method
        ref = _reference(params)
        if "name" in ref:
            entry = self.catalogue.prompt(ref["name"], signature)
            if entry is None or (view is not None and view.refuses("prompt", entry.backend, entry.guarded, method)):
                raise InvalidParams(f"Nothing to complete: {ref['name'][:128]}")
            renamed = {} if entry.name == entry.shown else {"ref": raw({**ref, "name": entry.name})}
            return ForwardTarget(backend=self.backends[entry.backend], renamed=renamed, may_repeat=True)
        uri = ref.get("uri", "")
        found = self.catalogue.owner_of_template(uri, signature, knows_of(view, method))
        if found is None or (view is not None and view.refuses("resource", *found, method)):
            raise InvalidParams(f"Nothing to complete: {uri[:128]}")
        owner, there = found
        renamed = {} if there == uri else {"ref": raw({**ref, "uri": there})}
        return ForwardTarget(backend=self.backends[owner], renamed=renamed, may_repeat=True)

    def find_resource(
        self, uri: str, signature: Signature = NOTHING, view: CallerView | None = None
    ) -> tuple[Backend, str]:
        """The backend of a resource, and its URI there. Raises `ResourceNotFound`, `InvalidParams`,
        `InsufficientScope`."""
        found = self.catalogue.owner_of(uri, signature, knows_of(view))
        if found is None or (view is not None and view.refuses("resource", *found)):
            raise ResourceNotFound(uri)
        name, there = found
        return self.backends[name], there

    def headers(self, shown: str, signature: Signature) -> HeaderMap:
        entry = self.tool(shown, signature)
        return NO_HEADERS if entry is None else entry.headers

    def tool(self, shown: str, signature: Signature = NOTHING) -> MergedEntry | None:
        """A tool by the name that clients see, or by its bare name if it is the only one of that name; None if there
        is none, or it is withheld."""
        try:
            entry = self.catalogue.tool(shown, signature)
        except DefinitionChanged:
            return None
        bare = self.catalogue.bare_tools(shown, signature) if entry is None else ()
        return bare[0] if len(bare) == 1 else entry


def _back_headers(entry: MergedEntry | None) -> HeaderMap:
    """The arguments of a tool that its backend wants repeated in headers."""
    if entry is None:
        return NO_HEADERS
    return entry.headers if entry.source.back_headers is None else entry.source.back_headers


def knows_of(view: CallerView | None, method: str | None = None) -> Knows | None:
    """Which URIs of which backends a caller may know of."""
    return None if view is None else lambda backend, uri: not view.hides("resource", backend, uri, method)


def _as_asked(asked: str, there: str, shown_uri: ShownUri) -> ShownUri:
    """The same, but for the resource that is read: its contents have the URI that the client named."""
    return lambda uri: asked if uri == there else shown_uri(uri)


def _only_tool(name: str, bare: Sequence[MergedEntry], view: CallerView | None) -> MergedEntry | None:
    """The tool that an app means by a *bare* name: of those that the caller may know of, the only one.

    Raises `InvalidParams` if there are several: the message names each.
    """
    known = [one for one in bare if view is None or not view.hides("tool", one.backend, one.guarded)]
    if len(known) < 2:
        return known[0] if known else None
    error = InvalidParams(f"several servers have a tool {name[:128]}: use one of the candidates")
    error.data = {"origin": "broker", "candidates": [one.shown for one in known]}
    raise error


def _renamed(entry: MergedEntry) -> Mapping[str, Any]:
    return {} if entry.name == entry.shown else {"name": raw(entry.name)}


def _is_harmless(entry: MergedEntry) -> bool:
    """Whether a tool says that it may be called twice."""
    try:
        said = msgspec.json.decode(entry.definition.get("annotations", b"{}"))
    except msgspec.DecodeError:
        return False
    return isinstance(said, dict) and (said.get("readOnlyHint") is True or said.get("idempotentHint") is True)


def _reference(params: Members) -> dict[str, Any]:
    """The prompt or template to complete. Raises `InvalidParams`."""
    try:
        ref = msgspec.json.decode(params["ref"])
    except (KeyError, msgspec.DecodeError):
        raise InvalidParams("params.ref: is required") from None
    kind = str(ref.get("type")) if isinstance(ref, dict) else ""
    key = {"ref/prompt": "name", "ref/resource": "uri"}.get(kind)
    if key is None or not isinstance(ref.get(key), str):
        raise InvalidParams("params.ref: expected a prompt or a resource")
    return {str(name): value for name, value in ref.items()}
