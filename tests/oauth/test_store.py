"""What is kept is kept whole, for its owner alone."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from callboard.errors import NotAuthorized
from callboard.oauth import FileStore, KeyringStore, MemoryStore, Store
from callboard.oauth.store import recall


class Ring:
    """A keyring, as the package would be."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.is_locked = False
        self.errors = SimpleNamespace(KeyringError=LookupError)

    def get_password(self, service_name: str, username: str) -> str | None:
        if self.is_locked:
            raise LookupError("locked, says canary-secret")
        return self.kept.get((service_name, username))

    def set_password(self, service_name: str, username: str, password: str) -> None:
        self.kept[service_name, username] = password

    def delete_password(self, service_name: str, username: str) -> None:
        del self.kept[service_name, username]


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def stores(folder: Path) -> list[Store]:
    return [MemoryStore(), FileStore(folder / "a" / "b"), KeyringStore("tests", Ring())]


async def test_what_is_saved_is_loaded_and_what_is_dropped_is_gone(tmp_path: Path) -> None:
    for store in stores(tmp_path):
        assert await store.load("tokens for https://a") is None
        await store.drop("tokens for https://a")
        await store.save("tokens for https://a", b"one")
        await store.save("tokens for https://a", b"two")
        await store.save("tokens for https://b", b"three")
        assert await store.load("tokens for https://a") == b"two"
        await store.drop("tokens for https://a")
        assert await store.load("tokens for https://a") is None
        assert await store.load("tokens for https://b") == b"three"


async def test_what_cannot_be_read_any_more_is_as_good_as_not_there(tmp_path: Path) -> None:
    for store in stores(tmp_path):
        await store.save("x", b'{"another": "version"}')
        assert await recall(store, "x", int) is None
        await store.save("x", b"7")
        assert await recall(store, "x", int) == 7


@pytest.mark.skipif(os.name != "posix", reason="rights of files are others elsewhere")
@pytest.mark.requirement("M384", "L228")
async def test_files_and_their_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "kept")
    before = os.umask(0)
    try:
        await store.save("x", b"secret")
    finally:
        os.umask(before)
    [file] = files(tmp_path / "kept")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "x" not in file.stem.split("-")  # names say nothing of whose it is


@pytest.mark.skipif(os.name != "posix", reason="rights of files are others elsewhere")
async def test_folders_that_are_made_on_the_way_are_for_their_owner_alone_and_others_stay_as_they_are(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "share").mkdir(0o755)
        await FileStore(tmp_path / "share" / "callboard" / "credentials" / "machine").save("x", b"secret")
    finally:
        os.umask(before)
    folders = [folder for folder in (tmp_path / "share").rglob("*") if folder.is_dir()]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    assert len(folders) == 3
    assert stat.S_IMODE((tmp_path / "share").stat().st_mode) == 0o755


@pytest.mark.skipif(os.name != "posix", reason="rights of files are others elsewhere")
async def test_a_file_that_others_may_read_is_not_believed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.save("x", b"secret")
    [file] = files(tmp_path)
    for mode in (0o640, 0o604, 0o666):
        file.chmod(mode)
        with pytest.raises(NotAuthorized, match="readable by other users"):
            await store.load("x")
    file.chmod(0o600)
    assert await store.load("x") == b"secret"


@pytest.mark.skipif(os.name != "posix", reason="links of files are others elsewhere")
async def test_a_link_to_elsewhere_is_not_followed(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "kept")
    await store.save("x", b"secret")
    [file] = files(tmp_path / "kept")
    file.rename(tmp_path / "moved")
    file.symlink_to(tmp_path / "moved")
    with pytest.raises(NotAuthorized):
        await store.load("x")
    await store.save("x", b"mine")
    assert (tmp_path / "moved").read_bytes() == b"secret"
    assert await store.load("x") == b"mine"


async def test_a_save_that_fails_leaves_what_was_there_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    await store.save("x", b"before")

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(NotAuthorized, match="No space left"):
        await store.save("x", b"after")
    monkeypatch.undo()
    assert await store.load("x") == b"before"
    assert len(files(tmp_path)) == 1


async def test_many_who_save_at_once_leave_one_of_their_values(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    values = [bytes([65 + number]) * 100_000 for number in range(10)]
    async with trio.open_nursery() as nursery:
        for value in values:
            nursery.start_soon(store.save, "x", value)
    assert await store.load("x") in values
    assert len(files(tmp_path)) == 1


async def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAuthorized, match="file"):
        await FileStore(tmp_path / "file").save("x", b"")


async def test_a_keyring_that_is_locked_is_named_and_what_it_says_is_not(tmp_path: Path) -> None:
    ring = Ring()
    ring.is_locked = True
    with pytest.raises(NotAuthorized) as caught:
        await KeyringStore("tests", ring).load("x")
    assert str(caught.value) == "the keyring cannot be used: LookupError"


def test_without_the_extra_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "keyring", None)
    with pytest.raises(NotAuthorized, match=r"callboard\[keyring\]"):
        KeyringStore()


def test_the_user_s_own_folder_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert FileStore.at_home().folder == tmp_path / "callboard" / "credentials"


async def test_what_cannot_be_dropped_is_said_so(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.save("x", b"1")
    [file] = files(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(NotAuthorized, match=r"directory|permitted"):
        await store.drop("x")
