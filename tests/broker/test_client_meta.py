"""What a backend is told of the client behind a request: remembered, and never another client's."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from callboard.actors.broker.client_meta import MAX_CLIENTS, ClientMeta
from callboard.actors.client.negotiate import Agreed
from callboard.actors.terms import Terms, modern_terms
from callboard.codecs.caller import ANONYMOUS
from callboard.codecs.envelope import Request
from callboard.codecs.members import raw
from callboard.codecs.revisions import (
    ALL,
    ClientCapabilities,
    Implementation,
    Revision,
    RootsCapability,
    ServerCapabilities,
    meta,
)
from callboard.codecs.revisions.revision import R4, R5
from callboard.codecs.routing import read_route


def metas(revision: Revision = R5, **declared: Any) -> ClientMeta:
    agreed = Agreed(revision=revision, capabilities=ServerCapabilities(**declared), info=None, instructions=None)
    return ClientMeta(agreed, Implementation(name="broker", version="1"))


def request(said: dict[str, Any]) -> Request:
    return Request(1, "tools/call", {"name": raw("x"), "_meta": raw(said)})


def modern(name: str, **more: Any) -> dict[str, Any]:
    info = {"name": name, "version": "1"}
    return {meta.PROTOCOL_VERSION: R5.value, meta.CLIENT_CAPABILITIES: {}, meta.CLIENT_INFO: info, **more}


def told(mine: ClientMeta, said: dict[str, Any], terms: Terms | None = None) -> dict[str, Any]:
    route = read_route(request(said))
    found: Any = mine.of(terms or modern_terms(route, ALL, ANONYMOUS), route)
    members: dict[str, Any] = msgspec.json.decode(found if isinstance(found, Raw) else raw(dict(found)))
    return members


def legacy(name: str, **more: Any) -> Terms:
    return Terms(revision=R4, client_info=Implementation(name=name, version="1"), **more)


def test_each_modern_client_is_told_of_as_itself() -> None:
    mine = metas()
    for _ in range(2):
        for name in ("ann", "bob"):
            assert told(mine, modern(name))[meta.CLIENT_INFO]["name"] == name


def test_what_is_the_clients_own_crosses_and_what_is_the_connections_does_not() -> None:
    mine = metas()
    for _ in range(2):
        found = told(mine, modern("ann", **{"com.example/trace": 7, meta.PROGRESS_TOKEN: 5}))
        assert found["com.example/trace"] == 7
        assert meta.PROGRESS_TOKEN not in found
        assert "com.example/trace" not in told(mine, modern("ann"))


def test_each_legacy_client_is_told_of_as_itself() -> None:
    mine = metas(logging={})
    nothing, roots = ClientCapabilities(), ClientCapabilities(roots=RootsCapability(list_changed=UNSET))
    terms = {
        "ann": legacy("ann", capabilities=nothing),
        "bob": legacy("bob", capabilities=roots),
        "cy": legacy("cy", capabilities=nothing, log_level="info"),
    }
    for _ in range(2):
        for name, one in terms.items():
            found = told(mine, {meta.PROGRESS_TOKEN: name}, one)
            assert found[meta.CLIENT_INFO]["name"] == name
            assert ("roots" in found[meta.CLIENT_CAPABILITIES]) is (name == "bob")
            assert found.get(meta.LOG_LEVEL) == one.log_level


def test_what_one_legacy_request_says_is_not_said_of_the_next() -> None:
    mine, terms = metas(), legacy("ann", capabilities=ClientCapabilities())
    odd = {meta.CLIENT_INFO: {"name": "odd", "version": "1"}, "com.example/trace": 7}
    assert told(mine, odd, terms)[meta.CLIENT_INFO]["name"] == "odd"
    assert told(mine, {}, terms)[meta.CLIENT_INFO]["name"] == "ann"
    assert "com.example/trace" not in told(mine, {}, terms)


@pytest.mark.parametrize("said", [modern("ann"), {}])
def test_a_legacy_backend_is_told_nothing_of_clients(said: dict[str, Any]) -> None:
    terms = None if said else legacy("ann", capabilities=ClientCapabilities())
    assert told(metas(R4), said, terms) == {}


def test_no_more_clients_are_remembered_than_may_be() -> None:
    mine = metas()
    for number in range(3 * MAX_CLIENTS):
        assert told(mine, modern(f"c-{number}"))[meta.CLIENT_INFO]["name"] == f"c-{number}"
        assert len(mine._known) <= MAX_CLIENTS
    long = "x" * 10_000
    before = len(mine._known)
    assert told(mine, modern(long))[meta.CLIENT_INFO]["name"] == long
    assert len(mine._known) <= before
