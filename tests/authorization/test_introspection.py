"""Tokens that only their issuer can read: it is asked, as seldom as can be."""

from typing import Any

import pytest
import trio
from joserfc import jwt
from joserfc.jwk import ECKey
from trio.testing import MockClock

from callboard.authorization import introspection
from callboard.authorization.introspection import AT_ONCE, PAUSE, REFUSED_FOR
from callboard.authorization.verifier import OPEN_FOR, TOLD_FOR
from callboard.codecs.oauth.issuer import IntrospectionSettings, IssuerSettings
from callboard.errors import BadToken, IssuerUnavailable
from tests.authorization.authority import ISSUER, RESOURCE, START, Authority, Gate, bearer, open_gate, open_real_gate
from tests.oauth.house import Said
from tests.oauth.town import basic

ASKS = IntrospectionSettings(client_id="gate", client_secret="hush")  # noqa: S106  # of a test
SAID: dict[str, Any] = {"active": True, "aud": RESOURCE, "sub": "alice", "client_id": "app", "scope": "read"}


def authority(**changes: Any) -> Authority:
    return Authority(tokens={"opaque": {k: v for k, v in (SAID | changes).items() if v is not None}})


async def refused(gate: Gate, token: str = "opaque") -> BadToken:  # noqa: S107  # of a test
    with pytest.raises(BadToken) as caught:
        await gate.verifier.verify(bearer(token))
    return caught.value


async def test_an_opaque_token_is_good_if_its_issuer_says_so(autojump_clock: MockClock) -> None:
    async with open_gate(authority(exp=START + 600), introspection=ASKS) as gate:
        caller = await gate.verifier.verify(bearer("opaque"))
        assert (caller.principal, caller.client_id, caller.scopes) == ("alice", "app", frozenset(("read",)))
        assert (caller.issuer, caller.expires) == (ISSUER, START + 600)
        [asked] = [asked for asked in gate.authority.house.asked if asked.path == "/introspect"]
        assert basic(asked) == ("gate", "hush")
        assert asked.form == {"token": "opaque", "token_type_hint": "access_token", "client_id": "gate"}


@pytest.mark.parametrize(
    "changes",
    [
        *({"active": False}, {"active": None}, {"active": "true"}, {"active": 1}),
        *({"aud": None}, {"aud": "other"}, {"iss": "https://evil.example.com"}, {"sub": None, "client_id": None}),
        *({"exp": "soon"}, {"nbf": START + 500}, {"cnf": {"kid": "x"}}),
    ],
)
async def test_what_the_issuer_says_is_looked_at_as_a_token_is(
    changes: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with open_gate(authority(**changes), introspection=ASKS) as gate:
        assert (await refused(gate)).description == "the token is invalid"


async def test_an_expired_token_is_called_that(autojump_clock: MockClock) -> None:
    async with open_gate(authority(exp=START - 100), introspection=ASKS) as gate:
        assert (await refused(gate)).description == "the token has expired"


async def test_a_token_is_asked_about_once_a_minute(autojump_clock: MockClock) -> None:
    async with open_gate(authority(), introspection=ASKS) as gate:
        gate.authority.delay = 1
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(gate.verifier.verify, bearer("opaque"))
        await trio.sleep(TOLD_FOR - 1)
        assert gate.verifier.known(bearer("opaque").token) is not None
        await gate.verifier.verify(bearer("opaque"))
        assert gate.authority.visits("/introspect") == 1
        gate.authority.tokens.clear()  # taken back
        await trio.sleep(1)
        await refused(gate)
        assert gate.authority.visits("/introspect") == 2


async def test_a_token_that_ends_is_not_known_any_longer(autojump_clock: MockClock) -> None:
    async with open_gate(authority(exp=START + 5), introspection=ASKS, leeway=0) as gate:
        await gate.verifier.verify(bearer("opaque"))
        await trio.sleep(5)
        assert gate.verifier.known(bearer("opaque").token) is None


async def test_a_refused_token_stays_refused_for_a_while(autojump_clock: MockClock) -> None:
    async with open_gate(authority(), introspection=ASKS) as gate:
        for _ in range(20):
            await refused(gate, "unknown")
        assert gate.authority.visits("/introspect") == 1
        gate.authority.tokens["unknown"] = SAID
        await refused(gate, "unknown")
        await trio.sleep(REFUSED_FOR)
        await gate.verifier.verify(bearer("unknown"))
        gate.authority.tokens.pop("opaque")
        await refused(gate)
        gate.authority.tokens["opaque"] = SAID
        gate.verifier.clear()
        await gate.verifier.verify(bearer("opaque"))


async def test_strangers_fill_no_memory_and_drive_no_good_token_out(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introspection, "MAX_REFUSED", 5)
    async with open_gate(authority(), introspection=ASKS) as gate:
        await gate.verifier.verify(bearer("opaque"))
        for number in range(20):
            await refused(gate, f"random-{number}")
        assert len(gate.verifier._sources[ISSUER]._refused) == 5  # type: ignore[union-attr]
        assert gate.verifier.known(bearer("opaque").token) is not None


async def test_only_so_many_questions_are_asked_at_once(autojump_clock: MockClock) -> None:
    async with open_gate(
        Authority(delay=1), introspection=IntrospectionSettings(client_id="g", endpoint=f"{ISSUER}/introspect")
    ) as gate:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(3 * AT_ONCE):
                nursery.start_soon(refused, gate, f"random-{number}")
        assert trio.current_time() - began == 3


@pytest.mark.parametrize(
    "fault",
    [Said(500), Said(401), Said(200, b"<html>"), Said(200, b"[]"), Said(200, b'{"active":true,"active":false}')],
)
async def test_an_issuer_that_does_not_answer_refuses_nobody(fault: Said, autojump_clock: MockClock) -> None:
    async with open_gate(authority(), introspection=ASKS) as gate:
        gate.authority.fault = fault
        for _ in range(10):
            with pytest.raises(IssuerUnavailable):
                await gate.verifier.verify(bearer("opaque"))
        assert gate.authority.visits("/introspect") == 1
        gate.authority.fault = None
        await trio.sleep(PAUSE)
        await gate.verifier.verify(bearer("opaque"))


@pytest.mark.parametrize("status", [400, 413, 431])
async def test_a_token_that_the_issuer_cannot_read_is_refused_and_others_are_asked_about(
    status: int, autojump_clock: MockClock
) -> None:
    async with open_gate(authority(exp=START + 600), introspection=ASKS) as gate:
        gate.authority.fault = Said(status)
        await refused(gate, "odd")
        gate.authority.fault = None
        assert (await gate.verifier.verify(bearer("opaque"))).principal


async def test_what_is_open_by_a_token_without_an_end_is_looked_at_again(autojump_clock: MockClock) -> None:
    async with open_gate(authority(), introspection=ASKS) as gate:
        caller = await gate.verifier.verify(bearer("opaque"))
        assert caller.expires is not None
        assert caller.expires <= START + OPEN_FOR


async def test_no_log_line_has_a_token_or_a_secret_in_it(
    autojump_clock: MockClock, capfd: pytest.CaptureFixture[str]
) -> None:
    async with open_gate(authority(), introspection=ASKS) as gate:
        gate.authority.fault = Said(500, b"canary-token hush")
        with pytest.raises(IssuerUnavailable) as caught:
            await gate.verifier.verify(bearer("canary-token"))
        await trio.sleep(PAUSE)
        gate.authority.fault = Said(200, b'{"active": canary-token hush}')
        with pytest.raises(IssuerUnavailable):
            await gate.verifier.verify(bearer("canary-token"))
        shown = [str(caught.value), str(gate.root.tree()), repr(gate.verifier), repr(gate.verifier.issuers)]
    out, err = capfd.readouterr()
    assert "introspection_failed" in err
    assert not [text for text in (out, err, *shown) if "canary-token" in text or "hush" in text]


async def test_a_signed_token_of_such_an_issuer_is_asked_about_too(autojump_clock: MockClock) -> None:
    async with open_gate(authority(), introspection=ASKS) as gate:
        token = gate.token()
        await refused(gate, token)
        gate.authority.tokens[other := gate.token(jti="2")] = SAID
        await gate.verifier.verify(bearer(other))
        await refused(gate, gate.token(iss="https://evil.example.com"))  # of which no one else hears
        assert gate.authority.visits("/introspect") == 2
        assert gate.authority.visits("/jwks") == 0


@pytest.mark.parametrize("token", ["", "a b", "a\r\nb", "\u00e4", "\ud800", "x" * 16_385])
async def test_what_cannot_be_a_token_is_not_asked_about(token: str, autojump_clock: MockClock) -> None:
    async with open_gate(authority(), introspection=ASKS) as gate:
        await refused(gate, token)
        assert gate.authority.house.asked == []


async def test_a_token_is_not_shown_to_two_issuers(autojump_clock: MockClock) -> None:
    second = IssuerSettings(issuer="https://second.example.com", introspection=ASKS)
    async with open_gate(authority(), introspection=ASKS, more=(second,)) as gate:
        await refused(gate)
        assert gate.authority.house.asked == []


async def test_a_client_may_prove_itself_by_a_key_or_by_its_secret_in_the_form() -> None:
    key = ECKey.generate_key("P-256")
    by_key = IntrospectionSettings(client_id="gate", private_key=key.as_pem(private=True).decode())
    async with open_real_gate(authority(), introspection=by_key) as gate:
        await gate.verifier.verify(bearer("opaque"))
        form = gate.authority.house.asked[-1].form
        claims = jwt.decode(form["client_assertion"], key, algorithms=["ES256"]).claims
        assert (claims["iss"], claims["sub"], claims["aud"]) == ("gate", "gate", gate.authority.url)
    by_form = IntrospectionSettings(client_id="gate", client_secret="hush", method="client_secret_post")  # noqa: S106
    async with open_real_gate(authority(), introspection=by_form) as gate:
        await gate.verifier.verify(bearer("opaque"))
        asked = gate.authority.house.asked[-1]
        assert asked.form["client_secret"] == "hush"  # noqa: S105
        assert basic(asked) is None


async def test_a_crash_leaves_no_question_without_an_answer(autojump_clock: MockClock) -> None:
    async with open_gate(authority(), introspection=ASKS) as gate:
        gate.authority.delay = 1
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(IssuerUnavailable):
                    await gate.verifier.verify(bearer("opaque"))

            nursery.start_soon(ask)
            await trio.sleep(0.5)
            gate.root.supervisor_of("issuers").child("issuer-1").kill("by a test")
        await trio.sleep(3)
        await gate.verifier.verify(bearer("opaque"))
