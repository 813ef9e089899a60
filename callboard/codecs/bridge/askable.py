"""The questions that a client can answer, and the extensions that it declares, as a key that tells the connections to a
legacy backend apart."""

from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET

from callboard.codecs.canonical import canonical
from callboard.codecs.revisions import (
    ClientCapabilities,
    ElicitationCapability,
    JSONObject,
    RootsCapability,
    SamplingCapability,
    declares,
)

Signature: TypeAlias = frozenset[str]
"""The capabilities that matter to a server: as dotted paths, and what else is declared as `declaration` writes it."""

NOTHING: Final[Signature] = frozenset()

_PATHS: Final = (
    "roots",
    "roots.list_changed",
    "sampling",
    "sampling.tools",
    "sampling.context",
    "elicitation.form",
    "elicitation.url",
)


def signature_of(capabilities: ClientCapabilities) -> Signature:
    """The questions that a client can answer. What it declares beside them: `Transparent.signature_of`."""
    if capabilities.roots is UNSET and capabilities.sampling is UNSET and capabilities.elicitation is UNSET:
        return NOTHING
    return frozenset(path for path in _PATHS if declares(capabilities, path))


def declaration(kind: str, name: str, settings: JSONObject) -> str:
    """An extension or an experimental capability of a client, as a part of a signature. Raises `ParseError`."""
    return canonical(msgspec.json.encode([kind, name, settings])).decode()


def _is_declaration(part: str) -> bool:
    return part.startswith("[")  # no path does


@lru_cache(maxsize=256)
def askable(signature: Signature) -> Signature:
    """The questions alone."""
    return frozenset(part for part in signature if not _is_declaration(part)) or NOTHING


@lru_cache(maxsize=256)
def _declarations(signature: Signature) -> tuple[tuple[str, str, Any], ...]:
    found = [msgspec.json.decode(part, type=tuple[str, str, Any]) for part in signature if _is_declaration(part)]
    return tuple(sorted(found, key=lambda one: one[:2]))


def has_extension(signature: Signature, name: str) -> bool:
    """Whether clients of *signature* have declared an extension."""
    return any(kind == "extensions" and name == one for kind, one, _ in _declarations(signature))


def words_for(signature: Signature) -> str:
    """A signature for people: names alone."""
    return ", ".join([*sorted(askable(signature)), *(name[:100] for _, name, _ in _declarations(signature))])


@lru_cache(maxsize=256)
def declared_by(signature: Signature) -> ClientCapabilities:
    """The capabilities that are declared to a backend. Its revision writes those that it has."""
    roots = RootsCapability(list_changed=True if "roots.list_changed" in signature else UNSET)
    sampling = SamplingCapability(
        tools={} if "sampling.tools" in signature else UNSET,
        context={} if "sampling.context" in signature else UNSET,
    )
    elicitation = ElicitationCapability(
        form={} if "elicitation.form" in signature else UNSET,
        url={} if "elicitation.url" in signature else UNSET,
    )
    asks = not signature.isdisjoint({"elicitation.form", "elicitation.url"})
    others: dict[str, dict[str, Any]] = {}
    for kind, name, settings in _declarations(signature):
        others.setdefault(kind, {})[name] = settings
    return ClientCapabilities(
        roots=roots if "roots" in signature else UNSET,
        sampling=sampling if "sampling" in signature else UNSET,
        elicitation=elicitation if asks else UNSET,
        extensions=others.get("extensions", UNSET),
        experimental=others.get("experimental", UNSET),
    )
