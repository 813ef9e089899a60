"""The extension for skills: a folder of skills, offered as resources, and the methods that list them."""

import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, Never, TypeAlias
from urllib.parse import unquote

import attrs
import msgspec
import trio

from callboard.actors.rules import NO_RULES
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.extensions import AddedMethod, added_row
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.revisions import UNSET, JSONObject
from callboard.codecs.revisions.nulls import NULL
from callboard.codecs.skills import DIRECTORY, ID, BadSkill
from callboard.errors import InvalidParams
from callboard.server.extension import Extension, ExtensionHost, ExtensionRun, answered
from callboard.server.registry import CURSOR_TTL, PAGE, ResourceEntry, Section
from callboard.server.skill_files import OfferedSkill, SkillSet, Stamp, read_folder, stamp_of
from callboard.supervisor import Actor, Supervisor, get_logger

PAGE_OF_SKILLS: Final = 20
"""Skills on one page of their list: an entry names up to 512 files, and is never split."""

WATCH: Final = 2.0
"""Seconds between two looks at folders that are watched. A look reads no file."""

log = get_logger("callboard.handlers")


class Skills(Extension):
    """The skills in *folder*, and in the folders below it: each is a folder with a SKILL.md, which has its name.

    ```python
    server = Server("demo", extensions=[Skills("skills")])
    ```

    Every file is read and hashed once, when the server is made; with *watch*, or by `reload`, anew when one changes.
    Raises `BadSkill` for a skill that breaks a rule.
    """

    def __init__(
        self, folder: str | Path | None = None, *, prefix: str = "", directory_read: bool = True, watch: bool = False
    ) -> None:
        super().__init__(ID, {"directoryRead": True} if directory_read else {})
        self.watch = watch
        self._sources: list[tuple[Path, str]] = []
        self._stamps: tuple[Stamp, ...] = ()
        self._found = SkillSet()
        self._skills: Section[OfferedSkill] = Section("skill")
        self._server: ExtensionHost | None = None
        if folder is not None:
            self.add(folder, prefix=prefix)

    def add(self, folder: str | Path, *, prefix: str = "") -> None:
        """Offer the skills in one more *folder*, as `skill://PREFIX/...`: all of them, or none. Raises `BadSkill`, and
        ValueError for one that there is already."""
        place = Path(folder).resolve()
        stamp = stamp_of(place)
        self._use(self._found.with_others(read_folder(place, prefix)))
        self._sources.append((place, prefix))
        self._stamps = (*self._stamps, stamp)

    async def reload(self) -> bool:
        """Read all folders anew, and tell clients if anything is another now. Raises `BadSkill` or ValueError, and
        RuntimeError once several workers serve: then nothing has changed."""
        stamps, found = await trio.to_thread.run_sync(self._read)
        self._stamps = stamps
        before = {uri: one.skill for uri, one in self._found.skills.items()}
        if before == {uri: one.skill for uri, one in found.skills.items()}:
            return False
        self._use(found)
        return True

    def _read(self) -> tuple[tuple[Stamp, ...], SkillSet]:
        stamps, found = self.stamps(), SkillSet()
        for place, prefix in self._sources:
            found = found.with_others(read_folder(place, prefix))
        return stamps, found

    def stamps(self) -> tuple[Stamp, ...]:
        """Differ after a change of a file."""
        return tuple(stamp_of(place) for place, _ in self._sources)

    @property
    def has_changed(self) -> bool:
        """Whether a file is another one since all were read. Looks at the disk."""
        return self.stamps() != self._stamps

    def _use(self, found: SkillSet) -> None:
        """Offer these skills from now on, instead of those that there were."""
        server, before = self._server, self._found
        if server is not None:
            resources, unlisted = server.registry.resources, server.registry.unlisted
            if resources.is_fixed:
                raise RuntimeError("skills cannot change while several workers serve: the others would not know of it")
            for uri in found.skills.keys() - before.skills.keys():
                if uri in resources.entries:
                    raise ValueError(f"resource {uri!r} already exists")
            for uri in before.skills:
                resources.remove(uri)
            for uri in before.files:
                unlisted.remove(uri)
            for uri, skill in found.skills.items():
                resources.add(uri, skill)
            for uri, file in found.files.items():
                unlisted.add(uri, file)
        self._found, self._skills.entries = found, dict(found.skills)
        if server is not None:
            server.notify_changed("resources")

    def attach(self, server: ExtensionHost) -> None:
        server.registry.offer("resources")
        found, self._found, self._server = self._found, SkillSet(), server
        self._use(found)

    def begin(self, root: Supervisor) -> None:
        if self.watch:
            root.spawn(SkillsWatch(self), name="skills", shutdown=0)

    def added(self, run: ExtensionRun) -> Iterator[tuple[str, AddedMethod]]:
        yield from super().added(run)
        methods: dict[str, _Method] = {"skills/list": self._list, "skills/get": self._get}
        if self.settings:
            methods["resources/directory/read"] = self._read_directory
        for name, method in methods.items():
            yield name, AddedMethod(row=added_row(name), handler=_handler(method, run.server))

    def _list(self, exchange: Exchange, server: ExtensionHost) -> JSONObject:
        chosen, following = self._skills.page(
            _text(exchange, "cursor"),
            server.registry.cursors,
            time.time(),
            PAGE_OF_SKILLS,
            lambda uri, entry: _is_listed(exchange, server, uri, entry),
        )
        return {"skills": [one.skill.shown() for one in chosen], **({"nextCursor": following} if following else {})}

    def _get(self, exchange: Exchange, server: ExtensionHost) -> JSONObject:
        uri = _uri(exchange)
        entry = self._skills.entries.get(uri)
        if entry is not None:
            decision = (exchange.engine.rules or NO_RULES).decide(
                exchange.terms.caller, "resource", server.info.name, uri, method="skills/get", scopes=entry.scopes
            )
            if not decision.is_hidden:
                decision.check()
                return {"skill": entry.skill.shown()}
        raise InvalidParams(f"Unknown skill: {uri[:200]}")

    def _read_directory(self, exchange: Exchange, server: ExtensionHost) -> JSONObject:
        asked = _uri(exchange)
        folder = f"{asked.rstrip('/')}/"
        children = {
            uri: {"uri": uri, "name": unquote(uri.rpartition("/")[2]), "mimeType": DIRECTORY}
            if entry is None
            else _shown(entry)
            for uri, entry in self._found.directories.get(folder, {}).items()
            if self._is_in(exchange, server, uri, entry)
        }
        if not children:
            raise InvalidParams(f"Not a directory: {asked[:200]}")
        names, cursor, seal = sorted(children), _text(exchange, "cursor"), server.registry.cursors
        context = [b"directory", folder.encode()]
        if cursor is not None:
            opened = seal.open(cursor, context, now=time.time())
            if opened is None:
                raise InvalidParams("Invalid cursor")
            names = [name for name in names if name > opened.payload.decode()]
        page: dict[str, Any] = {"resources": [children[name] for name in names[:PAGE]]}
        if len(names) > PAGE:
            page["nextCursor"] = seal.close(names[PAGE - 1].encode(), context, expires=time.time() + CURSOR_TTL)
        return page

    def _is_in(self, exchange: Exchange, server: ExtensionHost, uri: str, entry: ResourceEntry | None) -> bool:
        """Whether the caller may see a file, or any file in a directory."""
        if entry is not None:
            return _is_listed(exchange, server, uri, entry)
        if exchange.engine.rules is None:
            return True
        inner = self._found.directories[f"{uri}/"]
        return any(self._is_in(exchange, server, below, one) for below, one in inner.items())


@attrs.define(eq=False)
class SkillsWatch(Actor[Never]):
    """Has skills read anew when a file of theirs has changed."""

    mailbox = None

    skills: Skills

    async def run(self) -> None:
        failed: tuple[Stamp, ...] | None = None
        while True:
            await trio.sleep(WATCH)
            if not await trio.to_thread.run_sync(lambda: self.skills.has_changed):
                continue
            seen = await trio.to_thread.run_sync(self.skills.stamps)
            if seen == failed:
                continue
            try:
                if await self.skills.reload():
                    log.info("skills_reloaded")
            except (BadSkill, ValueError, RuntimeError, OSError) as error:
                failed = seen
                log.warning("skills_not_reloaded", reason=str(error)[:200])


_Method: TypeAlias = Callable[[Exchange, ExtensionHost], JSONObject]


def _handler(method: _Method, server: ExtensionHost) -> Callable[[Exchange], Awaitable[Forwarded]]:
    async def handle(exchange: Exchange) -> Forwarded:
        found, revision = method(exchange, server), exchange.terms.revision
        if revision.dialect.typed_results:
            scope = "private" if exchange.engine.rules is not None else server.lists_kept.cache_scope
            found = {**found, "ttlMs": server.lists_kept.ttl_ms, "cacheScope": scope}
        return answered(revision, found)

    return handle


def _is_listed(exchange: Exchange, server: ExtensionHost, uri: str, entry: ResourceEntry) -> bool:
    rules = exchange.engine.rules
    if rules is None:
        return True
    return rules.decide(exchange.terms.caller, "resource", server.info.name, uri, scopes=entry.scopes).is_listed


def _text(exchange: Exchange, name: str) -> str | None:
    given = exchange.request.members.get(name)
    if given is None or bytes(given) == NULL:
        return None
    try:
        return msgspec.json.decode(given, type=str)
    except msgspec.DecodeError:
        raise InvalidParams(f"params.{name}: expected a string") from None


def _uri(exchange: Exchange) -> str:
    uri = _text(exchange, "uri")
    if uri is None:
        raise InvalidParams("params.uri: missing")
    return uri


def _shown(entry: ResourceEntry) -> JSONObject:
    one = entry.shown
    told = {"uri": one.uri, "name": one.name, "mimeType": one.mime_type, "size": one.size}
    return {key: value for key, value in told.items() if value is not UNSET}
