"""Whatever the official schemas allow is read, typed, and written again as it was; what they do not is refused."""

import contextlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.codecs.revisions.convert import read_form, write_form
from callboard.codecs.revisions.error_codes import ERROR_NAMES
from callboard.codecs.revisions.messages import read_params
from callboard.codecs.revisions.names import model_named
from callboard.codecs.revisions.revision import Revision
from callboard.errors import InvalidParams
from tests.codecs.revisions.official import (
    ERROR_ENVELOPES,
    NOT_TYPED,
    definitions,
    every_definition,
    forgiving,
    is_own_model,
    method_in,
    rewritten,
    schema_of_params,
    typed_definitions,
)
from tests.codecs.revisions.schema_judge import accepts, spoiled
from tests.codecs.revisions.schema_strategy import drawn as drawn_from
from tests.codecs.revisions.schema_strategy import instances
from tests.shared import needs_protocol

EXAMPLES = 6
"""Instances drawn per definition: some five hundred definitions make it thousands in all."""
SPOILED = 12
"""Spoiled copies that are tried of each instance: tens of thousands in all."""

drawn = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)


@needs_protocol
@pytest.mark.parametrize(("revision", "name"), typed_definitions())
def test_every_instance_of_every_definition_survives_a_round_trip(revision: Revision, name: str) -> None:
    schema = forgiving(revision)[name]
    read = partial(read_form, revision, model_named(name)) if is_own_model(revision, name) else None

    @drawn
    @given(instances(revision, name))
    def round_trip(value: Any) -> None:
        assert accepts(revision, schema, value)
        assert same(rewritten(revision, name, value), value)
        if read is not None:
            check_spoiled(revision, schema, read, value)
            check_elsewhere(name, read(value))

    round_trip()


@needs_protocol
@pytest.mark.parametrize(("revision", "name"), [row for row in typed_definitions() if schema_of_params(*row)])
def test_params_written_out_are_refused_where_their_schema_refuses_them(revision: Revision, name: str) -> None:
    schema, method = schema_of_params(revision, name), method_in(revision, name)
    assert schema is not None
    assert method is not None

    @drawn
    @given(drawn_from(revision, schema))
    def spoil(value: Any) -> None:
        check_spoiled(revision, schema, partial(read_params, revision, method), value)

    spoil()


def check_spoiled(revision: Revision, schema: dict[str, Any], read: Callable[[Any], Any], value: Any) -> None:
    for candidate in spoiled(value, SPOILED):
        if isinstance(candidate, dict) and candidate.get("resultType") in ("", "user"):
            continue  # a result of another type is refused where its method is known, and not here
        assert (refusal(read, candidate) is None) == accepts(revision, schema, candidate, nulls=True), candidate


def check_elsewhere(name: str, value: Any) -> None:
    """What another revision has no words for is not written; what is written there is valid there."""
    for other in Revision:
        if name in definitions(other) and is_own_model(other, name):
            with contextlib.suppress(ValueError):
                written = write_form(other, model_named(name), value)
                assert accepts(other, forgiving(other)[name], written), (other, written)


def refusal(read: Callable[[Any], Any], value: Any) -> str | None:
    try:
        read(value)
    except InvalidParams as refused:
        return str(refused)
    return None


@cache
def validator(revision: Revision, name: str) -> jsonschema.Draft202012Validator:
    """Of the mended schema. Draft 2020-12 reads the older ones too: they use nothing that changed but the key."""
    root = {"$defs": forgiving(revision), "definitions": forgiving(revision)}
    where = "$defs" if revision >= Revision.V2025_11_25 else "definitions"
    return jsonschema.Draft202012Validator(root | {"$ref": f"#/{where}/{name}"})


@needs_protocol
@pytest.mark.parametrize("revision", Revision)
def test_the_judge_accepts_nothing_that_jsonschema_refuses(revision: Revision) -> None:
    names = st.sampled_from(sorted(definitions(revision)))

    @settings(drawn, max_examples=60)
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        name = data.draw(names)
        value = data.draw(instances(revision, name))
        validator(revision, name).validate(value)
        for candidate in spoiled(value, SPOILED):
            if accepts(revision, forgiving(revision)[name], candidate):
                validator(revision, name).validate(candidate)

    compare()


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: unlike in Python, 1 is not true and 1.0 was written otherwise than 1."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@needs_protocol
@pytest.mark.parametrize("revision", Revision)
def test_no_definition_is_forgotten(revision: Revision) -> None:
    for name in definitions(revision):
        typed = name in ERROR_NAMES or name in ERROR_ENVELOPES or is_own_model(revision, name)
        assert typed or method_in(revision, name) is not None or name in NOT_TYPED, name
        assert not (typed and name in NOT_TYPED), name


@needs_protocol
def test_every_reason_not_to_type_a_definition_is_still_needed() -> None:
    assert set(NOT_TYPED) <= {name for _, name in every_definition()}


@needs_protocol
def test_all_five_schemas_are_there() -> None:
    assert [len(definitions(revision)) for revision in Revision] == [79, 83, 91, 145, 155]


@given(st.data())
def test_the_comparison_tells_json_values_apart(data: st.DataObject) -> None:
    one, other = data.draw(st.permutations([1, 1.0, True, "1", [1], {"1": 1}]))[:2]
    assert same(one, one)
    assert not same(one, other)
