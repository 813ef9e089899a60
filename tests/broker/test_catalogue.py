"""Many backends' lists as one: in order, name-spaced, filtered, paged; and collisions that nobody overlooks."""

from typing import Any

import msgspec
import pytest

from callboard.actors.broker.catalogue import CURSOR_TTL, PAGE, Catalogue
from callboard.actors.broker.listing import Listing
from callboard.actors.broker.owners import address_of
from callboard.actors.broker.policy import BackendSettings, Filter
from callboard.codecs.bridge.definitions import PROMPTS, RESOURCES, STALE, TEMPLATES, TOOLS, Kind
from callboard.codecs.bridge.results import BACKEND
from callboard.codecs.revisions.revision import R1, R4, R5
from callboard.errors import InvalidParams
from tests.broker.listed import listing

BARE = BackendSettings(prefix="")


def entry(**said: Any) -> dict[str, Any]:
    return said


def tools(*names: str, **more: Any) -> Listing:
    return listing(tools=[entry(name=name, inputSchema={"type": "object"}) for name in names], **more)


def resources(*uris: str, templates: tuple[str, ...] = ()) -> Listing:
    return listing(
        resources=[entry(uri=uri, name=uri) for uri in uris],
        resourceTemplates=[entry(uriTemplate=text, name=text) for text in templates],
    )


def catalogue(*names: str, **settings: BackendSettings) -> Catalogue:
    made = Catalogue(wall=lambda: 1000.0)
    made.arrange(names, {name: settings.get(name, BackendSettings()) for name in names})
    return made


def listed(made: Catalogue, kind: Kind = TOOLS) -> list[dict[str, Any]]:
    page, following = made.page(kind, R5, None)
    assert following is None
    found: list[dict[str, Any]] = msgspec.json.decode(page)
    return found


def names(made: Catalogue, kind: Kind = TOOLS) -> list[str]:
    return [one[kind.key] for one in listed(made, kind)]


# Names.


def test_order_is_that_of_the_configuration_and_within_a_backend_its_own() -> None:
    made = catalogue("b", "a")
    made.put("a", tools("z", "y"))
    made.put("b", tools("x", "w"))
    assert names(made) == ["b__x", "b__w", "a__z", "a__y"]
    assert [one["_meta"][BACKEND] for one in listed(made)] == ["b", "b", "a", "a"]
    made.arrange(["a", "b"], {"a": BackendSettings(), "b": BackendSettings(prefix="new")})
    assert names(made) == ["a__z", "a__y", "new__x", "new__w"]
    made.arrange(["b"], {"b": BARE})
    assert names(made) == ["x", "w"]


def test_a_name_is_found_by_a_map_and_never_by_taking_it_apart() -> None:
    made = catalogue("a", "a__b")
    made.put("a", tools("b__c"))
    made.put("a__b", tools("c"))
    found = {shown: made.tool(shown) for shown in names(made)}
    assert {(one.backend, one.name) for one in found.values() if one is not None} == {("a", "b__c"), ("a__b", "c")}
    assert made.tool("b__c") is None


def test_a_long_name_is_cut_and_still_found() -> None:
    made = catalogue("weather")
    made.put("weather", tools("t" * 100, "t" * 101))
    assert [len(name) for name in names(made)] == [64, 64]
    assert [made.tool(name).name for name in names(made)] == ["t" * 100, "t" * 101]  # type: ignore[union-attr]


def test_a_name_that_two_backends_have_is_neithers_alone() -> None:
    made = catalogue("a", "b", a=BARE, b=BARE)
    made.put("a", tools("same", "own"))
    assert names(made) == ["same", "own"]
    changed = made.put("b", tools("same"))
    assert names(made) == ["a__same", "own", "b__same"]
    assert changed == {"tools"}
    assert made.tool("same") is None


def test_tools_are_filtered_and_renamed_by_the_names_that_the_backend_has() -> None:
    settings = BackendSettings(
        prefix="w", tools=Filter(allow=("get_*", "put"), deny=("*_secret",)), rename={"get_now": "now"}
    )
    made = catalogue("a", a=settings)
    made.put("a", tools("get_now", "get_secret", "put", "drop", prompts=[entry(name="drop")]))
    assert names(made) == ["w__now", "w__put"]
    assert names(made, PROMPTS) == ["w__drop"]
    found = made.tool("w__now")
    assert found is not None
    assert found.name == "get_now"


def test_names_that_deceive_and_definitions_without_one_are_left_out() -> None:
    made = catalogue("a", a=BARE)
    named = [entry(name=name) for name in ("fine", "p\u0430y", "a\u200bb")]
    made.put("a", listing(tools=[*named, entry(title="?"), entry(name=7)]))
    assert names(made) == ["fine"]


def test_a_tool_whose_header_annotations_are_wrong_is_left_out() -> None:
    made = catalogue("a", a=BARE)
    schema = {"type": "object", "properties": {"x": {"type": "object", "x-mcp-header": "X"}}}
    made.put("a", listing(tools=[entry(name="bad", inputSchema=schema), entry(name="good")]))
    assert names(made) == ["good"]


# Resources.


def test_resources_keep_their_uris_and_are_found_by_who_lists_them() -> None:
    made = catalogue("a", "b")
    made.put("a", resources("notes://one", templates=("notes://{id}/page",)))
    made.put("b", resources("mail://inbox"))
    assert names(made, RESOURCES) == ["notes://one", "mail://inbox"]
    assert made.owner_of("mail://inbox") == ("b", "mail://inbox")
    assert made.owner_of("notes://7/page") == ("a", "notes://7/page")  # by its template
    assert made.owner_of("mail://outbox") == ("b", "mail://outbox")  # by its scheme
    assert made.owner_of("other://x") is None


def test_who_alone_has_any_resources_is_asked_for_all() -> None:
    made = catalogue("a", "b")
    made.put("a", resources("notes://one"))
    made.put("b", tools("t"))
    assert made.owner_of("other://x") == ("a", "other://x")


def test_a_uri_that_two_backends_have_must_be_named_with_its_backend() -> None:
    made = catalogue("a", "b/c")
    for backend in ("a", "b/c"):
        made.put(backend, resources("notes://one?x=1", "notes://own/" + backend[:1]))
    shown = names(made, RESOURCES)
    contested = [address_of("a", "notes://one?x=1"), address_of("b/c", "notes://one?x=1")]
    assert shown == [contested[0], "notes://own/a", contested[1], "notes://own/b"]
    with pytest.raises(InvalidParams) as refused:
        made.owner_of("notes://one?x=1")
    assert refused.value.data == {"origin": "broker", "candidates": contested}
    assert [made.owner_of(uri) for uri in contested] == [("a", "notes://one?x=1"), ("b/c", "notes://one?x=1")]
    assert made.owner_of(address_of("a", "notes://any")) == ("a", "notes://any")
    assert made.owner_of(address_of("nobody", "notes://any")) is None
    assert made.owner_of("callboard://a/") is None


def test_a_uri_that_fits_two_templates_must_be_named_too() -> None:
    made = catalogue("a", "b")
    for backend in ("a", "b"):
        made.put(backend, resources(templates=("notes://{id}",)))
    assert names(made, TEMPLATES) == ["notes://{id}", "notes://{id}"]
    with pytest.raises(InvalidParams, match="several servers"):
        made.owner_of("notes://7")
    with pytest.raises(InvalidParams, match="several servers"):
        made.owner_of_template("notes://{id}")
    assert made.owner_of_template(address_of("b", "notes://{id}")) == ("b", "notes://{id}")


def test_a_template_is_completed_by_its_owner_and_so_is_a_resource_in_its_place() -> None:
    made = catalogue("a", "b")
    made.put("a", resources("notes://one", templates=("notes://{id}",)))
    assert made.owner_of_template("notes://{id}") == ("a", "notes://{id}")
    assert made.owner_of_template("notes://one") == ("a", "notes://one")
    assert made.owner_of_template("notes://two") is None


# What changes.


def test_only_lists_that_are_others_now_have_changed() -> None:
    made = catalogue("a")
    assert made.put("a", tools("x")) == {"tools"}
    assert made.put("a", tools("x")) == set()
    assert made.put("a", {**tools("x"), **resources("notes://one")}) == {"resources"}
    assert made.put("nobody", tools("x")) == set()
    assert made.arrange([], {}) == {"tools", "resources"}


def test_a_backend_that_is_lost_stays_in_the_lists_with_a_mark() -> None:
    made = catalogue("a")
    made.put("a", tools("x"))
    made.mark("a", is_stale=True)
    assert listed(made)[0]["_meta"] == {BACKEND: "a", STALE: True}
    assert made.put("a", tools("x")) == set()
    assert listed(made)[0]["_meta"] == {BACKEND: "a"}


# Pages.


def many(count: int) -> Catalogue:
    made = catalogue("a", a=BARE)
    made.put("a", tools(*(f"t{number}" for number in range(count)), prompts=[entry(name="p")]))
    return made


@pytest.mark.parametrize("count", [0, 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1])
def test_a_long_list_comes_in_pages_and_each_entry_once(count: int) -> None:
    made, cursor, found = many(count), None, list[str]()
    while True:
        page, cursor = made.page(TOOLS, R4, cursor)
        found += [one["name"] for one in msgspec.json.decode(page)]
        if cursor is None:
            break
        assert len(msgspec.json.decode(page)) == PAGE
    assert found == [f"t{number}" for number in range(count)]


def test_a_cursor_is_ours_for_its_list_and_for_a_day() -> None:
    made = many(PAGE + 1)
    _, cursor = made.page(TOOLS, R4, None)
    assert cursor is not None
    for wrong in ("", "x", cursor[:-1], cursor + "A"):
        with pytest.raises(InvalidParams):
            made.page(TOOLS, R4, wrong)
    with pytest.raises(InvalidParams):
        made.page(PROMPTS, R4, cursor)
    with pytest.raises(InvalidParams):
        many(PAGE + 1).page(TOOLS, R4, cursor)
    made.page(TOOLS, R4, cursor)
    made.wall = lambda: 1001.0 + CURSOR_TTL
    with pytest.raises(InvalidParams):
        made.page(TOOLS, R4, cursor)


def test_a_cursor_goes_on_behind_the_same_entry_when_others_come_and_go() -> None:
    made = many(PAGE + 1)
    _, cursor = made.page(TOOLS, R4, None)
    made.put("a", tools(*(f"t{number}" for number in range(10, PAGE + 5))))
    page, _ = made.page(TOOLS, R4, cursor)
    assert msgspec.json.decode(page)[0]["name"] == f"t{PAGE}"
    made.put("a", tools("other"))
    with pytest.raises(InvalidParams):  # the entry is gone: the client begins anew
        made.page(TOOLS, R4, cursor)


def test_each_revision_has_pages_of_its_own() -> None:
    made = catalogue("a", a=BARE)
    made.put("a", listing(tools=[entry(name="x", inputSchema={}, outputSchema={"type": "object"})]))
    assert "outputSchema" in msgspec.json.decode(made.page(TOOLS, R5, None)[0])[0]
    assert "outputSchema" not in msgspec.json.decode(made.page(TOOLS, R1, None)[0])[0]
