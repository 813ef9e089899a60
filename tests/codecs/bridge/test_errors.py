"""Errors from one era to the other, row by row: BRIDGING.md, section 12."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from callboard.codecs.bridge.errors import front_error
from callboard.codecs.envelope import ErrorResponse
from callboard.codecs.revisions import LEGACY, MODERN, Revision
from callboard.codecs.revisions.revision import R1, R4, R5

URI = "notes://one"


def crossed(
    front: Revision, back: Revision, code: int, data: Any = UNSET, method: str = "tools/call"
) -> tuple[int, Any]:
    raw: Any = data if data is UNSET else Raw(msgspec.json.encode(data))
    uri = URI if method == "resources/read" else None
    error = front_error(front, back, method, ErrorResponse(1, code, "why", raw), uri)
    found = error.data
    return error.error_code, msgspec.json.decode(found) if isinstance(found, Raw) else _plain(found)


def _plain(found: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(found))


@pytest.mark.parametrize("front", sorted(LEGACY))
def test_a_missing_resource_of_a_modern_backend_has_its_old_code_for_legacy_clients(front: Revision) -> None:
    assert crossed(front, R5, -32602, {"uri": URI}, "resources/read") == (-32002, {"uri": URI})
    assert crossed(front, R5, -32602, {"uri": "notes://two"}, "resources/read") == (-32602, {"uri": "notes://two"})
    assert crossed(front, R5, -32602, UNSET, "resources/read") == (-32602, None)
    assert crossed(front, R5, -32602, {"uri": URI}) == (-32602, {"uri": URI})


@pytest.mark.parametrize("back", sorted(LEGACY))
def test_a_missing_resource_of_a_legacy_backend_has_its_new_code_for_modern_clients(back: Revision) -> None:
    assert crossed(R5, back, -32002, {"uri": URI}, "resources/read") == (-32602, {"uri": URI})


@pytest.mark.parametrize("front", sorted(LEGACY | MODERN))
@pytest.mark.parametrize("code", [-32020, -32022])
def test_what_is_between_the_broker_and_a_modern_backend_is_no_news_for_a_client(front: Revision, code: int) -> None:
    found, data = crossed(front, R5, code, {"supported": ["x"]})
    assert found == -32603
    assert data["cause"] == {"code": code, "message": "why", "data": {"supported": ["x"]}}


@pytest.mark.parametrize("front", sorted(LEGACY | MODERN))
def test_a_missing_capability_is_passed_on(front: Revision) -> None:
    data: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
    assert crossed(front, R5, -32021, data) == (-32021, data)


@pytest.mark.parametrize("code", [-32000, -32001, -32019, -32020, -32042, -32050, -32099])
def test_codes_of_legacy_backends_in_the_reserved_range_become_causes(code: int) -> None:
    found, data = crossed(R5, R4, code, {"x": 1})
    assert (found, data["cause"]["code"], data["cause"]["data"]) == (-32603, code, {"x": 1})


@pytest.mark.parametrize("code", [-32000, -32002, -32042, -32601, -32602, -1, 7])
def test_between_legacy_and_legacy_nothing_changes(code: int) -> None:
    assert crossed(R1, R4, code, {"x": 1}) == (code, {"x": 1})


@pytest.mark.parametrize(("front", "back"), [(R5, R4), (R4, R5), (R5, R5)])
@pytest.mark.parametrize("code", [-32700, -32600, -32601, -32602, -32603, -1, 7, -31001])
def test_any_other_is_unchanged(front: Revision, back: Revision, code: int) -> None:
    assert crossed(front, back, code, {"x": 1}) == (code, {"x": 1})
