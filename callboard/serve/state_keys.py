"""The file of keys that seal what clients hold: states of requests, cursors, ids of sessions.

Without it each start draws a new key, and what clients hold from before is worth nothing.
"""

import base64
import binascii
import stat
from pathlib import Path
from typing import Final

from callboard.config.files import NotRegular, read_file
from callboard.errors import CannotServe

MAX_FILE: Final = 64 * 1024
KEY_SIZE: Final = 32


def read_state_keys(path: Path) -> list[bytes]:
    """The keys, one a line, in hex or base64: the first seals, all of them open. Raises `CannotServe`."""
    try:
        contents = read_file(path, MAX_FILE)
        lines = contents.data.decode("ascii").splitlines()
    except (OSError, NotRegular) as error:
        raise CannotServe(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CannotServe(f"{path}: not ASCII") from None
    if contents.mode & 0o077 and stat.S_ISREG(contents.mode):
        raise CannotServe(f"{path}: other users can read it; run chmod 600 on it")
    keys = [_key(path, number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not keys or len(set(keys)) != len(keys):
        raise CannotServe(f"{path}: expected at least one key, and each only once")
    return keys


def _key(path: Path, number: int, text: str) -> bytes:
    try:
        is_hex = len(text) == 2 * KEY_SIZE
        key = bytes.fromhex(text) if is_hex else base64.b64decode(text, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_SIZE:
        raise CannotServe(f"{path}:{number}: expected {KEY_SIZE} bytes in hex or base64, as from openssl rand -hex 32")
    return key
