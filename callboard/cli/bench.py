"""`callboard bench`: load for any MCP server, and what comes of it."""

import json
import logging
import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import attrs
import structlog
import trio
from rich.console import Console

from callboard.bench.junit import cases, junit, junit_of_failure
from callboard.bench.lanes import is_here, resolved
from callboard.bench.page import page, search_plots
from callboard.bench.provenance import Provenance, command_line
from callboard.bench.result import BenchResult
from callboard.bench.summary import summary
from callboard.cli.arguments import BadArgument, read_headers
from callboard.cli.bench_flags import Load
from callboard.cli.bench_run import Run
from callboard.cli.bench_view import (
    STEP_HEADINGS,
    BenchView,
    histogram,
    notes,
    page_rows,
    page_tables,
    print_histogram,
    print_rows,
    print_table,
    probe_rows,
    rows,
    step_rows,
)
from callboard.cli.client import Target
from callboard.cli.client_run import ClientOptions, has_authorization, patience_of, revision_of, target_of
from callboard.cli.codes import Exit
from callboard.cli.complaints import MOST_LINES, complain, told
from callboard.cli.login import auth_of
from callboard.cli.profiles import check_profile
from callboard.cli.screen import Screen
from callboard.client.client import Common
from callboard.config.entry import Remote
from callboard.config.redact import shown_command, shown_url
from callboard.errors import CallboardError
from callboard.server.server import Server
from callboard.transports.client.process import Command

R = TypeVar("R", bound=Run)

_PLAIN: Final = ClientOptions()
_LIGHT: Final = Load()

LEAST_SECRET: Final = 6
"""Characters from which a word of a header's value is taken out of error texts. Shorter ones are words like *Basic*."""

BENCH_EXAMPLES: Final = """\
Examples:

  callboard bench http://127.0.0.1:8000/mcp               calls a read-only tool
  callboard bench URL --tool echo --args '{"text": "hi"}' --sessions 32
  callboard bench ws://127.0.0.1:8000/mcp --list --concurrency 64
  callboard bench URL --tool echo --rate 2000             open loop: stalls show
  callboard bench URL --tool echo --find-limit 'p99<50ms'  the highest rate
  callboard bench URL --concurrency 64 --processes 4      on several cores
  callboard bench URL --yes-remote --rate 20000 \\
    --generator 'ssh one callboard' --generator 'ssh two callboard'
  callboard bench weather.py:server --read weather://oslo/now
  callboard bench --tool get-env -- \\
    npx -y @modelcontextprotocol/server-everything
  callboard bench URL --rate 500 --fail-if 'p99>20ms' --fail-if 'errors>0'
  callboard bench URL --scenario play.toml --sessions 8   see below
  callboard bench URL --profile churn --concurrency 16    a session per request
  callboard bench URL --profile storm --tool slow         cancelled calls
  callboard bench URL --profile fanout --tool save --read notes://today
  callboard bench URL --profile idle --sessions 1000 --pid PID
  callboard bench app.py:server --profile chaos --every 2s --list
  callboard bench URL --profile isolation --tool echo \\
    --args '{"text": "{canary}"}' --token-file tokens.txt
  callboard bench URL --html report.html                  a page with plots
  callboard bench URL --duration 1h --metrics 9464        for Prometheus
  callboard bench URL --json > before.json                and later:
  callboard bench compare before.json after.json

A scenario has steps, or several [[script]] with steps and a weight each:

  answer.elicitation = { action = "accept", content = { agreed = true } }
  session = "each"                                      default: "lasts"
  steps = [
    { list = "tools" },
    { subscribe = "notes://today" },
    { call = "save", args = { text = "hi" }, label = "save a note" },
    { await = "notes://today", within = "2s" },
    { think = ["1s", "3s"] },
    { call = "slow", cancel_after = "50ms" },
    { task = "compute", label = "a long job" },
    { repeat = 3, steps = [{ read = "notes://today" }] },
  ]

Exit codes: 0 success; 1 a --fail-if limit was exceeded, --find-limit held at
no rate, or --profile isolation found answers mixed up; 2 wrong arguments;
3 cannot connect; 4 the server returned an error, or requires a login; 5 timed
out, connection lost, no response for 2 seconds, the server died, or a
--generator was lost; 130 Ctrl-C (the results so far are shown).
"""


def bench(target: Target, /, *, load: Load = _LIGHT, options: ClientOptions = _PLAIN) -> int:
    """Load-test a server: requests per second, latency percentiles, errors."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    screen = Screen(is_quiet=options.json)
    said = deque[str](maxlen=MOST_LINES)
    try:
        run = read_run(target, load, options, screen, said.append, Run)
        result = trio.run(run.go)
        if result is None:
            screen.say("callboard: no measurements")
            return Exit.INTERRUPTED
        code = _tell(result, load, screen, is_json=options.json)
    except (CallboardError, BadArgument) as error:
        _write_failure(target, load, error)
        return complain(screen, error, said, is_json=options.json)
    return Exit.INTERRUPTED if run.is_interrupted else code


def _write_failure(target: str, load: Load, error: Exception) -> None:
    """Also a run that did not begin is a test case that failed. What cannot be written is not the news here."""
    if load.junit is not None and not isinstance(error, BadArgument):
        with suppress(BadArgument):
            write(
                load.junit, junit_of_failure(_named(target), Provenance.here(command_line(), load.label), told(error))
            )


def read_run(
    target: str,
    load: Load,
    options: ClientOptions,
    screen: Screen,
    on_stderr: Callable[[str], None],
    make: Callable[..., R],
    tokens: Sequence[str] | None = None,
) -> R:
    """Everything that was typed, before anything is sent. Raises `BadArgument` and `CannotConnect`."""
    plan, work, headers = load.plan(), load.work(), read_headers(options.header or ())
    load.limits()
    for file in load.files:
        if not file.absolute().parent.is_dir():
            raise BadArgument(f"{file}: no such directory")
    scenario, every = load.script(), load.pause()
    there = resolved(target_of(target))
    check_profile(load.profile, there, work)
    if not load.yes_remote and not is_here(there):
        raise BadArgument("the target is on another machine: confirm with --yes-remote that you may load-test it")
    if load.generator and "://" not in target:
        raise BadArgument("--generator needs a URL, which each generator connects to from its machine")
    has_header = has_authorization(headers) or (isinstance(there, Remote) and has_authorization(there.headers))
    tokens = load.tokens() if tokens is None else tokens
    check_tokens(tokens, there, options, has_header=has_header)
    common = Common(
        revision=revision_of(options.revision),
        patience=patience_of(options.timeout),
        headers=with_token(headers, tokens[0]) if tokens else headers,
        tls=options.context(),
        auth=auth_of(options, screen, trio.CancelScope(), has_header=has_header or bool(tokens)),
        on_stderr=on_stderr,
        check_results=False,  # nothing is asked but what was asked for
    )
    return make(
        name=shown_command(there.args) if isinstance(there, Command) and target.startswith("[") else _named(target),
        there=there,
        common=common,
        plan=plan,
        work=work,
        provenance=Provenance.here(command_line(), load.label_text()),
        secrets=[word for value in (*headers.values(), *tokens) for word in value.split() if len(word) >= LEAST_SECRET],
        identities=[Common(**{**common, "headers": with_token(headers, token)}) for token in tokens],
        settings={**load.described(plan), "identities": len(tokens) or 1, "is_in_process": isinstance(there, Server)},
        view=BenchView(screen),
        has_timeout=options.timeout is not None,
        # A login by a user may take its time.
        patience=math.inf if options.timeout is None or options.auth in ("browser", "headless") else options.timeout,
        profile=load.profile,
        scenario=scenario,
        every=every,
        conditions=load.conditions(),
        pids=set() if load.pid is None else {load.pid},
        metrics=load.metrics_at(),
        processes=load.parts,
        order=order_of(target, load, options, tokens) if load.parts > 1 or load.generator else {},
        generators=load.generators(),
    )


def check_tokens(
    tokens: Sequence[str], there: Command | Remote | Server, options: ClientOptions, *, has_header: bool
) -> None:
    """Raises `BadArgument`."""
    if tokens and not isinstance(there, Remote):
        raise BadArgument("--token-file needs a URL: a command takes no headers")
    if tokens and (has_header or options.auth not in ("kept", "none")):
        raise BadArgument("--token-file excludes --auth and an Authorization header")


def with_token(headers: Mapping[str, str], token: str) -> dict[str, str]:
    return {**headers, "Authorization": f"Bearer {token}"}


_MINE: Final = ("csv", "html", "summary", "junit", "fail_if", "metrics", "generator", "token_file")
"""Flags that are for the parent of generators alone."""


def order_of(target: str, load: Load, options: ClientOptions, tokens: Sequence[str]) -> Mapping[str, Any]:
    """The order for each worker process, without its requests and its part. A login happens here."""
    mine: dict[str, Any] = {**dict.fromkeys(_MINE), "processes": 1}
    login = {"auth": "kept"} if options.auth in ("browser", "headless") else {}
    return {
        "target": target,
        "load": {**attrs.asdict(load), **mine},
        "options": {**attrs.asdict(options), **login, "json": True},
        "tokens": list(tokens),
    }


def _named(target: str) -> str:
    """The target for reports, without the user and the query of a URL, which may contain a password or a key."""
    return shown_url(target).partition("?")[0] if "://" in target else target


def _tell(result: BenchResult, load: Load, screen: Screen, *, is_json: bool) -> Exit:
    """Print what was measured, write what was asked for, and hold it to its limits."""
    if is_json:
        sys.stdout.write(json.dumps(result.as_json(), indent=2) + "\n")
    else:
        print_rows(Console(), rows(result))
        print_histogram(Console(), histogram(result))
        print_table(Console(), (STEP_HEADINGS, *step_rows(result)))
        print_table(Console(), probe_rows(result))
    for note in () if is_json else notes(result):
        screen.say(f"callboard: {note}")
    if load.csv is not None:
        write(load.csv, result.as_csv())
    if load.html is not None:
        title = f"callboard bench {result.target}" + (f": {load.label_text()}" if load.label else "")
        write(
            load.html,
            page(
                title, {"": result}, page_rows(result), list(notes(result)), page_tables(result), search_plots(result)
            ),
        )
    if load.summary is not None:
        write(load.summary, summary(result, rows(result), list(cases(result, load.limits()))), mode="a")
    if load.junit is not None:
        write(load.junit, junit(result, list(cases(result, load.limits())), rows(result)))
    broken = [limit for limit in load.limits() if limit.broken_by(result)]
    for limit in broken:
        screen.say(f"callboard: limit exceeded: {limit.text} (measured: {limit.told(result)})")
    if not result.count:
        few = "only requests of the warm-up were answered: the rate is too high for the server"
        screen.say(f"callboard: {few if result.tally.early else 'no request was answered'}")
    if broken or any(case.failure for case in cases(result, ()) if case.is_verdict):
        return Exit.LIMIT_BROKEN
    return (
        Exit.REFUSED if not result.count else Exit.LOST if result.has_stalled or result.lost_generators else Exit.FINE
    )


def write(file: Path, text: str, *, mode: Literal["w", "a"] = "w") -> None:
    """Raises `BadArgument`."""
    try:
        with file.open(mode, encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise BadArgument(f"{file}: {error.strerror or error}") from None
