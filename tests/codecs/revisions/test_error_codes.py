"""Error codes: which revision may say which, and what their `data` holds."""

from typing import Any

import attrs
import pytest

from callboard.codecs.revisions.capabilities import ClientCapabilities, SamplingCapability
from callboard.codecs.revisions.convert import write
from callboard.codecs.revisions.elicitation import URLElicitationRequiredData
from callboard.codecs.revisions.error_codes import (
    ERROR_CODES,
    ERROR_NAMES,
    Error,
    MissingRequiredClientCapabilityData,
    UnsupportedProtocolVersionData,
    read_error,
    read_error_as,
)
from callboard.codecs.revisions.model import UNSET
from callboard.codecs.revisions.revision import ALL, LEGACY, MODERN, R4, R5, Revision, Revisions
from callboard.errors import InvalidParams
from tests.codecs.revisions.official import definitions
from tests.shared import needs_protocol

VERSION = {"supported": ["2026-07-28"], "requested": "1900-01-01"}
CAPABILITY: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
URLS = {"elicitations": [{"mode": "url", "message": "m", "url": "https://x", "elicitationId": "1"}], "more": 1}
DATA: dict[int, Any] = {-32022: VERSION, -32021: CAPABILITY, -32042: URLS}


@pytest.mark.parametrize(
    ("code", "emitted"),
    [
        (-32700, ALL),
        (-32600, ALL),
        (-32601, ALL),
        (-32602, ALL),
        (-32603, ALL),
        (-32002, LEGACY),
        (-32042, frozenset({R4})),
        (-1, LEGACY),
        (-32020, MODERN),
        (-32021, MODERN),
        (-32022, MODERN),
    ],
)
def test_a_code_is_emitted_where_the_table_says(code: int, emitted: Revisions) -> None:
    assert ERROR_CODES[code].emitted == emitted


def test_no_code_is_missing_from_the_table_above() -> None:
    assert len(ERROR_CODES) == len(ERROR_NAMES) == 11


@needs_protocol
@pytest.mark.parametrize("revision", Revision)
def test_codes_are_those_of_the_schema(revision: Revision) -> None:
    for name, definition in definitions(revision).items():
        properties = definition.get("properties", {})
        parts = [{"properties": properties}, *properties.get("error", {}).get("allOf", [])]
        codes = [part.get("properties", {}).get("code", {}).get("const") for part in parts]
        for code in filter(None, codes):
            assert ERROR_NAMES[name].code == code
            assert revision in ERROR_NAMES[name].emitted


@pytest.mark.parametrize("name", ERROR_NAMES)
@pytest.mark.parametrize("revision", Revision)
def test_a_typed_error_is_refused_under_any_code_but_its_own(name: str, revision: Revision) -> None:
    row = ERROR_NAMES[name]
    value = {"code": row.code, "message": "m", "data": DATA.get(row.code, {"free": None})}
    if revision not in row.emitted:
        with pytest.raises(InvalidParams, match=r"^error\.code: "):
            read_error_as(revision, name, value)
        return
    assert write(revision, read_error_as(revision, name, value)) == value
    for other in {*ERROR_CODES, -32003, -32004, -32001} - {row.code}:
        with pytest.raises(InvalidParams, match=r"^error\.code: "):
            read_error_as(revision, name, value | {"code": other})


@pytest.mark.parametrize(
    ("revision", "code", "data", "expected"),
    [
        (R5, -32022, VERSION, UnsupportedProtocolVersionData(supported=["2026-07-28"], requested="1900-01-01")),
        (
            R5,
            -32021,
            CAPABILITY,
            MissingRequiredClientCapabilityData(
                required_capabilities=ClientCapabilities(sampling=SamplingCapability())
            ),
        ),
        (R5, -32022, {"supported": "all"}, {"supported": "all"}),
        (R4, -32022, VERSION, VERSION),
        (R5, -32602, VERSION, VERSION),
        (R5, 7, None, None),
    ],
)
def test_data_is_typed_where_it_fits_and_never_costs_the_error(
    revision: Revision, code: int, data: Any, expected: Any
) -> None:
    value = {"code": code, "message": "m", "data": data, "vendor": 1}
    error = read_error(revision, value)
    assert error.data == expected
    assert write(revision, error) == value


@pytest.mark.parametrize("revision", Revision)
def test_every_revision_can_say_which_versions_it_speaks(revision: Revision) -> None:
    data = UnsupportedProtocolVersionData(supported=list(Revision), requested="1900-01-01")
    written = write(revision, Error(code=-32602, message="m", data=data))
    assert written["data"] == {"supported": list(Revision), "requested": "1900-01-01"}


def test_url_elicitations_are_typed_in_2025_11_25() -> None:
    data = read_error(R4, {"code": -32042, "message": "m", "data": URLS}).data
    assert isinstance(data, URLElicitationRequiredData)
    assert data.elicitations[0].elicitation_id == "1"


@pytest.mark.parametrize("name", [name for name, row in ERROR_NAMES.items() if row.data is not None])
def test_a_typed_error_without_its_data_is_refused(name: str) -> None:
    row = ERROR_NAMES[name]
    with pytest.raises(InvalidParams, match=r"^error\.data: is required"):
        read_error_as(max(row.emitted), name, {"code": row.code, "message": "m"})


def test_an_error_without_data_has_none() -> None:
    error = read_error(R5, {"code": 1, "message": "m"})
    assert error.data is UNSET
    assert attrs.evolve(error, data=None) != error
