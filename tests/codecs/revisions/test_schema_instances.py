"""Whatever the official schemas allow is read, typed, and written again as it was."""

from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.codecs.revisions.error_codes import ERROR_NAMES
from callboard.codecs.revisions.revision import Revision
from tests.codecs.revisions.official import (
    ERROR_ENVELOPES,
    NOT_TYPED,
    definitions,
    every_definition,
    is_own_model,
    method_in,
    rewritten,
    typed_definitions,
)
from tests.codecs.revisions.schema_strategy import instances
from tests.shared import needs_protocol

EXAMPLES = 15
"""Instances drawn per definition: some five hundred definitions make it thousands in all."""


@cache
def validator(revision: Revision, name: str) -> jsonschema.Draft202012Validator:
    """Of the mended schema. Draft 2020-12 reads the older ones too: they use nothing that changed but the key."""
    root = {"$defs": definitions(revision), "definitions": definitions(revision)}
    where = "$defs" if revision >= Revision.V2025_11_25 else "definitions"
    return jsonschema.Draft202012Validator(root | {"$ref": f"#/{where}/{name}"})


@needs_protocol
@pytest.mark.parametrize(("revision", "name"), typed_definitions())
def test_every_instance_of_every_definition_survives_a_round_trip(revision: Revision, name: str) -> None:
    checked = 0

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(instances(revision, name))
    def round_trip(value: Any) -> None:
        nonlocal checked
        if checked < 3:  # enough to keep the strategy honest: jsonschema is slower than all the rest
            validator(revision, name).validate(value)
            checked += 1
        assert same(rewritten(revision, name, value), value)

    round_trip()


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
@pytest.mark.parametrize(("revision", "name"), every_definition())
def test_no_definition_is_forgotten(revision: Revision, name: str) -> None:
    typed = name in ERROR_NAMES or name in ERROR_ENVELOPES or is_own_model(revision, name)
    assert typed or method_in(revision, name) is not None or name in NOT_TYPED
    assert not (typed and name in NOT_TYPED)


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
