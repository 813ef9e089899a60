"""The keys of an issuer: when they are fetched, how often a stranger can cause that, and what becomes of old ones."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
from joserfc.jwk import ECKey
from trio.testing import MockClock

from callboard.authorization.keys import KEYS_TIME
from callboard.codecs.oauth.issuer import IssuerSettings
from callboard.codecs.oauth.jwks import (
    KEPT_LEAST,
    KEPT_MOST,
    KEPT_USUALLY,
    MAX_CHECKS,
    MAX_KEYS,
    RETRY_AFTER,
    UNKNOWN_EVERY,
    IssuerKeys,
    kept_for,
)
from callboard.errors import BadToken, FetchFailed, IssuerUnavailable
from tests.authorization.authority import (
    EC,
    ISSUER,
    RESOURCE,
    RSA,
    STRANGER,
    Authority,
    Gate,
    bearer,
    open_gate,
    open_real_gate,
    public,
    sign,
)
from tests.oauth.house import House, Said

NEW = ECKey.generate_key("P-256", {"kid": "new"})


async def refused(gate: Gate, token: str) -> BadToken:
    with pytest.raises(BadToken) as caught:
        await gate.verifier.verify(bearer(token))
    return caught.value


async def test_keys_are_fetched_when_they_are_first_needed_and_once(autojump_clock: MockClock) -> None:
    async with open_gate(Authority(delay=1)) as gate:
        await trio.sleep(1000)
        assert gate.authority.house.asked == []
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(gate.verifier.verify, bearer(gate.token(jti=str(number))))
        assert gate.authority.house.paths() == ["/.well-known/oauth-authorization-server", "/jwks"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("", KEPT_USUALLY),
        ("max-age=600", 600),
        ("public, Max-Age=600, must-revalidate", 600),
        ("max-age=1", KEPT_LEAST),
        ("no-store", KEPT_LEAST),
        ("max-age=999999999", KEPT_MOST),
        ("max-age=" + "9" * 500, KEPT_USUALLY),
        ("s-max-age=1", KEPT_USUALLY),
    ],
)
async def test_keys_are_kept_as_long_as_the_issuer_says_within_bounds(
    said: str, kept: float, autojump_clock: MockClock
) -> None:
    assert kept_for(said) == kept
    async with open_gate(Authority(cache_control=said)) as gate:
        for wait, fetches in ((0, 1), (kept - 1, 1), (1, 2)):
            await trio.sleep(wait)
            await gate.verifier.verify(bearer(gate.token(jti=str(wait))))
            assert gate.authority.visits("/jwks") == fetches
        assert gate.authority.visits("/.well-known/oauth-authorization-server") == 1


async def test_a_token_by_a_new_key_has_the_keys_fetched_once_more(autojump_clock: MockClock) -> None:
    async with open_gate(Authority(delay=1)) as gate:
        old = bearer(gate.token())
        await gate.verifier.verify(old)
        gate.authority.keys.append(public(NEW))
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(gate.verifier.verify, bearer(gate.token(NEW, "ES256", jti=str(number))))
        assert gate.authority.visits("/jwks") == 2
        assert gate.verifier.known(old.token) is not None


async def test_strangers_cause_one_fetch_in_thirty_seconds(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        for number in range(200):
            claims = gate.authority.claims(gate.verifier.clock())
            await refused(gate, sign(claims, NEW, "ES256", kid=f"random-{number}"))
            await refused(gate, gate.token(iss=f"https://{number}.example.com"))
        assert gate.authority.visits("/jwks") == 2
        for round_ in range(1, 4):
            await trio.sleep(UNKNOWN_EVERY)
            for _ in range(10):
                await refused(gate, gate.token(STRANGER))
            assert gate.authority.visits("/jwks") == 2 + round_
        assert len(gate.verifier.cache) == 0


async def test_the_first_token_by_an_unknown_key_costs_one_fetch(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        await refused(gate, gate.token(STRANGER))
        assert gate.authority.visits("/jwks") == 1


async def test_a_wrong_signature_by_a_known_key_is_no_reason_to_ask(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        good = gate.token()
        await gate.verifier.verify(bearer(good))
        for number in range(5):
            await refused(gate, f"{gate.token(jti=f'other-{number}').rpartition('.')[0]}.{good.rpartition('.')[2]}")
        assert gate.authority.visits("/jwks") == 1


async def test_a_key_that_is_taken_out_takes_its_tokens_with_it(autojump_clock: MockClock) -> None:
    async with open_gate(Authority(cache_control="max-age=300")) as gate:
        await trio.lowlevel.checkpoint()
        gone, stays = bearer(gate.token()), bearer(gate.token(EC, "ES256"))
        await gate.verifier.verify(gone)
        await gate.verifier.verify(stays)
        gate.authority.keys = [public(EC), public(NEW)]
        await gate.verifier.verify(bearer(gate.token(NEW, "ES256")))  # which has the keys fetched
        assert gate.verifier.known(gone.token) is None
        await refused(gate, gone.token)
        await gate.verifier.verify(stays)


FAULTS: dict[str, Callable[[Authority], Any]] = {
    "down": lambda authority: setattr(authority, "is_down", True),
    "an error": lambda authority: setattr(authority, "fault", Said(500)),
    "not JSON": lambda authority: setattr(authority, "fault", Said(200, b"<html>")),
    "a bomb": lambda authority: setattr(authority, "fault", Said(200, b'{"keys":' + b"[" * 30_000)),
    "no keys": lambda authority: setattr(authority, "fault", Said.json({"keys": []})),
    "keys of no use": lambda authority: setattr(authority, "fault", Said.json({"keys": [{"kty": "x"}, 3]})),
    "silent": lambda authority: setattr(authority, "delay", 1e6),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_failed_fetch_keeps_the_old_keys_for_a_day(
    fault: Callable[[Authority], Any], autojump_clock: MockClock
) -> None:
    async with open_gate(Authority(cache_control="max-age=300")) as gate:
        await gate.verifier.verify(bearer(gate.token()))
        fault(gate.authority)
        await trio.sleep(300)
        for number in range(3):
            await gate.verifier.verify(bearer(gate.token(jti=f"a{number}")))
        tries = len(gate.authority.house.asked)
        await trio.sleep(UNKNOWN_EVERY)
        before = trio.current_time()
        for number in range(3):
            await gate.verifier.verify(bearer(gate.token(jti=f"b{number}")))
        assert trio.current_time() == before  # nobody waits again for an issuer that failed
        await trio.testing.wait_all_tasks_blocked()
        assert len(gate.authority.house.asked) <= tries + 2  # its metadata and its keys
        await trio.sleep(KEPT_MOST + KEYS_TIME)
        with pytest.raises(IssuerUnavailable):
            await gate.verifier.verify(bearer(gate.token()))


async def test_while_keys_cannot_be_had_nobody_is_told_that_its_token_is_bad(autojump_clock: MockClock) -> None:
    async with open_gate(Authority(is_down=True)) as gate:
        for _ in range(10):
            with pytest.raises(IssuerUnavailable):
                await gate.verifier.verify(bearer(gate.token()))
        assert len(gate.authority.house.asked) == 1
        await refused(gate, gate.token(aud="other"))  # which needs no keys
        gate.authority.is_down = False
        await trio.sleep(RETRY_AFTER)
        await gate.verifier.verify(bearer(gate.token()))


async def test_a_new_key_cannot_be_told_from_an_unknown_one_while_the_issuer_is_down(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        await gate.verifier.verify(bearer(gate.token()))
        gate.authority.is_down = True
        for _ in range(5):
            with pytest.raises(IssuerUnavailable):
                await gate.verifier.verify(bearer(gate.token(NEW, "ES256")))
        await gate.verifier.verify(bearer(gate.token(jti="2")))
        assert gate.authority.visits("/jwks") == 2


async def test_keys_without_a_name_are_all_tried_up_to_a_bound(autojump_clock: MockClock) -> None:
    def nameless(key: Any) -> dict[str, Any]:
        return {name: value for name, value in public(key).items() if name != "kid"}

    others = [nameless(ECKey.generate_key("P-256")) for _ in range(MAX_CHECKS)]
    async with open_gate(Authority(keys=[*others[1:], nameless(EC), nameless(RSA)])) as gate:
        claims = gate.authority.claims(gate.verifier.clock())
        await gate.verifier.verify(bearer(sign(claims, EC, "ES256", kid=None)))
        await gate.verifier.verify(bearer(sign(claims, EC, "ES256")))
    async with open_gate(Authority(keys=[*others, nameless(EC)])) as gate:
        await refused(gate, sign(gate.authority.claims(gate.verifier.clock()), EC, "ES256", kid=None))


async def test_a_nameless_key_that_was_replaced_is_found(autojump_clock: MockClock) -> None:
    old, new = (ECKey.generate_key("P-256") for _ in range(2))
    async with open_gate(Authority(keys=[public(old)])) as gate:
        claims = gate.authority.claims(gate.verifier.clock())
        await gate.verifier.verify(bearer(sign(claims, old, "ES256")))
        gate.authority.keys = [public(new)]
        await gate.verifier.verify(bearer(sign(claims, new, "ES256")))
        await refused(gate, sign(claims, old, "ES256"))


def test_keys_that_are_of_no_use_are_skipped_one_by_one() -> None:
    good = public(RSA)
    private = RSA.as_dict(private=True) | {"kid": "private"}
    entries: list[Any] = [
        *(None, 3, [], {}, {"kty": "RSA"}, {"kty": "RSA", "n": 1, "e": 2}, {"kty": "oct", "k": "c2VjcmV0"}),
        public(EC, use="enc"),
        public(EC, key_ops=["deriveKey"]),
        public(EC, kid="k" * 300),
        public(EC, alg=7),
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"},
        {"kty": "RSA", "n": "A" * 100_000, "e": "AQAB"},
        {"kty": "RSA", "n": public(RSA)["n"][:171], "e": "AQAB", "kid": "weak"},
        private,
        good,
    ]
    keys = IssuerKeys.read(json.dumps({"keys": entries}).encode()).keys
    assert [key.key_id for key in keys] == ["private", "rsa"]
    assert not any(key.key.is_private for key in keys)


def test_no_more_than_a_hundred_keys_are_read() -> None:
    many = [public(EC, kid=str(number)) for number in range(MAX_KEYS + 50)]
    assert len(IssuerKeys.read(json.dumps({"keys": many}).encode()).keys) == MAX_KEYS


async def test_a_key_for_one_algorithm_is_for_no_other(autojump_clock: MockClock) -> None:
    async with open_gate(Authority(keys=[public(RSA, alg="RS256")])) as gate:
        await gate.verifier.verify(bearer(gate.token()))
        await refused(gate, gate.token(RSA, "PS256"))


async def test_keys_come_from_a_file_and_a_changed_file_is_read_again(tmp_path: Path, mock_clock: MockClock) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [public(RSA)]}))
    async with open_gate(jwks=file) as gate:
        await gate.verifier.verify(bearer(gate.token()))
        file.write_text(json.dumps({"keys": [public(NEW)]}))
        await gate.verifier.verify(bearer(gate.token(NEW, "ES256")))
        await refused(gate, gate.token())
        assert gate.authority.house.asked == []
        file.write_bytes(b" " * 70_000)
        mock_clock.jump(KEPT_LEAST)
        await gate.verifier.verify(bearer(gate.token(NEW, "ES256", jti="2")))
        file.unlink()
        mock_clock.jump(KEPT_LEAST)
        await gate.verifier.verify(bearer(gate.token(NEW, "ES256", jti="3")))


async def test_keys_may_stand_in_the_settings(autojump_clock: MockClock) -> None:
    async with open_gate(jwks={"keys": [public(RSA)]}) as gate:
        await gate.verifier.verify(bearer(gate.token()))
        await refused(gate, gate.token(EC, "ES256"))
        assert gate.authority.house.asked == []
        with pytest.raises(FetchFailed):
            await gate.verifier.use([IssuerSettings(issuer=ISSUER, jwks={"keys": []})])


@pytest.mark.parametrize("changes", [{"issuer": "https://evil.example.com"}, {"jwks_uri": None}, {"jwks_uri": 7}])
async def test_metadata_of_another_or_without_keys_is_not_believed(
    changes: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with open_gate(Authority(changes=changes)) as gate:
        with pytest.raises(IssuerUnavailable):
            await gate.verifier.verify(bearer(gate.token()))
        assert gate.authority.visits("/jwks") == 0


async def test_an_issuer_with_a_path_is_found_by_openid_discovery(autojump_clock: MockClock) -> None:
    authority = Authority(House(url=f"{ISSUER}/realms/x"))
    rooms = authority.house.rooms
    rooms["/realms/x/.well-known/openid-configuration"] = rooms.pop("/.well-known/oauth-authorization-server")
    rooms["/realms/x/jwks"] = rooms.pop("/jwks")
    async with open_gate(authority) as gate:
        assert (await gate.verifier.verify(bearer(gate.token()))).issuer == f"{ISSUER}/realms/x"
        await refused(gate, gate.token(iss=ISSUER))


async def test_a_crash_of_the_source_leaves_its_keys(autojump_clock: MockClock) -> None:
    async with open_gate() as gate:
        await gate.verifier.verify(bearer(gate.token()))
        address = gate.root.supervisor_of("issuers").child("issuer-1")
        address.kill("by a test")
        await gate.verifier.verify(bearer(gate.token(jti="2")))
        await trio.sleep(2)
        gate.authority.keys.append(public(NEW))
        await gate.verifier.verify(bearer(gate.token(NEW, "ES256")))


async def test_a_crash_during_a_fetch_is_made_up_for(autojump_clock: MockClock) -> None:
    async with open_gate(Authority(cache_control="max-age=300")) as gate:
        await gate.verifier.verify(bearer(gate.token()))
        gate.authority.is_down = True
        await trio.sleep(300)
        await gate.verifier.verify(bearer(gate.token(jti="2")))
        gate.authority.is_down, gate.authority.delay = False, 5
        await trio.sleep(UNKNOWN_EVERY)
        await gate.verifier.verify(bearer(gate.token(jti="3")))  # asks, and does not wait
        await trio.sleep(1)
        gate.root.supervisor_of("issuers").child("issuer-1").kill("by a test")
        await trio.sleep(5)
        before = gate.authority.visits("/jwks")
        await gate.verifier.verify(bearer(gate.token(jti="4")))
        await trio.sleep(20)
        assert gate.authority.visits("/jwks") == before + 1


# By real sockets.


@pytest.mark.parametrize(
    "fault",
    [Said(302, b"", {"location": "/elsewhere"}), Said(200, b" " * 70_000), Said(404), Said(204)],
    ids=["a redirect", "too large", "not there", "nothing"],
)
async def test_an_odd_answer_for_keys_is_no_keys(fault: Said) -> None:
    async with open_real_gate(Authority(fault=fault)) as gate:
        with pytest.raises(IssuerUnavailable):
            await gate.verifier.verify(bearer(gate.token()))
        assert gate.authority.visits("/elsewhere") == 0
        assert gate.authority.visits("/jwks") == 1


async def test_private_addresses_are_fetched_from_only_if_they_are_trusted() -> None:
    authority = Authority(changes={"jwks_uri": "https://10.0.0.1/jwks"})
    async with open_real_gate(authority) as gate:
        with pytest.raises(IssuerUnavailable):
            await gate.verifier.verify(bearer(gate.token()))
        assert authority.house.paths() == ["/.well-known/oauth-authorization-server"]


async def test_a_rotated_key_takes_effect_with_one_fetch_and_within_a_second() -> None:
    async with open_real_gate() as gate:
        others = bearer(gate.token())
        await gate.verifier.verify(others)
        gate.authority.keys.append(public(NEW))
        began = time.perf_counter()
        await gate.verifier.verify(bearer(gate.token(NEW, "ES256")))
        assert time.perf_counter() - began < 1
        assert gate.authority.visits("/jwks") == 2
        assert gate.verifier.known(others.token) is not None


@pytest.mark.parametrize(
    ("key", "changes"),
    [(RSA, {"aud": "http://127.0.0.1:1/mcp"}), (RSA, {"aud": None}), (RSA, {"exp": 1000}), (STRANGER, {})],
    ids=["wrong aud", "no aud", "expired", "unknown key"],
)
async def test_audience_validation_as_the_conformance_draft_has_it(key: Any, changes: dict[str, Any]) -> None:
    """`auth-token-audience-validation`: the server lives only during the run, and its keys are found lazily."""
    async with open_real_gate(Authority(keys=[public(RSA)])) as gate:
        claims = gate.authority.claims(time.time(), scope=None, aud=RESOURCE)
        await refused(gate, sign(gate.authority.claims(time.time(), **{"scope": None} | changes), key))
        caller = await gate.verifier.verify(bearer(sign(claims)))
        assert not caller.scopes
