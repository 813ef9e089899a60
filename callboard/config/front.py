"""Settings of a whole broker: which extensions cross it, how names are given, and its profiles."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from callboard.actors.broker.policy import STARTS, Filter, Profile, Start
from callboard.codecs.bridge.transparent import OWN
from callboard.codecs.http.passed import header_names
from callboard.config.policy import check_name
from callboard.config.reader import Place, Table, quoted

FRONT_KEYS: Final = (
    *("extensions", "experimental", "prefix", "profiles", "interceptors", "interceptor_headers"),
    *("start", "idle_stop", "tool_search", "wait"),
)
PROFILE_KEYS: Final = ("servers", "allow", "deny")
PREFIXES: Final = ("server", "conflict")

START_WAIT: Final = 10.0
"""Seconds that the first clients wait for servers that take long to start: then lists are complete for most."""

MAX_PROFILES: Final = 256
"""Profiles of one broker: each may have merged lists of its own."""

MAX_INTERCEPTORS: Final = 32
"""Interceptors of one broker: each stands before every request."""

MAX_CROSSING: Final = 64
"""Names or patterns of extensions that cross, and of experimental capabilities."""


@attrs.frozen(kw_only=True)
class FrontSettings:
    """All of it, with what is right for most."""

    extensions: tuple[str, ...] = ()
    experimental: tuple[str, ...] = ()
    is_bare: bool = False
    """Whether servers without a prefix of their own have none, unless names collide."""
    profiles: tuple[Profile, ...] = ()
    interceptors: tuple[str, ...] = ()
    """Functions that stand around each request, as `FILE.py:NAME` with the whole path, the first one outermost."""
    start: Start = "eager"
    """When a `command` is started that does not say itself."""
    idle_stop: float | None = None
    """Seconds without use after which a `command` is ended that does not say itself."""
    interceptor_headers: tuple[bytes, ...] = ()
    """Headers of a client's HTTP request that interceptors read. In lower case."""
    tool_search: bool = False
    """Whether clients are shown `search_tools` and `call_tool` in the place of all tools."""
    wait: float = START_WAIT
    """Seconds that servers have to start before clients are answered without them."""


def read_front(root: Table, servers: Mapping[str, Place]) -> FrontSettings:
    """Read these settings; an invalid one is reported and gets its default."""
    return FrontSettings(
        extensions=_names(root, "extensions"),
        experimental=_names(root, "experimental"),
        is_bare=root.choice("prefix", PREFIXES, "server") == "conflict",
        profiles=_profiles(root, servers),
        interceptors=_interceptors(root),
        interceptor_headers=_headers(root),
        start=root.choice("start", STARTS, "eager"),
        idle_stop=root.seconds("idle_stop", 0.0, may_be_none=True) or None,
        tool_search=root.flag("tool_search"),
        wait=root.seconds("wait", START_WAIT, may_be_none=True),
    )


def _names(root: Table, key: str) -> tuple[str, ...]:
    names = root.texts(key)
    if len(names) > MAX_CROSSING:
        root.members[key].wrong(f"must have at most {MAX_CROSSING} names")
    for name in names:
        if name in OWN:
            root.members[key].warn(f"{quoted(name)} is served by the broker itself, and needs no mention")
        elif key == "extensions" and "/" not in name and "*" not in name:
            root.members[key].wrong(
                f"{quoted(name)} is not an extension: expected DOMAIN/NAME, such as com.example/echo"
            )
    return names


def _interceptors(root: Table) -> tuple[str, ...]:
    place = root.members.get("interceptors")
    if place is None:
        return ()
    found = []
    for text in place.texts():
        file, colon, name = text.rpartition(":")
        path = Path(os.path.normpath(place.report.file.absolute().parent / Path(file).expanduser()))
        if not colon or not name.isidentifier() or path.suffix != ".py":
            place.wrong(f"{quoted(text)} is not a function in a file: expected FILE.py:NAME")
        elif not path.is_file():
            place.wrong(f"{quoted(text)}: no such file")
        found.append(f"{path}:{name}")
    if len(found) > MAX_INTERCEPTORS:
        place.wrong(f"must have at most {MAX_INTERCEPTORS} functions")
    return tuple(found)


def _headers(root: Table) -> tuple[bytes, ...]:
    try:
        return header_names(root.texts("interceptor_headers"))
    except ValueError as reason:
        root.members["interceptor_headers"].wrong(str(reason))
        return ()


def _profiles(root: Table, servers: Mapping[str, Place]) -> tuple[Profile, ...]:
    members = root.table("profiles").members
    if len(members) > MAX_PROFILES:
        root.members["profiles"].wrong(f"must have at most {MAX_PROFILES} profiles")
    return tuple(_profile(name, place, servers) for name, place in members.items())


def _profile(name: str, place: Place, servers: Mapping[str, Place]) -> Profile:
    table = place.table()
    table.warn_unknown(PROFILE_KEYS)
    check_name(place, name, quoted(name) if name else "an empty name: it")
    if name in servers:
        place.wrong(
            f"has the name of the server in line {servers[name].node.line}: both would be served at /mcp/{name}"
        )
    chosen = table.texts("servers", tuple(servers))
    for one in chosen:
        if one not in servers:
            table.members["servers"].wrong(f"there is no server {quoted(one)}")
    return Profile(
        name=name, servers=chosen, tools=Filter(allow=table.texts("allow", ("*",)), deny=table.texts("deny"))
    )
