"""What a session keeps of what its client says of itself: little, for there may be thousands of sessions."""

import pytest

from callboard.actors.terms import MAX_DECLARED, MAX_TITLE, kept_abilities, kept_info
from callboard.codecs.revisions import ClientCapabilities, Implementation, read
from callboard.codecs.revisions.revision import R4
from callboard.errors import InvalidParams

LARGE = "x" * 100_000


@pytest.mark.finding("security-22")
def test_a_client_that_says_much_of_itself_is_kept_by_its_name() -> None:
    said = {"name": "c", "version": "1", "title": LARGE, "description": LARGE, "odd": LARGE}
    kept = kept_info(R4, read(R4, Implementation, said))
    assert kept == Implementation(name="c", version="1", title="x" * MAX_TITLE)
    usual = read(R4, Implementation, {"name": "c", "version": "1", "odd": "kept"})
    assert kept_info(R4, usual) is usual


@pytest.mark.finding("security-22")
def test_what_is_experimental_is_not_kept_if_it_is_long() -> None:
    said = read(R4, ClientCapabilities, {"experimental": {"x": {"y": LARGE}}, "sampling": {}})
    assert kept_abilities(R4, said) == read(R4, ClientCapabilities, {"sampling": {}})
    with pytest.raises(InvalidParams, match=f"more than {MAX_DECLARED} bytes"):
        kept_abilities(R4, read(R4, ClientCapabilities, {"odd": LARGE}))
