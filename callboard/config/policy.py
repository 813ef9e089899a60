"""Settings under `callboard`: policy for a backend."""

import re
from collections.abc import Mapping
from typing import Final

from callboard.actors.broker.policy import SHARES, STARTS, BackendSettings, Filter, Restarts
from callboard.codecs.bridge.capped import LEAST_RESULT
from callboard.codecs.http.passed import MAX_PASSED, refused_header
from callboard.codecs.revisions import Revision
from callboard.config.override import read_overrides
from callboard.config.reader import Place, Table, quoted
from callboard.supervisor import Backoff, Intensity

SETTINGS_KEYS: Final = (
    "prefix",
    "tools",
    "rename",
    "override",
    "timeout",
    "cap",
    "max_in_flight",
    "max_connections",
    "idle_time",
    "start",
    "idle_stop",
    "share",
    "restart",
    "revision",
    "trusted",
    "pin",
    "roots",
    "required",
    "local",
    "drive_tasks",
    "task_after",
    "pass_headers",
    "max_result",
)
TOOLS_KEYS: Final = ("allow", "deny")
RESTART_KEYS: Final = ("times", "per", "first", "most", "cool_down")

MAX_NAME: Final = 64
"""Longest name of a server or prefix, in characters: many hosts take no longer name of a tool."""

BARE: Final = "conflict"
"""The prefix of a server whose names get one only where they collide: the same as an empty one, in a word."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]*")
_DEFAULTS: Final = BackendSettings()


def check_name(place: Place, name: str, shown: str) -> None:
    """Tell if *name* is none that a server or a prefix may have; it is *shown* like that."""
    if len(name) > MAX_NAME:
        place.wrong(f"{shown} is longer than {MAX_NAME} characters")
    elif _NAME.fullmatch(name) is None:
        place.wrong(f"{shown} has characters other than letters, digits, `_`, `.` and `-`")


def read_settings(table: Table) -> BackendSettings:
    """Read all settings; an invalid one is reported and gets its default."""
    settings = BackendSettings(
        prefix=_prefix(table),
        tools=_tools(table),
        rename=_rename(table),
        override=read_overrides(table),
        timeout=table.seconds("timeout", _DEFAULTS.timeout),
        cap=table.seconds("cap", _DEFAULTS.cap),
        max_in_flight=table.count("max_in_flight", _DEFAULTS.max_in_flight),
        max_connections=table.count("max_connections", _DEFAULTS.max_connections),
        idle_time=table.seconds("idle_time", _DEFAULTS.idle_time),
        start=table.choice("start", STARTS, _DEFAULTS.start),
        idle_stop=table.seconds("idle_stop", 0.0, may_be_none=True) or None,
        share=table.choice("share", SHARES, _DEFAULTS.share),
        restarts=_restarts(table),
        revision=table.choice("revision", tuple(Revision), None),
        trusted=table.flag("trusted", default=_DEFAULTS.trusted),
        pin=table.flag("pin", default=_DEFAULTS.pin),
        roots=_roots(table),
        required=table.flag("required", default=_DEFAULTS.required),
        local=table.flag("local", default=_DEFAULTS.local),
        drive_tasks=table.flag("drive_tasks", default=_DEFAULTS.drive_tasks),
        task_after=table.seconds("task_after", 0.0) if "task_after" in table.members else None,
        pass_headers=_pass_headers(table),
        max_result=table.count("max_result", 0, least=LEAST_RESULT) or None,
    )
    if settings.timeout > settings.cap:
        place = table.members.get("timeout") or table.members["cap"]
        place.warn(f"`timeout` is more than `cap`, {settings.cap:g} s, which is the upper limit of a request")
    return settings


def _prefix(table: Table) -> str | None:
    place = table.members.get("prefix")
    if place is None or place.node.value == "":
        return None if place is None else ""
    prefix = place.text()
    if prefix == BARE:
        return ""
    if prefix is not None:
        check_name(place, prefix, quoted(place.node.value))
    return prefix


def _tools(table: Table) -> Filter:
    tools = table.table("tools")
    tools.warn_unknown(TOOLS_KEYS)
    found = Filter(allow=tools.texts("allow", _DEFAULTS.tools.allow), deny=tools.texts("deny", _DEFAULTS.tools.deny))
    if "allow" in tools.members and tools.members["allow"].node.items == []:
        tools.members["allow"].warn("is empty, so no tool is allowed")
    return found


def _rename(table: Table) -> Mapping[str, str]:
    place = table.members.get("rename")
    if place is None:
        return _DEFAULTS.rename
    names = place.mapping()
    first: dict[str, str] = {}
    for old, new in names.items():
        at = place.member(old, (place.node.members or {})[old])
        if not new:
            at.wrong("must be a name")
        elif new in first:
            at.wrong(f"is already the new name of {quoted(first[new])}")
        first.setdefault(new, old)
    return names


def _restarts(table: Table) -> Restarts:
    restart = table.table("restart")
    restart.warn_unknown(RESTART_KEYS)
    usual = _DEFAULTS.restarts
    first = restart.seconds("first", min(usual.backoff.first, usual.backoff.most), may_be_none=True)
    most = restart.seconds("most", max(usual.backoff.most, first), may_be_none=True)
    if most < first:
        restart.members["most"].wrong(f"must not be less than `first`, {first:g} s")
    return Restarts(
        intensity=Intensity(
            restart.count("times", usual.intensity.restarts, least=0), per=restart.seconds("per", usual.intensity.per)
        ),
        backoff=Backoff(first=first, most=most),
        cool_down=restart.seconds("cool_down", usual.cool_down),
    )


def _pass_headers(table: Table) -> tuple[str, ...]:
    names = tuple(name.lower() for name in table.texts("pass_headers"))
    for name in names:
        why = refused_header(name)
        if why:
            table.members["pass_headers"].wrong(f"{quoted(name)} {why}")
    if len(names) > MAX_PASSED:
        table.members["pass_headers"].wrong(f"must have at most {MAX_PASSED} names")
    return names


def _roots(table: Table) -> tuple[str, ...]:
    roots = table.texts("roots", _DEFAULTS.roots)
    if not all(root.startswith("file://") for root in roots):
        table.members["roots"].wrong("must be a list of file:// URIs")
    return roots
