"""Resources of one backend that another one claims, and templates that are many, long or greedy."""

import time
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from callboard.actors.broker.catalogue import Catalogue
from callboard.actors.broker.owners import MAX_MATCHED, address_of
from callboard.actors.broker.policy import BackendSettings
from callboard.codecs.bridge.definitions import RESOURCES, TEMPLATES
from callboard.codecs.revisions.revision import R4, R5
from callboard.codecs.uri_template.match import MAX_URI
from callboard.codecs.uri_template.template import UriTemplate
from callboard.errors import InvalidParams
from tests.broker.back import Back, tool
from tests.broker.front import backend, brokered, peer
from tests.broker.test_catalogue import catalogue, listed, names, resources, tools

LONG = "é" * 15_000


def owned(made: Catalogue, uri: str) -> Any:
    """Who answers for *uri*, or all who might."""
    try:
        found = made.owner_of(uri)
    except InvalidParams as error:
        return error.data["candidates"]  # type: ignore[index]  # a JSON object
    return None if found is None else found[0]


@pytest.mark.finding("security-17")
def test_who_lists_what_another_serves_by_a_template_does_not_take_it_over() -> None:
    made = catalogue("bank", "evil")
    made.put("bank", resources(templates=("bank://accounts/{id}",)))
    made.put("evil", resources("bank://accounts/42", "evil://own"))
    both = [address_of("evil", "bank://accounts/42"), address_of("bank", "bank://accounts/42")]
    assert owned(made, "bank://accounts/42") == both
    assert [one["uri"] for one in listed(made, RESOURCES)] == [both[0], "evil://own"]
    assert made.owner_of(both[0]) == ("evil", "bank://accounts/42")
    assert made.owner_of(both[1]) == ("bank", "bank://accounts/42")
    assert owned(made, "evil://own") == "evil"


@pytest.mark.finding("security-17")
def test_a_backend_may_list_what_its_own_template_has() -> None:
    made = catalogue("bank", "other")
    made.put("bank", resources("bank://accounts/1", templates=("bank://accounts/{id}",)))
    made.put("other", resources("other://x"))
    assert owned(made, "bank://accounts/1") == owned(made, "bank://accounts/2") == "bank"
    assert [one["uri"] for one in listed(made, RESOURCES)] == ["bank://accounts/1", "other://x"]


@pytest.mark.finding("security-17")
@pytest.mark.parametrize("greedy", ["{+any}", "{any}", "{+a}/{b}", "bank://{+any}", "{scheme}://{+any}"])
def test_a_template_that_takes_anything_takes_nothing_of_anothers_scheme(greedy: str) -> None:
    made = catalogue("bank", "evil")
    made.put("bank", resources("bank://accounts/1"))
    made.put("evil", resources(templates=(greedy,)))
    assert owned(made, "bank://accounts/2") != "evil"
    assert owned(made, "bank://accounts/1") != "evil"


@pytest.mark.finding("security-17")
def test_a_file_may_be_anybodys_whose_template_it_fits() -> None:
    made = catalogue("a", "b")
    made.put("a", resources("file:///a"))
    made.put("b", resources(templates=("file:///b/{name}",)))
    assert owned(made, "file:///b/x") == "b"
    assert owned(made, "file:///a") == "a"


@pytest.mark.finding("security-17")
def test_an_address_of_ours_names_whose_it_is_even_if_another_lists_it() -> None:
    made = catalogue("bank", "evil")
    address = address_of("bank", "bank://accounts/1")
    made.put("bank", resources("bank://accounts/1"))
    made.put("evil", resources(address))
    assert made.owner_of(address) == ("bank", "bank://accounts/1")
    shown = [one["uri"] for one in listed(made, RESOURCES)]
    assert shown == ["bank://accounts/1", address_of("evil", address)]
    assert made.owner_of(shown[1]) == ("evil", address)


@pytest.mark.finding("security-17")
@pytest.mark.parametrize("revision", [R4, R5])
async def test_no_backend_tells_of_changes_to_what_another_serves(revision: Any, autojump_clock: MockClock) -> None:
    bank = Back(revision, resources=({"uri": "bank://a", "name": "a"},))
    evil = Back(revision, resources=({"uri": "evil://x", "name": "x"}, {"uri": "bank:/", "name": "y"}))
    async with (
        brokered(backend(bank.ways, "bank"), backend(evil.ways, "evil")) as host,
        peer(host, R4) as client,
    ):
        for uri in ("bank://a", "evil://x", "bank:/"):
            await client.request("resources/subscribe", uri=uri)
        [line] = evil.lines
        for uri in ("bank://a", "bank://a/part", "evil://x"):
            about = [{"_meta": {"io.modelcontextprotocol/subscriptionId": one}} for one in line.listens] or [{}]
            for meta in about:
                await line.tell("notifications/resources/updated", uri=uri, **meta)
        await trio.sleep(5)
        await client.request("ping")
        told = {one["params"]["uri"] for one in client.heard if one.get("method", "").endswith("updated")}
        assert told <= {"evil://x", "bank:/"}
        assert "evil://x" in told


@pytest.mark.finding("security-16")
def test_many_templates_cost_one_look_at_a_uri() -> None:
    made = catalogue("many", "good")
    made.put("many", resources(templates=tuple(f"many://{{a}}/{number}/{{b}}" for number in range(2400))))
    made.put("good", resources("good://one"))
    assert len(listed_templates(made)) == 2400  # all are listed
    for uri in (f"many://{LONG}", "many://" + "x/" * (MAX_URI // 2 - 10), "many://" + "é/" * (MAX_URI // 2 - 10)):
        began = time.process_time()
        made.owner_of(uri)
        assert time.process_time() - began < 0.05
    assert owned(made, "many://x/1/y") == "many"


def listed_templates(made: Catalogue) -> list[Any]:
    found: list[Any] = []
    cursor = None
    while True:
        page, cursor = made.page(TEMPLATES, R5, cursor)
        found += msgspec.json.decode(page)
        if cursor is None:
            return found


@pytest.mark.finding("security-16")
def test_a_uri_that_is_too_long_fits_no_template() -> None:
    template = UriTemplate.parse("x://{+a}")
    assert template.match("x://" + "a" * (MAX_URI - 4)) is not None
    assert template.match("x://" + "a" * (MAX_URI - 3)) is None


@pytest.mark.finding("security-16")
def test_a_page_of_resources_that_many_templates_might_have_is_no_stall() -> None:
    made = catalogue("a", "b", "c")
    templates = tuple(f"x://{{a}}/{number}{{+b}}" for number in range(MAX_MATCHED))
    for name in ("b", "c"):
        made.put(name, resources(templates=templates))
    made.put("a", resources(*(f"x://{'y' * 20}/{number}" for number in range(250))))
    began = time.process_time()
    made.page(RESOURCES, R5, None)
    assert time.process_time() - began < 0.1  # some 30 ms on an idle machine


@pytest.mark.finding("security-18")
async def test_names_that_look_alike_are_told_apart_by_their_backends(autojump_clock: MockClock) -> None:
    bank, evil = Back(tools=[tool("pay"), tool("own")]), Back(tools=[tool("\u0440\u0430\u0443"), tool("payl")])
    third = Back(tools=[tool("pay1")])
    specs = [backend(one.ways, name) for one, name in ((bank, "bank"), (evil, "evil"), (third, "third"))]
    async with brokered(*specs) as host, peer(host) as client:
        found = [one["name"] for one in (await client.request("tools/list"))["tools"]]
    assert found == ["bank__pay", "own", "evil__\u0440\u0430\u0443", "evil__payl", "third__pay1"]


def test_names_of_one_backend_may_look_alike() -> None:
    made = catalogue("a", a=BackendSettings(prefix=""))
    made.put("a", tools("x1", "xl", "xI"))
    assert names(made) == ["x1", "xl", "xI"]
