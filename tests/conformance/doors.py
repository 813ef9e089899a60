"""What the official suite is run against: one server behind every door; and what is lost across the eras."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import attrs

from tests.conformance.suite import EVERY, OLDER, SELECTIONS, Stage
from tests.served import Addresses, brokered, served

EVERYTHING: Final = "examples/everything.py:server"
POLLING: Final = ("--poll-after", "0.02", "--retry", "0.02")
"""Flags of a broker that lets clients poll: the tool of `server-sse-polling` closes the stream of its answer, which
means nothing where the broker reaches its server. It takes 50 ms."""

DOORS: Final[Mapping[str, Callable[[], AbstractContextManager[Addresses]]]] = {
    "native": partial(served, EVERYTHING),
    "asgi": partial(served, EVERYTHING, "--http-engine", "asgi"),
    "workers": partial(served, EVERYTHING, "--workers", "2"),
    "broker-stdio": partial(brokered, EVERYTHING, "stdio", front=POLLING),
    "broker-http": partial(brokered, EVERYTHING, "http", front=POLLING),
    "broker-ws": partial(brokered, EVERYTHING, "ws", front=POLLING),
    "broker-workers": partial(brokered, EVERYTHING, "stdio", front=("--workers", "2", *POLLING)),
}
"""A broker reaches the server by the transport in its name."""


def stages_of(door: str) -> tuple[Stage, ...]:
    """What is run there: the oldest revisions at each HTTP engine alone."""
    return (*EVERY, *OLDER) if door in ("native", "asgi") else EVERY


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
"""Scenarios of 2026-07-28 that a backend of 2025-11-25 cannot pass, whatever stands in front of it, and why."""


@attrs.frozen
class Across:
    """What clients of one revision are promised, in front of a backend that is limited to another."""

    client: str
    backend: str
    stages: tuple[Stage, ...]
    lossy: Mapping[str, str]

    def __call__(self) -> AbstractContextManager[Addresses]:
        return brokered(EVERYTHING, "http", "--revisions", self.backend)


ACROSS: Final = (
    Across(
        "2026-07-28",
        "2025-11-25",
        ((("--suite", "active", "--spec-version", "2026-07-28"), ("--suite", "draft")),),
        LOSSY,
    ),
    Across("2025-11-25", "2026-07-28", ((SELECTIONS["2025-11-25"],),), {}),
)
"""Without the extensions, which are another matter there: `tests/broker/test_task_matrix.py` has the tasks."""
