"""Promise 9: idle peers are cheap."""

import gc

import pytest

from benchmarks.hosting_servers import running
from benchmarks.listeners import CPU, KIB, gather, server_for
from benchmarks.listeners_crowd import Socket, Stream
from tests.figures import LONG, figure

COUNT = 5_000
"""Of each kind."""
REST = 90.0
"""Seconds: two pings of each socket, six comments to each stream."""


@pytest.mark.finding("faults-low-idle")
@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.skipif(not LONG, reason="it is about memory and CPU, which a busy machine does not tell")
def test_9_ten_thousand_idle_peers_cost_little() -> None:
    gc.disable()  # a collection among ten thousand clients would be counted as the server's delay
    try:
        with running(server_for(COUNT)) as server:
            found = gather(server, "streams and sessions", (Stream, Socket), COUNT, REST)
    finally:
        gc.enable()
    figure(
        "promise 9",
        f"{found.count} idle peers: {found.kib_each:.1f} KiB each, {found.cpu_at_rest:.2f} % of a core; told in p99 "
        f"{found.heard_p99:.2f} s",
        f"<= {KIB:g} KiB, <= {CPU:g} %",
    )
    assert found.kib_each <= KIB
    assert found.cpu_at_rest <= CPU
