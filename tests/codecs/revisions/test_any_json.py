"""Any JSON at any place gives a model or `InvalidParams`, and nothing else."""

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.codecs.revisions._read import is_model
from callboard.codecs.revisions.convert import converter_for, read, write
from callboard.codecs.revisions.error_codes import read_error
from callboard.codecs.revisions.messages import read_params, read_result
from callboard.codecs.revisions.methods import METHODS
from callboard.codecs.revisions.model import Model, members
from callboard.codecs.revisions.names import _MODELS
from callboard.codecs.revisions.revision import Revision
from callboard.errors import InvalidParams
from tests.codecs.revisions.schema_strategy import anything

WORDS = sorted({wire for model in _MODELS.values() for revision in Revision for wire in members(model, revision)})
VALUES = ["text", "image", "resource", "string", "array", "object", "url", "user", "complete", "input_required"]

near_json = st.recursive(
    anything | st.sampled_from(VALUES),
    lambda inner: st.dictionaries(st.sampled_from(WORDS), inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=8,
)
thrown = settings(max_examples=60, suppress_health_check=list(HealthCheck), database=None)


@pytest.mark.parametrize("revision", Revision)
@thrown
@given(value=near_json, more=st.dictionaries(st.sampled_from(WORDS), near_json))
def test_any_json_is_a_model_or_is_refused(revision: Revision, value: Any, more: Any) -> None:
    for model in _MODELS.values():
        check(revision, model, value)
        check(revision, model, more)


def check(revision: Revision, model: type[Model], value: Any) -> None:
    with contextlib.suppress(InvalidParams):
        found = read(revision, model, value)
        assert isinstance(found, model)
        if revision in model.known:
            assert read(revision, model, write(revision, found)) == found


@pytest.mark.parametrize("revision", Revision)
@thrown
@given(value=near_json)
def test_any_json_as_params_or_result_is_typed_or_refused(revision: Revision, value: Any) -> None:
    for row in METHODS.values():
        if not row.known(revision):
            continue
        for reader in (read_params, read_result) if row.is_request else (read_params,):
            with contextlib.suppress(InvalidParams):
                assert isinstance(reader(revision, row.name, value), Model)


@given(value=near_json, revision=st.sampled_from(Revision))
def test_any_json_as_an_error_is_typed_or_refused(value: Any, revision: Revision) -> None:
    with contextlib.suppress(InvalidParams):
        assert write(revision, read_error(revision, value)) == value


@pytest.mark.parametrize("revision", Revision)
def test_every_hook_of_every_model_can_be_built(revision: Revision) -> None:
    for model in _MODELS.values():
        assert is_model(model)
        assert callable(converter_for(revision).get_structure_hook(model))
        assert callable(converter_for(revision).get_unstructure_hook(model))
