"""`callboard token`: tokens for `--token-file` and `--admin-token-file`, of which the file has hashes alone."""

import json as json_text
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from callboard.cli.codes import Exit
from callboard.cli.serve_flags import Json
from callboard.errors import CannotServe
from callboard.serve.token_line import new_line, read_line, time_after, write_time
from callboard.serve.tokens import read_lines, read_text
from callboard.supervisor.printable import clean

EXAMPLES: Final = """\
Examples:

  callboard token new ada --file tokens.txt
  callboard token new bob --scope files:read --expires 90d --file tokens.txt
  callboard token list tokens.txt
  callboard token revoke tokens.txt ada

A running server reads the file again within two seconds.

Exit codes: 0 done; 2 wrong arguments, or the file cannot be used.
"""

HINT: Final = "Keep the token: it is not stored, and cannot be shown again."

_File = Annotated[Path, Parameter(name="FILE", help="Token file.")]
_Principal = Annotated[str, Parameter(name="PRINCIPAL", help="Name of the client.")]


def new(
    principal: _Principal,
    /,
    *,
    scope: Annotated[
        list[str] | None, Parameter(negative="", help="Scope that the token grants. May be repeated.")
    ] = None,
    tenant: Annotated[str, Parameter(help="Organisation that the client belongs to.", show_default=False)] = "",
    expires: Annotated[
        str | None, Parameter(help="When the token ends: after 90d, 12h or 4w, or at 2027-01-01.")
    ] = None,
    file: Annotated[
        Path | None, Parameter(help="Add the line to this file; it is made if there is none. Default: print the line.")
    ] = None,
    json: Json = False,
) -> int:
    """Make a token and print it, once; the token file gets its hash."""
    try:
        ends = None if expires is None else _end(expires)
        token, line = new_line(principal, scope or (), tenant, ends)
    except ValueError as error:
        raise CannotServe(str(error)) from None
    if ends is not None and ends <= time.time():
        raise CannotServe(f"--expires {write_time(ends)}: is over")
    if file is not None:
        _change(file, lambda text: f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n", makes=True)
    if json:
        sys.stdout.write(json_text.dumps({"token": token, "line": str(line)}) + "\n")
        return Exit.FINE
    sys.stdout.write(f"{token}\n" if file is not None else f"{token}\n{line}\n")
    sys.stdout.flush()
    added = "The second line is for the token file." if file is None else f"Its hash was added to {file}."
    sys.stderr.write(f"{HINT} {added}\n")
    return Exit.FINE


def _end(written: str) -> float:
    """Raises ValueError."""
    try:
        return time_after(written, time.time())
    except ValueError:
        raise ValueError(
            f"--expires {written[:50]}: expected a span such as 90d, 12h or 4w, or a time such as 2027-01-01"
        ) from None


def list_(file: _File, /, *, json: Json = False) -> int:
    """List the tokens of a file: principal, tenant, end and scopes; never a token or its hash."""
    now = time.time()
    lines = read_lines(file, read_text(file))
    told = [
        {
            "principal": line.caller.principal,
            "tenant": line.caller.tenant,
            "expires": None if line.caller.expires is None else write_time(line.caller.expires),
            "is_expired": line.caller.expires is not None and line.caller.expires <= now,
            "is_hashed": line.is_hashed,
            "scopes": sorted(line.caller.scopes),
        }
        for line in lines
    ]
    if json:
        sys.stdout.write(json_text.dumps({"tokens": told}) + "\n")
        return Exit.FINE
    for line in lines:
        caller, ends = line.caller, "never ends"
        if caller.expires is not None:
            ends = f"{'ended' if caller.expires <= now else 'ends'} {write_time(caller.expires)}"
        kept = "hash" if line.is_hashed else "clear text"
        words = (caller.principal, caller.tenant or "-", ends, kept, " ".join(sorted(caller.scopes)) or "-")
        sys.stdout.write("\t".join(clean(word) for word in words) + "\n")
    return Exit.FINE


def revoke(
    file: _File,
    principal: _Principal,
    /,
    *,
    tenant: Annotated[
        str | None, Parameter(help="Only the tokens of this tenant. Default: of any.", show_default=False)
    ] = None,
    json: Json = False,
) -> int:
    """Remove all tokens of a principal from a file. Its sessions at a running server end."""
    removed = 0

    def is_theirs(written: str) -> bool:
        caller = None if (line := read_line(written)) is None else line.caller
        return caller is not None and caller.principal == principal and tenant in (None, caller.tenant)

    def without(text: str) -> str:
        nonlocal removed
        lines = text.splitlines()
        left = [line for line in lines if not is_theirs(line)]
        removed = len(lines) - len(left)
        if not removed:
            raise CannotServe(f"{file}: no token of {clean(principal)[:100]}")
        # A server that runs takes an empty file for one that is not written yet, and this for what it says.
        return "\n".join(left or ["# all tokens are revoked"]) + "\n"

    _change(file, without)
    told = json_text.dumps({"revoked": removed}) if json else f"{removed} token{'s' * (removed > 1)} revoked"
    sys.stdout.write(told + "\n")
    return Exit.FINE


def _change(path: Path, change: Callable[[str], str], *, makes: bool = False) -> None:
    """Replace a token file by a changed one, as a whole: a server never reads half of it. Raises `CannotServe`."""
    path = path.expanduser().resolve()  # what a link points to is changed, and not the link
    try:
        if makes:
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with _alone(path) as handle:
            text = read_text(path, is_running=True)
            changed = change(text)
            read_lines(path, changed)  # a line that was wrong before is not ours to keep silent about
            _replace(path, changed, os.fstat(handle))
    except OSError as error:
        raise CannotServe(f"{path}: {error.strerror or error}") from None


def _replace(path: Path, text: str, like: os.stat_result) -> None:
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
            if os.name == "posix":
                if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(handle, like.st_uid, like.st_gid)  # the server's user must still be able to read it
                os.fchmod(handle, like.st_mode & 0o777)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _alone(path: Path) -> Iterator[int]:
    """Exclude other commands that change the file. POSIX has locks; elsewhere the later of two wins. Raises OSError."""
    while True:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            if os.name == "posix":
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX)
                if not os.path.samestat(os.fstat(handle), path.stat()):
                    continue  # the other command has replaced it
            yield handle
            return
        finally:
            os.close(handle)


APP: Final = App(name="token", help="Make, list and revoke tokens of a token file.", help_epilogue=EXAMPLES)
APP.command(new, name="new")
APP.command(list_, name="list")
APP.command(revoke, name="revoke")
