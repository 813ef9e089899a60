"""The reference says what is read, and its examples are."""

import re
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from callboard.actors.broker.policy import BackendSettings, Restarts
from callboard.config.auth import GRANTS, OAUTH_KEYS
from callboard.config.load import ENTRY_KEYS, MAX_FILE, OUR_KEYS
from callboard.config.policy import MAX_NAME, RESTART_KEYS, SETTINGS_KEYS, TOOLS_KEYS
from callboard.config.watch import SETTLE
from callboard.supervisor import Backoff, Intensity
from tests.config.files import read
from tests.shared import ROOT

PAGE: Final = (ROOT / "docs" / "reference" / "configuration.md").read_text()
EXAMPLES: Final = re.findall(r"```(json|toml)\n(.*?)```", PAGE, re.DOTALL)

KEYS: Final = {field.name: field.name for field in attrs.fields(BackendSettings)} | {"restarts": "restart"}
"""How each setting is written."""


def rows() -> dict[str, list[str]]:
    """What stands beside each key."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")
    ]
    return {key: row[1:] for row in cells for key in re.findall(r"`([^`]+)`", row[0])}


def test_every_setting_of_a_backend_can_be_written_and_is_documented() -> None:
    assert set(KEYS.values()) == set(SETTINGS_KEYS)
    documented = set(rows()) | {"tools"}
    assert {*ENTRY_KEYS, *OUR_KEYS, *RESTART_KEYS} - documented == set()
    assert {f"tools.{key}" for key in TOOLS_KEYS} - documented == set()
    assert [key for key in OAUTH_KEYS if f"`{key}" not in PAGE] == []
    assert [grant for grant in GRANTS if f'`"{grant}"`' not in PAGE] == []


def test_every_default_is_the_one_that_is_documented() -> None:
    found, usual, restarts = rows(), BackendSettings(), Restarts()
    intensity, backoff = Intensity(), Backoff()
    expected: dict[str, Any] = {
        key: getattr(usual, name) for name, key in KEYS.items() if isinstance(getattr(usual, name), int | float | str)
    } | {
        "times": intensity.restarts,
        "per": intensity.per,
        "first": backoff.first,
        "most": backoff.most,
        "cool_down": restarts.cool_down,
    }
    assert len(expected) == 17
    for key, value in expected.items():
        text = f'`"{value}"`' if isinstance(value, str) else str(value).lower() if value is False else f"{value:g}"
        assert found[key][0] == text, key


def test_every_limit_is_the_one_that_is_documented() -> None:
    assert MAX_FILE == 1024 * 1024
    assert f"1 to {MAX_NAME} letters" in PAGE
    assert f"{SETTLE:g} s" in PAGE


@pytest.mark.parametrize(("kind", "text"), EXAMPLES, ids=[kind for kind, _ in EXAMPLES])
def test_every_example_is_read_without_a_mistake(tmp_path: Path, kind: str, text: str) -> None:
    configuration = read(tmp_path, text, f"servers.{kind}")
    assert configuration.backends
    assert [warning for warning in configuration.warnings if "no such program" not in warning.message] == []


def test_both_formats_of_the_first_example_say_the_same(tmp_path: Path) -> None:
    first, second = EXAMPLES[:2]
    assert {first[0], second[0]} == {"json", "toml"}
    assert read(tmp_path, first[1], "a.json").backends == read(tmp_path, second[1], "a.toml").backends
