"""Every configuration of docs/howto/protect.md is valid, and says what the page says."""

import re
from pathlib import Path

import pytest

from callboard.config.authorization import AuthorizationSettings, read_authorization
from tests.shared import ROOT

PAGE = (ROOT / "docs" / "howto" / "protect.md").read_text()
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def settings(text: str, folder: Path) -> AuthorizationSettings:
    file = folder / "authorization.toml"
    file.write_text(text)
    found = read_authorization(file)
    assert found is not None
    return found


@pytest.mark.parametrize("text", BLOCKS, ids=range(len(BLOCKS)))
def test_every_block_of_the_page_is_read(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_SECRET", "a secret of thirty-two characters")
    found = settings(text, tmp_path)
    assert not found.warnings
    assert found.issuers or found.rules


def test_the_page_has_each_kind_of_issuer() -> None:
    assert len(BLOCKS) >= 7
    for name in ("keycloak", "microsoftonline", "auth0", "cognito", "introspection"):
        assert any(name in block for block in BLOCKS)
