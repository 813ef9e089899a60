"""Extensions and experimental capabilities whose settings do not fit are no reason to refuse a peer."""

import pytest

from callboard.codecs.revisions import ClientCapabilities, JSONObject, Revision, ServerCapabilities
from callboard.codecs.revisions.convert import read, write
from callboard.errors import InvalidParams
from tests.client.stage import every_revision

SIDES = pytest.mark.parametrize("side", [ClientCapabilities, ServerCapabilities])
MEMBERS = pytest.mark.parametrize("member", ["extensions", "experimental"])


@SIDES
@MEMBERS
@every_revision
def test_settings_that_are_null_are_empty_and_others_that_are_no_object_are_left_out(
    revision: Revision, member: str, side: type[ClientCapabilities | ServerCapabilities]
) -> None:
    said: JSONObject = {
        "com.example/nil": None,
        "com.example/on": True,
        "com.example/list": [{}],
        "com.example/x": {"deep": None},
    }
    found = read(revision, side, {member: said})
    assert getattr(found, member) == {"com.example/nil": {}, "com.example/x": {"deep": None}}
    assert write(revision, found) == {member: {"com.example/nil": {}, "com.example/x": {"deep": None}}}


@SIDES
@MEMBERS
def test_a_list_in_place_of_all_extensions_is_refused(
    member: str, side: type[ClientCapabilities | ServerCapabilities]
) -> None:
    with pytest.raises(InvalidParams, match=rf"{member}: expected an object, not an array"):
        read(Revision.V2025_11_25, side, {member: [{}]})
