"""Quotas: who is counted for what, and when the next request is let through."""

import pytest

from callboard.actors.quotas import Quotas, QuotaSettings
from callboard.actors.rate import Rate
from callboard.codecs.caller import TRUSTED, Caller
from callboard.codecs.revisions import LEGACY
from callboard.errors import OVERLOADED, Overloaded
from callboard.server import Server
from callboard.testing import Refusal
from tests.broker.front import peer

ALICE = Caller(principal="alice", tenant="acme")
BOB = Caller(principal="bob", tenant="acme")
CAROL = Caller(principal="carol", tenant="other")


def asked(quotas: Quotas, caller: Caller, now: float, tool: str = "x", method: str = "tools/call") -> float | None:
    """None if it was let through, else the seconds to wait."""
    try:
        quotas.count(caller, caller.key, method, tool, now)
    except Overloaded as error:
        return error.retry_after
    return None


def test_a_principal_has_its_own_quota() -> None:
    quotas = Quotas(QuotaSettings(principal=Rate(2, 10)))
    assert [asked(quotas, ALICE, 0) for _ in range(3)] == [None, None, pytest.approx(2.5)]
    assert asked(quotas, BOB, 0) is None
    assert asked(quotas, ALICE, 2.4) is not None
    assert asked(quotas, ALICE, 2.6) is None


def test_a_tenant_is_counted_together() -> None:
    quotas = Quotas(QuotaSettings(tenant=Rate(2, 10)))
    assert [asked(quotas, one, 0) is None for one in (ALICE, BOB, ALICE, CAROL)] == [True, True, False, True]
    assert [asked(quotas, Caller(principal="d"), 0) for _ in range(9)] == [None] * 9  # has no tenant


def test_a_tool_is_counted_for_all_callers() -> None:
    quotas = Quotas(QuotaSettings(tools={"slow_*": Rate(1, 10)}))
    assert asked(quotas, ALICE, 0, "slow_a") is None
    assert asked(quotas, CAROL, 0, "slow_b") is not None
    assert asked(quotas, CAROL, 0, "fast") is None
    assert asked(quotas, CAROL, 0, "slow_b", method="prompts/get") is None


def test_what_one_quota_refuses_counts_for_no_other() -> None:
    quotas = Quotas(QuotaSettings(principal=Rate(2, 10), all=Rate(1, 10)))
    assert asked(quotas, ALICE, 0) is None
    for _ in range(5):
        assert asked(quotas, ALICE, 0) is not None
    assert asked(quotas, ALICE, 10) is None
    assert asked(quotas, ALICE, 20) is None


def test_pings_and_trusted_peers_are_not_counted() -> None:
    quotas = Quotas(QuotaSettings(all=Rate(1, 10)))
    assert [asked(quotas, ALICE, 0, method="ping") for _ in range(5)] == [None] * 5
    assert [asked(quotas, TRUSTED, 0) for _ in range(5)] == [None] * 5


def test_the_wait_that_is_told_is_enough_and_no_more_than_needed() -> None:
    quotas = Quotas(QuotaSettings(all=Rate(7, 3)))
    now = 0.0
    for _ in range(100):
        wait = asked(quotas, ALICE, now)
        if wait is not None:
            assert asked(quotas, ALICE, now + wait - 0.001) is not None
            now += wait + 1e-9
            assert asked(quotas, ALICE, now) is None


async def test_a_session_on_a_connection_of_its_own_counts_as_a_request() -> None:
    async with Server("back").host() as host:
        host.quotas = Quotas(QuotaSettings(principal=Rate(1, 10)))
        async with peer(host, max(LEGACY), principal=ALICE) as client:
            with pytest.raises(Refusal) as refused:
                await client.request("tools/list")
            assert refused.value.code == OVERLOADED
        with pytest.raises(Refusal) as refused:
            async with peer(host, max(LEGACY), principal=ALICE):
                pass
        assert refused.value.code == OVERLOADED
