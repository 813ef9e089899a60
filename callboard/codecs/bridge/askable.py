"""The questions that a client can answer, as a short key that tells the connections to a legacy backend apart."""

from functools import lru_cache
from typing import Final, TypeAlias

from msgspec import UNSET

from callboard.codecs.revisions import (
    ClientCapabilities,
    ElicitationCapability,
    RootsCapability,
    SamplingCapability,
    declares,
)

Signature: TypeAlias = frozenset[str]
"""The capabilities that matter to a server, as dotted paths."""

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
    """The part of *capabilities* that is forwarded. Tasks and extensions are not."""
    if capabilities.roots is UNSET and capabilities.sampling is UNSET and capabilities.elicitation is UNSET:
        return NOTHING
    return frozenset(path for path in _PATHS if declares(capabilities, path))


@lru_cache(maxsize=64)
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
    return ClientCapabilities(
        roots=roots if "roots" in signature else UNSET,
        sampling=sampling if "sampling" in signature else UNSET,
        elicitation=elicitation if asks else UNSET,
    )
