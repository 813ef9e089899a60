"""The challenges in `WWW-Authenticate` of a 401 or 403."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

MAX_CHALLENGES: Final = 16
"""Most challenges that are read of one answer; the rest is not looked at."""

MAX_HEADER: Final = 16 * 1024
"""Longest `WWW-Authenticate` that is read, in characters; the rest is not looked at."""

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  # HTTP's word for a word
_GAP: Final = re.compile(r"[ \t,]*")
_PARAMETER: Final = re.compile(
    rf'({_TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"=]+)(?=[ \t]*(?:,|$)))', re.DOTALL
)
_SCHEME: Final = re.compile(rf"({_TOKEN})(?:[ \t]+|(?=,)|$)")
_TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))")


@attrs.frozen
class Challenge:
    """One way in which a server wants to be convinced. Scheme and names of parameters are lower case."""

    scheme: str
    parameters: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def resource_metadata(self) -> str | None:
        """URL of the server's metadata."""
        return self.parameters.get("resource_metadata")

    @property
    def scope(self) -> str | None:
        """Scopes that a token must have."""
        return self.parameters.get("scope")

    @property
    def error(self) -> str | None:
        return self.parameters.get("error")


def read_challenges(values: Iterable[bytes]) -> list[Challenge]:
    """Every challenge in the values of `WWW-Authenticate`, as far as they can be read."""
    found: list[Challenge] = []
    for value in values:
        found += _read(value.decode("latin-1")[:MAX_HEADER])
    return found[:MAX_CHALLENGES]


def wanted(challenges: Iterable[Challenge]) -> Challenge:
    """The challenge that a token answers, a bound one before a plain one; an empty one if there is none.

    What it does not say, the others that a token answers may: it is one server, and often two programs that speak.
    """
    all_of_them = list(challenges)
    known = [each for scheme in ("dpop", "bearer") for each in all_of_them if each.scheme == scheme]
    if not known:
        return Challenge("")
    return Challenge(
        known[0].scheme, {name: value for each in reversed(known) for name, value in each.parameters.items()}
    )


def _read(text: str) -> list[Challenge]:
    found: list[tuple[str, dict[str, str]]] = []
    at = 0
    while True:
        at = _end(_GAP, text, at)
        parameter = _PARAMETER.match(text, at) if found else None
        if parameter is not None:
            name, quoted, plain = parameter.groups()
            value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            found[-1][1].setdefault(name.lower(), value)
            at = parameter.end()
            continue
        scheme = _SCHEME.match(text, at)
        if scheme is None:
            return [Challenge(*each) for each in found]
        found.append((scheme[1].lower(), {}))
        at = scheme.end()
        if _PARAMETER.match(text, at) is None and scheme[0] != scheme[1]:
            at = _end(_TOKEN68, text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()
