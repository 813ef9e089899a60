"""The traits of each revision, as in the protocol reference (REVISIONS.md, whose section stands beside each)."""

import attrs
import pytest

from callboard.codecs.revisions import ALL, LEGACY, METHODS, MODERN, Dialect, Direction, Revision
from callboard.codecs.revisions.dialect import DIALECTS

TRAITS = {
    # One mark for each revision, oldest first: `x` has the trait, `-` does not.
    "has_sessions": "xxxx-",  # 7
    "terms_per_request": "----x",  # 4
    "level_per_request": "----x",  # 15
    "takes_batches": "-x---",  # 4
    "has_extensions": "----x",  # 3
    "has_tasks": "---x-",  # 23
    "has_listen": "----x",  # 18
    "declares_completions": "-xxxx",  # 3
    "asks_in_results": "----x",  # 19
    "tells_root_changes": "xxxx-",  # 2
    "has_elicitation_modes": "---xx",  # 21
    "has_elicitation_ids": "---x-",  # 21
    "samples_many_blocks": "---xx",  # 22
    "declares_sampling_context": "---xx",  # 22
    "cancelled_by_close": "----x",  # 11
    "versioned_header": "--xxx",  # 9
    "mirrors_headers": "----x",  # 10
    "polls_streams": "---x-",  # 9
    "typed_results": "----x",  # 4
    "has_cache_hints": "----x",  # 20
    "names_server": "----x",  # 4
    "has_audio": "-xxxx",  # 5
    "has_resource_links": "--xxx",  # 5
    "has_structured_content": "--xxx",  # 17
    "structures_any_json": "----x",  # 17
    "has_not_found_code": "xxxx-",  # 6
    "reserves_error_codes": "----x",  # 6
}


@pytest.mark.parametrize("trait", TRAITS)
def test_a_trait_is_of_the_revisions_that_the_reference_says(trait: str) -> None:
    marks = "".join("x" if getattr(revision.dialect, trait) else "-" for revision in Revision)
    assert marks == TRAITS[trait]


def test_every_trait_is_in_the_table() -> None:
    assert {field.name for field in attrs.fields(Dialect)} == {*TRAITS, "probe_method"}


def test_every_revision_has_a_dialect_and_there_is_no_other() -> None:
    assert set(DIALECTS) == {revision.value for revision in Revision}
    assert all(Revision(name).dialect is dialect for name, dialect in DIALECTS.items())


def test_a_dialect_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Revision.V2026_07_28.dialect.has_sessions = True  # type: ignore[misc]  # what is tested


@pytest.mark.parametrize("revision", Revision)
def test_every_revision_has_the_method_that_probes_its_servers(revision: Revision) -> None:
    method = revision.dialect.probe_method
    assert method == ("server/discover" if revision in MODERN else "ping")
    assert revision in METHODS[method].spoken[Direction.CLIENT_TO_SERVER]


@pytest.mark.parametrize(
    ("trait", "method", "direction"),
    [
        ("has_sessions", "initialize", Direction.CLIENT_TO_SERVER),
        ("has_listen", "subscriptions/listen", Direction.CLIENT_TO_SERVER),
        ("has_tasks", "tasks/result", Direction.CLIENT_TO_SERVER),
        ("asks_in_results", "sampling/createMessage", Direction.INPUT),
        ("tells_root_changes", "notifications/roots/list_changed", Direction.CLIENT_TO_SERVER),
        ("has_elicitation_ids", "notifications/elicitation/complete", Direction.SERVER_TO_CLIENT),
    ],
)
def test_a_trait_that_comes_with_a_method_agrees_with_its_row(trait: str, method: str, direction: Direction) -> None:
    assert {revision for revision in ALL if getattr(revision.dialect, trait)} == METHODS[method].spoken[direction]


def test_the_eras_are_told_apart_by_sessions() -> None:
    assert {revision for revision in ALL if revision.dialect.has_sessions} == LEGACY
