"""Each model has exactly the members that each official schema gives it, and demands the same ones."""

from collections.abc import Set
from typing import Any

import pytest

from callboard.codecs.revisions._read import is_model, wire_type
from callboard.codecs.revisions.capabilities import ClientCapabilities, ServerCapabilities
from callboard.codecs.revisions.methods import METHODS
from callboard.codecs.revisions.model import Model, members, required_members
from callboard.codecs.revisions.names import model_named
from callboard.codecs.revisions.revision import R3, Revision
from tests.codecs.revisions.official import FORGIVEN, definitions, is_own_model, method_in, typed_definitions
from tests.codecs.revisions.schema_strategy import flat
from tests.shared import needs_protocol


def models() -> list[tuple[Revision, str]]:
    return [
        (revision, name)
        for revision, name in typed_definitions()
        if is_own_model(revision, name) and is_model(model_named(name))
    ]


def methods() -> list[tuple[Revision, str]]:
    """Requests and notifications whose params are one object, written out or named."""
    found = [(revision, name) for revision, name in typed_definitions() if not name.endswith("ResultResponse")]
    return [
        (revision, name)
        for revision, name in found
        if method_in(revision, name) and "params" in definitions(revision)[name]["properties"]
        if is_model(METHODS[method_in(revision, name) or ""].params)
    ]


@needs_protocol
@pytest.mark.parametrize(("revision", "name"), models())
def test_a_model_has_the_members_of_its_definition(revision: Revision, name: str) -> None:
    compare(revision, model_named(name), flat(revision, definitions(revision)[name]))


@needs_protocol
@pytest.mark.parametrize(("revision", "name"), methods())
def test_params_have_the_members_of_their_request(revision: Revision, name: str) -> None:
    params = flat(revision, definitions(revision)[name]["properties"]["params"])
    method = method_in(revision, name)
    assert method is not None
    # Up to 2025-06-18 `_meta` stands in the base interface alone, and tasks kept that habit in 2025-11-25.
    inherited = {"_meta"} if revision <= R3 or "task" in method or "elicitation" in method else set[str]()
    compare(revision, METHODS[method].params, params, inherited=inherited)


def compare(
    revision: Revision, model: type[Model], schema: dict[str, Any], *, inherited: Set[str] = frozenset()
) -> None:
    ours = members(model, revision)
    properties = schema.get("properties", {})
    if model in (ClientCapabilities, ServerCapabilities) and not revision.dialect.has_extensions:
        # Open sets: extensions are named in `initialize` of revisions that do not define them.
        inherited = {*inherited, "extensions"}
    assert ours.keys() - inherited == properties.keys() - inherited
    assert required_members(model, revision) == set(schema.get("required", ())) - FORGIVEN
    for wire, field in ours.items():
        form = wire_type(field, revision)
        inner = flat(revision, properties.get(wire, {}))
        if is_model(form) and "properties" in inner:
            compare(revision, form, inner)
