"""Where a run comes from: when, on which machine, with which versions, by which command. No secret stands in it."""

import json
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import attrs

from callboard._version import __version__
from callboard.config.redact import shown_command, shown_url
from callboard.supervisor.printable import clean

MAX_COMMAND: Final = 2000
"""Characters of a command line that a report repeats: more is a file, and not for people."""

MAX_LABEL: Final = 200
"""Characters of a label: it stands in a table."""

_SECRET: Final = re.compile(r"token|secret|passw|key|auth|credential|bearer|cookie", re.IGNORECASE)
_HEADER: Final = re.compile(r"(?P<name>[\w-]*(?:auth|token|secret|key|cookie)[\w-]*:\s*).+", re.IGNORECASE | re.DOTALL)
_BEARER: Final = re.compile(r"\b(?P<scheme>bearer|basic)\s+\S+", re.IGNORECASE)
_HIDDEN: Final = "***"

GENERATOR: Final = "--generator"
"""The flag whose value has names of machines, which reports do not tell."""


@attrs.frozen(kw_only=True)
class Provenance:
    """What a reader must know to place a report, months later and elsewhere. Unknown facts are empty."""

    started: str = ""
    """UTC, as ISO 8601 has it."""
    label: str = ""
    command: str = ""
    callboard: str = ""
    python: str = ""
    os: str = ""
    cpu: str = ""
    cores: int = 0
    """That the load generator may use."""

    @classmethod
    def here(cls, command: str = "", label: str = "", now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Self:
        """Of a run that begins now, on this machine."""
        return cls(
            started=now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            label=label,
            command=command,
            callboard=__version__,
            python=platform.python_version(),
            os=_system(),
            cpu=_processor(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        )

    @classmethod
    def of_json(cls, written: object) -> Self:
        """As `as_json` wrote it; what is missing, or is no such thing, is unknown."""
        given = written if isinstance(written, Mapping) else {}
        known = {field.name: field.default for field in attrs.fields(cls)}
        return cls(**{name: given[name] for name, usual in known.items() if isinstance(given.get(name), type(usual))})

    def as_json(self) -> dict[str, Any]:
        return attrs.asdict(self)

    @property
    def machine(self) -> str:
        """The machine in a few words; nothing if it is unknown."""
        cores = f"{self.cores} core{'' if self.cores == 1 else 's'}" if self.cores else ""
        return ", ".join(filter(None, (self.cpu, cores, self.os)))

    @property
    def versions(self) -> str:
        return f"callboard {self.callboard}, Python {self.python}" if self.callboard else ""

    def told(self) -> Sequence[tuple[str, str]]:
        """What is known, by title."""
        found = (
            ("label", self.label),
            ("date", self.started),
            ("machine", self.machine),
            ("versions", self.versions),
            ("command", self.command),
        )
        return [(title, text) for title, text in found if text]


def command_line(words: Sequence[str] | None = None) -> str:
    """The command that is running, without what could be a secret: headers, tokens, the user and the query of a URL,
    arguments of a tool with such a name, and how machines are reached. Empty if it is no command line."""
    given = sys.argv[1:] if words is None else list(words)
    if given[:1] != ["bench"]:
        return ""
    shown = shown_command([_shown(before, word) for before, word in pairwise(["", *given])])
    told = f"callboard {clean(' '.join(shown.split()))}"
    return told if len(told) <= MAX_COMMAND else f"{told[:MAX_COMMAND]} ..."


def _shown(before: str, word: str) -> str:
    if before == GENERATOR or word.startswith(f"{GENERATOR}="):
        return _HIDDEN if before == GENERATOR else f"{GENERATOR}={_HIDDEN}"
    return _without_secrets(word)


def _without_secrets(word: str) -> str:
    if word.startswith("{"):
        with suppress(ValueError):
            return json.dumps(_masked(json.loads(word)))
    if "://" in word and word.isprintable() and " " not in word:
        name, equals, url = word.partition("=") if word.startswith("-") else ("", "", word)
        return f"{name}{equals}{shown_url(url)}"
    word = _HEADER.sub(rf"\g<name>{_HIDDEN}", word) if not word.startswith("-") else word
    return _BEARER.sub(rf"\g<scheme> {_HIDDEN}", word)


def _masked(value: Any) -> Any:
    """Arguments of a tool, without those that are named like a secret."""
    if isinstance(value, dict):
        return {name: _HIDDEN if _SECRET.search(name) else _masked(one) for name, one in value.items()}
    return [_masked(one) for one in value] if isinstance(value, list) else value


def _system() -> str:
    name = ""
    with suppress(OSError):
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return ", ".join(filter(None, (name, f"{platform.system()} {platform.release()} {platform.machine()}".strip())))


def _processor() -> str:
    """The model, where the system tells."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "cpu model") and value.strip():
                return clean(" ".join(value.split()))
    return platform.processor()
