"""A file of servers, from its bytes to what a broker runs. Everything that is wrong with it is told at once."""

import codecs
from pathlib import Path
from typing import Final

import attrs

from callboard.actors.broker.policy import BackendSettings
from callboard.config.files import NotRegular, read_file
from callboard.config.front import FRONT_KEYS, FrontSettings, read_front
from callboard.config.jsonc import read_json
from callboard.config.model import BackendSpec, BackendTarget, Configuration, UpstreamAuth
from callboard.config.policy import SETTINGS_KEYS, check_name, read_settings
from callboard.config.positions import NotWritten
from callboard.config.reader import Place, Table, quoted
from callboard.config.remote import Remote
from callboard.config.report import BadConfiguration, Mistake, Report, UnreadableConfiguration
from callboard.config.target import OUR_TARGET_KEYS, TARGET_KEYS, read_target
from callboard.config.toml import read_toml
from callboard.transports.client.process import Command

MAX_FILE: Final = 1024 * 1024
"""Largest file that is read, in bytes. A thousand servers take a quarter of it."""

PERSONAL_CONNECTIONS: Final = 1024
"""Most connections to a server at a URL where each caller has its own: each is a socket, and not a process."""

OPEN: Final = "the file is writable by all users, which lets them run commands as you: chmod o-w"

MEMBERS: Final = ("mcpServers", "servers")
OURS: Final = "callboard"
ENTRY_KEYS: Final = (*TARGET_KEYS, "disabled", OURS)
OUR_KEYS: Final = (*SETTINGS_KEYS, *OUR_TARGET_KEYS, "oauth")

AUTHORIZATION_MEMBERS: Final = ("authorization", "quotas")
"""Tables about callers, not about servers: `callboard.config.authorization` reads them."""

_ROOT_KEYS: Final = (*MEMBERS, *AUTHORIZATION_MEMBERS, *FRONT_KEYS, "inputs", "$schema")
_ANY_URL: Final = "https://localhost/"
_FOREIGN: Final = {
    "httpUrl": 'is unknown; use `url` and `type` = "http"',
    "serverUrl": "is unknown; use `url`",
    "envFile": "is not supported; set environment variables and use ${VAR}",
    "autoApprove": "is ignored: the client that calls a tool asks its own user",
    "alwaysAllow": "is ignored: the client that calls a tool asks its own user",
    "includeTools": "is unknown; use `callboard.tools.allow`",
    "excludeTools": "is unknown; use `callboard.tools.deny`",
    "enabled": "is unknown; use `disabled`",
} | {key: f"is unknown here; use `{OURS}.{key}`" for key in (*SETTINGS_KEYS, "oauth")}


def read_configuration(path: Path, *, is_running: bool = False, skips_invalid: bool = False) -> Configuration:
    """The servers of the file at *path*. Raises `BadConfiguration`, with all of its mistakes.

    A broker that *is_running* reads regular files only. With *skips_invalid* a server with mistakes is left out, and
    they are warnings; those of the file itself are mistakes as before.
    """
    report, root, servers = _read_all(path, is_running=is_running)
    front = read_front(root, servers)
    taken: dict[str, int] = {}
    found = {name: _backend(name, place, taken, front) for name, place in servers.items()}
    skipped = {name for name, place in servers.items() if skips_invalid and report.skip(place.where)}
    report.check()
    backends = tuple(spec for name, spec in found.items() if spec is not None and name not in skipped)
    none = Mistake(file=path, line=1, message="no servers configured", is_warning=True)
    warnings = report.warnings + (() if backends else (none,))
    return Configuration(file=path, backends=backends, front=front, warnings=warnings, skips_invalid=skips_invalid)


def read_root(path: Path, *, is_running: bool = False) -> tuple[Report, Place]:
    """All that the file at *path* says, not looked at. Raises `BadConfiguration`."""
    if path.suffix == ".py":
        told = "is a Python file, no configuration: see callboard run and callboard describe"
        raise BadConfiguration([Mistake(file=path, line=None, message=told)])
    text, is_open = _text(path, is_running=is_running)
    is_toml = path.suffix.lower() == ".toml" or (
        path.suffix.lower() not in (".json", ".jsonc") and not text.lstrip().startswith(("{", "//", "/*"))
    )
    report = Report(path, "a table" if is_toml else "an object")
    if is_open:
        report.found.append(Mistake(file=path, line=None, message=OPEN, is_warning=True))
    try:
        root = Place(read_toml(text) if is_toml else read_json(text), "", report)
    except NotWritten as error:
        message = f"is not valid {'TOML' if is_toml else 'JSON'}: {error}"
        raise BadConfiguration([Mistake(file=path, line=error.line, column=error.column, message=message)]) from None
    return report, root


def read_servers(path: Path, *, is_running: bool = False) -> tuple[Report, dict[str, Place]]:
    """Every entry of the file at *path*, by its name, not looked at. Raises `BadConfiguration`."""
    report, _, servers = _read_all(path, is_running=is_running)
    return report, servers


def _read_all(path: Path, *, is_running: bool) -> tuple[Report, Table, dict[str, Place]]:
    report, root = read_root(path, is_running=is_running)
    table = Table.of(root)
    if "inputs" in table.members:
        table.members["inputs"].warn("is not supported: inputs are a feature of VS Code; use ${VAR}")
    table.warn_unknown(_ROOT_KEYS)
    present = [table.members[member] for member in MEMBERS if member in table.members]
    if not present:
        root.wrong("has neither `mcpServers` nor `servers`")
    for place in present:
        place.table()
    if not any(place.node.members for place in present):
        report.check()
    return report, table, _merged(present)


def _merged(present: list[Place]) -> dict[str, Place]:
    servers: dict[str, Place] = {}
    for place in present:
        for written, entry in Table.of(place).members.items():
            name = "-".join(written.split()) or written
            if name != written:
                entry.warn(f"is called {name} here: names of tools and paths have no blanks")
            if name in servers:
                entry.wrong(f"is already defined in {servers[name].where}, line {servers[name].node.line}")
            servers[name] = entry
    return servers


def _text(path: Path, *, is_running: bool) -> tuple[str, bool]:
    """The text of the file, and whether any user of this machine may write it."""
    try:
        contents = read_file(path, MAX_FILE, is_running=is_running)
    except OSError as error:
        mistake = Mistake(file=path, line=None, message=error.strerror or str(error))
        failure = BadConfiguration if isinstance(error, NotRegular) else UnreadableConfiguration
        raise failure([mistake]) from None
    data = contents.data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadConfiguration([Mistake(file=path, line=line, message="is not UTF-8")]) from None
    if len(data) > MAX_FILE:
        raise BadConfiguration([Mistake(file=path, line=None, message=f"is larger than {MAX_FILE} bytes")])
    if not text.strip():
        raise BadConfiguration([Mistake(file=path, line=1, message="the file is empty")])
    return text, contents.others_may_write


def open_entry(place: Place) -> Table:
    """The keys of one server."""
    if place.node.members is None:
        place.wrong(f"is not {place.report.an_object}")
    return Table.of(place)


def _backend(name: str, place: Place, taken: dict[str, int], front: FrontSettings) -> BackendSpec | None:
    """The server at *place*; None if it is disabled, or wrong. *taken* are prefixes, with their lines."""
    entry = open_entry(place)
    if place.node.members is None:
        return None
    if entry.flag("disabled"):
        entry.members["disabled"].warn("the server is ignored")
        return None
    check_name(place, name, quoted(name) if name else "an empty name: it")
    unknown = entry.warn_unknown(ENTRY_KEYS, _FOREIGN)
    ours = entry.table(OURS)
    ours.warn_unknown(OUR_KEYS)
    found = read_target(entry, ours)
    settings = read_settings(ours)
    if front.is_bare and settings.prefix is None:
        settings = attrs.evolve(settings, prefix="")
    target, shown = (None, "") if found is None else found
    settings = _sleeping(settings, ours, target, front)
    auth = _auth(ours, target)
    if settings.pass_headers and target is not None and not isinstance(target, Remote):
        ours.members["pass_headers"].warn("is only for a `url`: other servers get no headers")
    _take_prefix(ours.members.get("prefix", place), name if settings.prefix is None else settings.prefix, taken)
    if target is None:
        return None
    line = place.node.line
    spec = BackendSpec(name=name, target=target, settings=settings, auth=auth, shown=shown, line=line, unknown=unknown)
    return _personal(spec, entry, ours) if spec.is_personal else spec


def _sleeping(
    settings: BackendSettings, ours: Table, target: BackendTarget | None, front: FrontSettings
) -> BackendSettings:
    """The settings, with when a program runs. Only that of a `command` is ours to start and to end."""
    if target is not None and not isinstance(target, Command):
        for key in ("start", "idle_stop"):
            if key in ours.members:
                ours.members[key].warn("is only for a `command`: other servers are not started by the broker")
        return attrs.evolve(settings, start="eager", idle_stop=None)
    start = settings.start if "start" in ours.members else front.start
    idle_stop = settings.idle_stop if "idle_stop" in ours.members else front.idle_stop
    return attrs.evolve(settings, start=start, idle_stop=idle_stop)


def _personal(spec: BackendSpec, entry: Table, ours: Table) -> BackendSpec:
    """A server that gets something of each caller's own."""
    if spec.settings.share == "all":
        places = [table.members.get(key) for table in (ours, entry) for key in ("oauth", "headers", "env")]
        place = next((place for place in places if place is not None), entry.place)
        place.wrong('names the caller, and so excludes `share` = "all": a connection belongs to one caller')
    if isinstance(spec.target, Remote) and "max_connections" not in ours.members:
        return attrs.evolve(spec, settings=attrs.evolve(spec.settings, max_connections=PERSONAL_CONNECTIONS))
    return spec


def _auth(ours: Table, target: BackendTarget | None) -> UpstreamAuth | None:
    place = ours.members.get("oauth")
    if place is None:
        return None
    if target is not None and not isinstance(target, Remote):
        place.wrong("is only for a `url`: other servers get credentials in their environment")
        return None
    if target is not None and any(name.lower() == "authorization" for name in (*target.headers, *target.templates)):
        place.wrong("excludes a header `Authorization`: use one")
    from callboard.config.auth import read_auth  # it takes time to load

    return read_auth(place, _ANY_URL if target is None else target.url)


def _take_prefix(place: Place, prefix: str, taken: dict[str, int]) -> None:
    if prefix and prefix in taken:
        place.wrong(f"has the same prefix as the server in line {taken[prefix]}; set `{OURS}.prefix`")
    taken.setdefault(prefix, place.node.line)
