"""The official suite through a broker: which backends stand behind it, and what the bridge cannot carry across eras."""

from collections.abc import Mapping
from typing import Final

import attrs

EVERYTHING: Final = "examples/everything.py:server"
TASKS: Final = "tests/conformance/tasks_server.py:server"
WHOLE: Final = "tests/conformance/whole_server.py:server"
"""Everything, tasks and skills as one server."""
TRANSPORTS: Final = ("stdio", "http", "ws")
POLLING: Final = ("--poll-after", "0.02")
"""Flags of a broker that lets clients poll: the tool of `server-sse-polling` closes the stream of its answer, which
means nothing where the broker reaches its server. It takes 50 ms."""
REVISIONS: Final = ("2025-11-25", "2026-07-28")

LOSSY: Final[Mapping[str, str]] = {
    "input-required-result-basic-elicitation": (
        'expects the key "user_name", which a legacy server has no way to give its question: '
        "the broker numbers questions itself (BRIDGING 5.2: keys r<round>.<n>)"
    ),
    "server-stateless": (
        "expects -32021 of a tool that needs sampling: no legacy server has that error. It sees that the client cannot "
        "sample (BRIDGING 3, exact pools), and says so in its own way, in the result of the tool"
    ),
}
"""Scenarios of 2026-07-28 that a backend of 2025-11-25 cannot pass, whoever stands in front of it, and why."""


@attrs.frozen
class Across:
    """A suite of one revision, in front of a backend that is limited to another."""

    suite: str
    backend: str
    lossy: Mapping[str, str]


ACROSS: Final = (
    Across("2026-07-28", "2025-11-25", LOSSY),
    Across("2025-11-25", "2026-07-28", {}),
)
