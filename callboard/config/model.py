"""A configuration as values. They are compared on a reload: a server with an equal value is left as it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from callboard.actors.broker.policy import BackendSettings
from callboard.codecs.caller_template import Templates
from callboard.config.front import FrontSettings
from callboard.config.remote import Remote
from callboard.config.report import Mistake
from callboard.transports.client.process import Command


@attrs.frozen(kw_only=True)
class PersonalCommand(Command):
    """A program that each caller has its own process of: something of the caller stands in its environment."""

    templates: Templates = attrs.field(factory=dict, repr=False)


@attrs.frozen(kw_only=True)
class PythonTarget:
    """A `Server` in a Python file, to be run in this process."""

    file: Path
    name: str | None
    """None: `server`, or the only one of that file."""

    def __str__(self) -> str:
        """As `callboard.server.load.load_server` takes it."""
        return str(self.file) if self.name is None else f"{self.file}:{self.name}"


@attrs.frozen(kw_only=True)
class OpenApiTarget:
    """An HTTP API with operations that are tools of a `Server` in this process."""

    document: str
    """Its OpenAPI document: a path, or a URL."""
    base: str | None = None
    """The URL of the API; None for what a document at a URL says, if it is there, too."""
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    digest: str = ""
    """Of a document in a file: another one is another server."""


BackendTarget: TypeAlias = Command | Remote | PythonTarget | OpenApiTarget

GrantName: TypeAlias = Literal[
    "client_credentials", "authorization_code", "workload_identity", "token_exchange", "user"
]


@attrs.frozen(kw_only=True)
class UpstreamAuth:
    """Settings for a token. Compared by value, unlike the tokens themselves."""

    grant: GrantName = "client_credentials"
    client_id: str | None = attrs.field(default=None, repr=False)
    client_secret: str | None = attrs.field(default=None, repr=False)
    private_key: str | None = attrs.field(default=None, repr=False)
    algorithm: str = attrs.field(default="ES256", repr=False)
    assertion_file: Path | None = attrs.field(default=None, repr=False)
    issuer: str | None = attrs.field(default=None, repr=False)
    scopes: tuple[str, ...] = attrs.field(default=(), repr=False)
    trust: tuple[str, ...] = attrs.field(default=(), repr=False)
    binds: bool = False
    audience: str | None = None
    resource: str | None = None
    requested_token_type: str | None = None


@attrs.frozen(kw_only=True)
class BackendSpec:
    """One server of the file. Two are equal if the same would run; where they stand in the file does not matter."""

    name: str
    target: BackendTarget = attrs.field(repr=False)
    settings: BackendSettings = attrs.field(factory=BackendSettings, repr=False)
    auth: UpstreamAuth | None = None
    """Its credentials; None for what the headers say, or none."""
    shown: str = attrs.field(default="", eq=False)
    """The target for people: as it is written in the file, without what could be a secret."""
    line: int = attrs.field(default=0, eq=False)
    unknown: tuple[str, ...] = attrs.field(default=(), eq=False, repr=False)
    """Keys of other hosts', which mean nothing here."""

    @property
    def prefix(self) -> str:
        """Prefix of its names; may be empty."""
        return self.name if self.settings.prefix is None else self.settings.prefix

    @property
    def is_personal(self) -> bool:
        """Whether each caller has connections of its own there, in both eras."""
        templates = getattr(self.target, "templates", None)
        return bool(templates) or (self.auth is not None and self.auth.grant in ("token_exchange", "user"))

    @property
    def transport(self) -> str:
        """How it is spoken to, in a word."""
        if isinstance(self.target, Command):
            return "stdio"
        if isinstance(self.target, PythonTarget | OpenApiTarget):
            return "in process"
        if self.target.url.startswith("ws"):
            return "websocket"
        return "http" if self.target.kind == "any" else self.target.kind


@attrs.frozen(kw_only=True)
class Configuration:
    """All servers of a file, as they stand in it."""

    file: Path
    backends: tuple[BackendSpec, ...] = ()
    front: FrontSettings = attrs.field(factory=FrontSettings)
    warnings: tuple[Mistake, ...] = attrs.field(default=(), eq=False)
    skips_invalid: bool = attrs.field(default=False, eq=False)
    """Whether an invalid server is left out, now and on a reload, in place of all of them."""


@attrs.frozen(kw_only=True)
class Difference:
    """The changes of a reload."""

    added: tuple[BackendSpec, ...] = ()
    removed: tuple[BackendSpec, ...] = ()
    changed: tuple[BackendSpec, ...] = ()
    """The servers after the reload."""
    is_front: bool = False
    """Whether settings of the whole broker have changed."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.is_front)


def difference(old: Configuration, new: Configuration) -> Difference:
    """Names of the servers that were added, removed or changed."""
    before = {spec.name: spec for spec in old.backends}
    after = {spec.name: spec for spec in new.backends}
    return Difference(
        added=tuple(spec for name, spec in after.items() if name not in before),
        removed=tuple(spec for name, spec in before.items() if name not in after),
        changed=tuple(spec for name, spec in after.items() if name in before and before[name] != spec),
        is_front=old.front != new.front,
    )
