"""What one account may hold of what all use together."""

import pytest

from callboard.actors.shares import LOCAL, Hold, Shares, account_of, anonymous_at
from callboard.codecs.caller import ANYBODY
from callboard.errors import Overloaded


def test_an_account_is_the_principal_or_the_address_of_an_anonymous_client() -> None:
    assert account_of("alice", anonymous_at("10.0.0.1")) == "alice"
    assert account_of(ANYBODY, anonymous_at("10.0.0.1")) == "anonymous@10.0.0.1"
    assert account_of(ANYBODY, anonymous_at("")) == LOCAL


@pytest.mark.finding("security-11")
def test_a_principal_holds_its_share_and_the_others_theirs() -> None:
    shares = Shares("sessions", most=10, each=3)
    shares.take("alice", 3)
    with pytest.raises(Overloaded, match="too many sessions") as refused:
        shares.take("alice")
    assert not refused.value.for_all
    shares.take("bob")
    shares.give_back("alice")
    shares.take("alice")
    assert (shares.held("alice"), shares.held("bob"), shares.total, len(shares)) == (3, 1, 4, 2)


@pytest.mark.finding("security-11")
def test_one_address_never_takes_all() -> None:
    shares = Shares("sessions", most=100, each=3)
    one, another = anonymous_at("192.0.2.1"), anonymous_at("192.0.2.2")
    shares.take(one, 75)
    with pytest.raises(Overloaded) as refused:
        shares.take(one)
    assert not refused.value.for_all
    shares.take(another, 25)
    with pytest.raises(Overloaded) as refused:
        shares.take("alice")
    assert refused.value.for_all


def test_what_is_refused_is_not_held_and_what_is_given_back_leaves_nothing() -> None:
    shares = Shares("bytes", most=10, each=10)
    shares.take("alice", 4)
    with pytest.raises(Overloaded):
        shares.take("bob", 7)
    assert (shares.total, len(shares)) == (4, 1)
    shares.give_back("alice", 4)
    assert (shares.total, len(shares)) == (0, 0)


@pytest.mark.finding("security-11")
def test_all_that_one_account_holds_is_one_figure() -> None:
    memory = Shares("bytes are in use", most=1000, each=100, each_address=100)
    sessions = Shares("sessions", most=50, each=50, weight=30, ledger=memory)
    bodies = Shares("bytes are being sent", most=500, each=500, ledger=memory)
    one = anonymous_at("192.0.2.1")
    sessions.take(one, 2)
    bodies.take(one, 40)
    with pytest.raises(Overloaded, match="too many bytes are in use"):
        sessions.take(one)
    assert (sessions.held(one), memory.held(one)) == (2, 100)
    sessions.take("alice")
    sessions.give_back(one)
    bodies.take(one, 30)
    assert (memory.held(one), memory.held("alice"), memory.total) == (100, 30, 130)
    sessions.give_back(one)
    bodies.give_back(one, 70)
    sessions.give_back("alice")
    assert (memory.total, len(memory)) == (0, 0)


def test_a_hold_lasts_as_long_as_what_holds_it() -> None:
    shares = Shares("bytes wait to be read", most=10, each=10)
    message = [Hold(shares, "alice", 7)]
    with pytest.raises(Overloaded):
        Hold(shares, "bob", 7)
    assert shares.total == 7
    message.clear()
    assert (shares.total, len(shares)) == (0, 0)
