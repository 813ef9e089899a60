"""Addresses, TLS and access: the flags that `run` and `serve` share."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import attrs
from cyclopts import Group, Parameter
from cyclopts.config import Env

from callboard.errors import CannotServe
from callboard.serve.banner import announce, announce_json
from callboard.serve.options import HttpEngine, Options, TraceAccept
from callboard.supervisor.audit import ON_STANDARD_ERROR, AuditArguments, WhenFull
from callboard.supervisor.logs import FORMAT_VARIABLE, LEVEL_VARIABLE, LEVELS
from callboard.transports.limits import Settings

if TYPE_CHECKING:
    from callboard.codecs.revisions import Revision

TRANSPORTS: Final = Group("Transports", sort_key=0)
ACCESS: Final = Group("TLS and access", sort_key=1)
LOGS: Final = Group("Logs", help="To standard error.", sort_key=2)
CLUSTER: Final = Group("Cluster", sort_key=3)
LIMITS: Final = Group("Limits", help="Sizes in bytes, times in seconds.", sort_key=4)

ENVIRONMENT: Final = Env("CALLBOARD_", command=False)
"""Every flag can be given as a variable: `CALLBOARD_HTTP=8000`, `CALLBOARD_WORKERS=auto`. A flag wins over it."""

FLAG: Final = Parameter(negative="", show_default=False)

Json = Annotated[bool, FLAG, Parameter(name="--json", help="Print JSON instead of text.")]


@attrs.frozen(kw_only=True)
class Where:
    """The flags, as they were given."""

    http: Annotated[
        str | None,
        Parameter(group=TRANSPORTS, help="Serve HTTP at HOST:PORT, [IPV6]:PORT, PORT (on 127.0.0.1) or unix:/path."),
    ] = None
    ws: Annotated[
        str | None,
        Parameter(group=TRANSPORTS, help="Serve WebSocket at an address of the same form; it may be that of --http."),
    ] = None
    stdio: Annotated[
        bool, FLAG, Parameter(group=TRANSPORTS, help="Serve over standard input and output, beside other transports.")
    ] = False
    http_engine: Annotated[
        HttpEngine,
        Parameter(group=TRANSPORTS, help="HTTP implementation. native: HTTP/1.1; asgi: HTTP/1.1 and HTTP/2."),
    ] = "native"
    legacy_sse: Annotated[
        bool, FLAG, Parameter(group=TRANSPORTS, help="Also serve the HTTP+SSE transport of 2024-11-05, at /sse.")
    ] = False
    revisions: Annotated[
        str | None, Parameter(group=TRANSPORTS, help="Protocol revisions to support, comma-separated. Default: all.")
    ] = None
    admin: Annotated[
        str | None,
        Parameter(group=TRANSPORTS, help="Serve the live page, /metrics, /livez and /readyz at an address of its own."),
    ] = None
    workers: Annotated[
        str,
        Parameter(group=TRANSPORTS, help="Worker processes that serve; auto: one for each core. Not for stdio."),
    ] = "1"
    tls_cert: Annotated[
        Path | None, Parameter(group=ACCESS, help="TLS certificate chain (PEM): serve https and wss.")
    ] = None
    tls_key: Annotated[Path | None, Parameter(group=ACCESS, help="Private key of the TLS certificate (PEM).")] = None
    allow_host: Annotated[
        list[str] | None,
        Parameter(
            group=ACCESS, negative="", help="Host header to accept, beside the address; * for any. May be repeated."
        ),
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        Parameter(group=ACCESS, negative="", help="Origin header to accept; * for any. May be repeated."),
    ] = None
    token_file: Annotated[
        Path | None,
        Parameter(
            group=ACCESS,
            help="Require a bearer token. File with a line `principal token [scope ...]` for each (see callboard "
            "token). Not for stdio.",
        ),
    ] = None

    authorization: Annotated[
        Path | None,
        Parameter(group=ACCESS, help="File with `[authorization]` and `[quotas]`: issuers of tokens, rules, quotas."),
    ] = None

    admin_token_file: Annotated[
        Path | None,
        Parameter(group=ACCESS, help="Tokens for the live page and /metrics; needed unless --admin is loopback."),
    ] = None

    admin_actions: Annotated[
        bool,
        FLAG,
        Parameter(group=ACCESS, help="Let operators with such a token act: restart, disconnect, drain."),
    ] = False

    state_key_file: Annotated[
        Path | None,
        Parameter(
            group=ACCESS,
            help="Keys that seal what clients hold: a line each, in hex or base64. Default: a new one.",
        ),
    ] = None

    log_level: Annotated[
        str | None,
        Parameter(group=LOGS, help="Lowest level that is logged: debug, info, warning or error. Default: info."),
    ] = None
    log_format: Annotated[
        Literal["text", "json"] | None, Parameter(group=LOGS, help="Format of log lines. Default: text.")
    ] = None
    access_log: Annotated[
        bool, FLAG, Parameter(group=LOGS, help="Log each request: client, method, tool, server, outcome, time.")
    ] = False
    audit: Annotated[
        Path | None,
        Parameter(
            group=LOGS,
            allow_leading_hyphen=True,
            help="Append a JSON line for each call and decision to this file; - for standard error.",
        ),
    ] = None
    audit_when_full: Annotated[
        WhenFull,
        Parameter(group=LOGS, help="When the audit log cannot be written: drop lines, or refuse new requests."),
    ] = "drop"
    audit_arguments: Annotated[
        AuditArguments,
        Parameter(group=LOGS, help="What audit lines say of arguments: nothing, or a keyed digest (key in FILE.key)."),
    ] = "none"
    record: Annotated[
        Path | None,
        Parameter(
            group=LOGS,
            help="Record messages to this file, as JSON lines without secrets. `serve`: those of its servers.",
        ),
    ] = None
    trace: Annotated[
        bool, FLAG, Parameter(group=LOGS, help="Make OpenTelemetry spans, with the SDK that the process has set up.")
    ] = False
    trace_accept: Annotated[
        TraceAccept | None,
        Parameter(group=LOGS, help="Clients whose trace is continued. Default: authenticated; always on loopback."),
    ] = None
    debug: Annotated[
        bool, FLAG, Parameter(group=LOGS, help="Log tracebacks of failed handlers, also where no terminal is.")
    ] = False

    cluster: Annotated[
        str | None,
        Parameter(group=CLUSTER, help="Be a node of a cluster. URL of its Redis or Valkey: redis[s]://HOST:PORT."),
    ] = None
    cluster_name: Annotated[
        str | None, Parameter(group=CLUSTER, help="Name of the cluster in that store. Default: callboard.")
    ] = None
    cluster_address: Annotated[
        str | None, Parameter(group=CLUSTER, help="Host or IP address at which other nodes reach this one; any port.")
    ] = None
    cluster_cert: Annotated[
        Path | None, Parameter(group=CLUSTER, help="Certificate of this node, for servers and clients (PEM).")
    ] = None
    cluster_key: Annotated[Path | None, Parameter(group=CLUSTER, help="Its private key (PEM).")] = None
    cluster_ca: Annotated[Path | None, Parameter(group=CLUSTER, help="CA of the certificates of all nodes (PEM).")] = (
        None
    )
    cluster_password_file: Annotated[
        Path | None, Parameter(group=CLUSTER, help="File with the password of the store.")
    ] = None

    @property
    def is_anywhere(self) -> bool:
        """Whether a place was named at all."""
        return self.stdio or self.http is not None or self.ws is not None

    @contextmanager
    def options(self, settings: Settings, *, json: bool) -> Iterator[Options]:
        """The options for `serve`. Claims standard output first. Raises `CannotServe`."""
        self._set_up_logs()
        options = Options(
            http=self.http,
            ws=self.ws,
            http_engine=self.http_engine,
            legacy_sse=self.legacy_sse,
            admin=self.admin,
            authorization=_path(self.authorization),
            admin_token_file=_path(self.admin_token_file),
            admin_actions=self.admin_actions,
            access_log=self.access_log,
            audit=_audit(self.audit),
            audit_when_full=self.audit_when_full,
            audit_arguments=self.audit_arguments,
            record=_path(self.record),
            trace=self.trace,
            trace_accept=self.trace_accept,
            tls_cert=_path(self.tls_cert),
            tls_key=_path(self.tls_key),
            allow_hosts=self.allow_host or (),
            allow_origins=self.allow_origin or (),
            settings=settings,
            workers=_count(self.workers),
            state_key_file=_path(self.state_key_file),
            cluster=self.cluster,
            cluster_name=self.cluster_name,
            cluster_address=self.cluster_address,
            cluster_cert=_path(self.cluster_cert),
            cluster_key=_path(self.cluster_key),
            cluster_ca=_path(self.cluster_ca),
            cluster_password_file=_path(self.cluster_password_file),
            on_ready=announce_json if json else announce,
        )
        with ExitStack() as stack:
            if self.stdio or (self.http is None and self.ws is None):
                from callboard.transports.server.stdio import claim_stdio

                options["stdio"] = stack.enter_context(claim_stdio())
            if self.token_file is not None:
                from callboard.serve.tokens import TokenFile

                options["authenticate"] = TokenFile(self.token_file)
            yield options

    def _set_up_logs(self) -> None:
        """By variables of the environment, since lines are logged before anything is set up, and in child processes."""
        if self.log_level is not None:
            if self.log_level.lower() not in LEVELS:
                raise CannotServe(f"--log-level {self.log_level[:20]}: expected one of {', '.join(LEVELS)}")
            os.environ[LEVEL_VARIABLE] = self.log_level.lower()
        if self.log_format is not None:
            os.environ[FORMAT_VARIABLE] = self.log_format
        if self.debug:
            from callboard.server.faults import DEBUG

            os.environ[DEBUG] = "1"

    def limited(self, spoken: "frozenset[Revision]") -> "frozenset[Revision]":
        """The revisions of *spoken* that `--revisions` names. Raises `CannotServe`."""
        if self.revisions is None:
            return spoken
        named = [name.strip() for name in self.revisions.split(",") if name.strip()]
        known = {revision.value: revision for revision in spoken}
        if not named or any(name not in known for name in named):
            raise CannotServe(
                f"--revisions {self.revisions[:200]}: unknown revision; supported: {', '.join(sorted(known))}"
            )
        return frozenset(known[name] for name in named)


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _audit(path: Path | None) -> str | None:
    if path is not None and str(path).startswith("-") and str(path) != ON_STANDARD_ERROR:
        raise CannotServe(f"--audit {str(path)[:20]}: expected a file, or - for standard error")  # the next flag
    return _path(path)


def _count(workers: str) -> int | Literal["auto"]:
    if workers == "auto":
        return "auto"
    if not workers.isdecimal():
        raise CannotServe(f"--workers {workers[:20]}: expected a number, or auto")
    return int(workers[:9])


NOWHERE: Final = Where()
