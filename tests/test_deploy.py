"""The files in `deploy/`: their variables are flags, and nodes can read the keys that they get by them."""

import os
import re
import stat
import subprocess
from pathlib import Path

import attrs
import pytest

from callboard.cli.serve_flags import Where
from callboard.errors import CannotServe
from callboard.serve.state_keys import read_state_keys
from callboard.transports.limits import Settings
from tests.shared import ROOT

DEPLOY = ROOT / "deploy"


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def install_in(name: str) -> str:
    """The shell command of the container that copies the keys."""
    found = re.search(r"\"([^\"]*\binstall [^\"]+)\"", (DEPLOY / name).read_text())
    assert found is not None
    return found[1]


def run(*words: str) -> None:
    subprocess.run(["/bin/sh", *words], check=True)


def test_every_variable_is_a_flag() -> None:
    flags = {field.name for owner in (Where, Settings) for field in attrs.fields(owner)}
    text = "".join(file.read_text() for file in DEPLOY.iterdir() if file.is_file() and file.suffix != ".json")
    named = set(re.findall(r"CALLBOARD_([A-Z_]+[A-Z])\b", text))
    assert {"HTTP", "CLUSTER", "STATE_KEY_FILE"} <= named
    assert {name.lower() for name in named} <= flags


def test_pods_can_read_the_keys_of_a_secret(tmp_path: Path) -> None:
    """Kubernetes gives its files to a group, and callboard refuses such: so they are copied first."""
    secret_keys, keys = tmp_path / "secret", tmp_path / "copied"
    secret_keys.mkdir()
    keys.mkdir()
    (secret_keys / "keys").write_text("ab" * 32)
    (secret_keys / "keys").chmod(0o440)
    with pytest.raises(CannotServe):
        read_state_keys(secret_keys / "keys")
    run("-euc", install_in("kubernetes.yaml").replace("/secret-keys", f"{secret_keys}").replace(" /keys", f" {keys}"))
    assert read_state_keys(keys / "keys") == [bytes.fromhex("ab" * 32)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_containers_have_copies_of_the_keys_that_belong_to_their_user(tmp_path: Path) -> None:
    made, copied = tmp_path / "made", tmp_path / "copied"
    run(str(DEPLOY / "make-certificates"), str(made), "node1", "node2")
    assert mode_of(made / "keys") == 0o600
    copied.mkdir()
    run("-euc", install_in("compose.yaml").replace("/from", str(made)).replace("/secrets", str(copied)))
    assert {file.name for file in made.iterdir()} - {file.name for file in copied.iterdir()} == {"ca.key", "ca.srl"}
    user = re.search(r"--uid (\d+)", (DEPLOY / "Dockerfile").read_text())
    assert user is not None
    assert {(file.stat().st_uid, mode_of(file)) for file in copied.iterdir()} == {(int(user[1]), 0o600)}
    assert read_state_keys(copied / "keys")
