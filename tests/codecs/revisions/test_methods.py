"""The table of methods says what the unions of the official schemas say."""

import pytest

from callboard.codecs.revisions.capabilities import (
    ClientCapabilities,
    ElicitationCapability,
    ResourcesCapability,
    ServerCapabilities,
    declares,
)
from callboard.codecs.revisions.messages import read_params, read_result, write_params, write_result
from callboard.codecs.revisions.methods import METHODS, Capability, Direction, method_of
from callboard.codecs.revisions.model import Model, members
from callboard.codecs.revisions.revision import LEGACY, R1, R2, R4, R5, Revision
from callboard.errors import MethodNotFound
from tests.codecs.revisions.official import definitions, method_in
from tests.shared import needs_protocol

TO_SERVER, TO_CLIENT = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
SIDES: dict[str, type[Model]] = {"client": ClientCapabilities, "server": ServerCapabilities}


def said(revision: Revision, union: str) -> set[str]:
    """The methods in a union of the schema; in 2026-07-28 one union is written out as its only branch."""
    definition = definitions(revision).get(union, {"anyOf": []})
    names = [branch["$ref"].rsplit("/", 1)[1] for branch in definition.get("anyOf", [])] or [union]
    return {method for name in names if (method := method_in(revision, name)) is not None}


def ours(revision: Revision, direction: Direction, *, requests: bool) -> set[str]:
    rows = (row for row in METHODS.values() if row.is_request == requests)
    return {row.name for row in rows if revision in row.spoken[direction]}


@needs_protocol
@pytest.mark.parametrize("revision", Revision)
@pytest.mark.parametrize(
    ("union", "direction", "requests"),
    [
        ("ClientRequest", TO_SERVER, True),
        ("ServerRequest", TO_CLIENT, True),
        ("ClientNotification", TO_SERVER, False),
        ("ServerNotification", TO_CLIENT, False),
    ],
)
def test_methods_by_direction_are_those_of_the_schema(
    revision: Revision, union: str, direction: Direction, requests: bool
) -> None:
    expected = said(revision, union)
    assert expected or (union, revision) == ("ServerRequest", R5)
    assert ours(revision, direction, requests=requests) == expected


@needs_protocol
def test_input_requests_are_those_of_the_schema() -> None:
    assert ours(R5, Direction.INPUT, requests=True) == said(R5, "InputRequest")
    assert all(not ours(revision, Direction.INPUT, requests=True) for revision in LEGACY)


@needs_protocol
def test_what_may_be_answered_by_a_question_is_what_the_schema_says() -> None:
    asking = {
        method_in(R5, name)
        for name, definition in definitions(R5).items()
        if name.endswith("ResultResponse") and "InputRequiredResult" in str(definition["properties"]["result"])
    }
    assert asking == {row.name for row in METHODS.values() if R5 in row.may_ask}


def test_every_needed_capability_exists_wherever_it_is_needed() -> None:
    for row in METHODS.values():
        for direction, revisions in row.spoken.items():
            for revision in revisions:
                need = row.needed(revision, direction)
                assert need is None or exists(revision, need), (row.name, revision)


def exists(revision: Revision, need: Capability) -> bool:
    model: object = SIDES[need.side]
    for step in need.path.split("."):
        assert isinstance(model, type)
        field = next((field for field in members(model, revision).values() if field.name == step), None)
        if field is None:
            return False
        model = next((arg for arg in getattr(field.type, "__args__", ()) if isinstance(arg, type)), None)
    return True


@pytest.mark.parametrize(
    ("revision", "method", "direction", "expected"),
    [
        (R1, "completion/complete", TO_SERVER, None),
        (R2, "completion/complete", TO_SERVER, ("server", "completions")),
        (R5, "tools/call", TO_SERVER, ("server", "tools")),
        (R4, "resources/subscribe", TO_SERVER, ("server", "resources.subscribe")),
        (R4, "tasks/list", TO_CLIENT, ("client", "tasks.list")),
        (R4, "tasks/list", TO_SERVER, ("server", "tasks.list")),
        (R4, "notifications/tasks/status", TO_CLIENT, ("server", "tasks")),
        (R5, "elicitation/create", Direction.INPUT, ("client", "elicitation")),
        (R4, "notifications/roots/list_changed", TO_SERVER, ("client", "roots.list_changed")),
        (R1, "ping", TO_CLIENT, None),
    ],
)
def test_a_method_names_the_capability_it_needs(
    revision: Revision, method: str, direction: Direction, expected: tuple[str, str] | None
) -> None:
    need = method_of(revision, method, direction).needed(revision, direction)
    assert (need and (need.side, need.path)) == expected


def test_a_capability_is_declared_by_an_object_or_by_a_true_flag() -> None:
    server = ServerCapabilities(resources=ResourcesCapability(subscribe=False, list_changed=True), logging={})
    assert declares(server, "resources")
    assert declares(server, "resources.list_changed")
    assert not declares(server, "resources.subscribe")
    assert declares(server, "logging")
    assert not declares(server, "tools.list_changed")


@pytest.mark.parametrize(
    ("capability", "forms", "urls"),
    [
        (ElicitationCapability(), True, False),
        (ElicitationCapability(form={}), True, False),
        (ElicitationCapability(url={}), False, True),
        (ElicitationCapability(form={}, url={}), True, True),
    ],
)
def test_elicitation_without_a_mode_means_forms(capability: ElicitationCapability, forms: bool, urls: bool) -> None:
    client = ClientCapabilities(elicitation=capability)
    assert declares(client, "elicitation")
    assert declares(client, "elicitation.form") == forms
    assert declares(client, "elicitation.url") == urls
    assert not declares(ClientCapabilities(), "elicitation.form")


@pytest.mark.parametrize(
    ("revision", "method", "direction"),
    [
        (R5, "initialize", TO_SERVER),
        (R5, "roots/list", TO_CLIENT),
        (R4, "server/discover", TO_SERVER),
        (R4, "tools/call", TO_CLIENT),
        (R5, "notifications/progress", TO_SERVER),
        (R1, "elicitation/create", TO_CLIENT),
        (R5, "tasks/get", TO_SERVER),
        (R5, "no/such\nmethod" * 100, TO_SERVER),
    ],
)
def test_a_method_out_of_place_is_not_found(revision: Revision, method: str, direction: Direction) -> None:
    with pytest.raises(MethodNotFound) as caught:
        method_of(revision, method, direction)
    assert len(str(caught.value)) < 300


def test_methods_of_other_revisions_have_no_params_and_no_results() -> None:
    with pytest.raises(MethodNotFound):
        read_params(R5, "ping", {})
    with pytest.raises(MethodNotFound):
        read_result(R4, "server/discover", {})


def test_a_notification_has_no_result() -> None:
    with pytest.raises(TypeError, match="notification"):
        read_result(R4, "notifications/progress", {})


def test_params_and_results_of_another_method_are_not_written() -> None:
    params = read_params(R4, "tools/call", {"name": "x"})
    result = read_result(R4, "tools/call", {"content": []})
    with pytest.raises(TypeError, match="CallToolRequestParams"):
        write_params(R4, "prompts/get", params)
    with pytest.raises(TypeError, match="CallToolResult"):
        write_result(R4, "prompts/get", result)
    with pytest.raises(TypeError, match="invalid params for ping: CallToolRequestParams"):
        write_params(R4, "ping", params)
    with pytest.raises(TypeError, match="CallToolResult does not answer ping"):
        write_result(R4, "ping", result)
