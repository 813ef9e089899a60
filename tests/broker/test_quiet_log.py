"""What the log says of servers that print banners, and of those that stay dead."""

import pytest

from callboard.actors.broker.circuit import Circuit, CircuitState
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.client.duplex_link import BANNER, _banner


@pytest.mark.finding("newcomer-H5")
def test_a_server_that_stays_dead_is_reported_less_and_less_often() -> None:
    circuit = Circuit(BackendSettings().restarts)
    told = []
    for attempt in range(1, 101):
        if circuit.is_news:
            told.append(attempt)
        circuit.attempts += 1
    assert told == [1, 2, 3, 4, 8, 16, 32, 64]
    circuit.state = CircuitState.UP
    assert circuit.is_news  # one that was up is news again


@pytest.mark.finding("newcomer-H5")
def test_a_banner_on_standard_output_is_shown_and_a_message_that_is_not_quite_right_is_not() -> None:
    assert _banner(b"Welcome to FastMCP") == "Welcome to FastMCP"
    assert _banner(b"x" * 1000) == "x" * BANNER
    assert _banner(b' {"jsonrpc": "2.0", "result": "secret"') is None
