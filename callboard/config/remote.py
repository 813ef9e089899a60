"""A server at a URL."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from callboard.codecs.caller_template import Templates

Kind: TypeAlias = Literal["any", "http", "sse"]


@attrs.frozen(kw_only=True)
class Remote:
    """A server at a URL, what is said to it with every request, and how it is spoken to, if that is known."""

    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    kind: Kind = "any"
    templates: Templates = attrs.field(factory=dict, repr=False)
    """Headers in which something of the caller stands."""
