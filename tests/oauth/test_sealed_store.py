"""Values of a store at rest: encrypted, bound to their names, few, and refused if a byte is another."""

from pathlib import Path

import pytest

from callboard.codecs.seal import KeyRing
from callboard.errors import NotAuthorized
from callboard.oauth import sealed_store
from callboard.oauth.sealed_store import BoundedStore, SealedStore, derived, open_store
from callboard.oauth.store import FileStore

KEY, OTHER = b"a" * 32, b"b" * 32


def sealed(folder: Path, *keys: bytes) -> SealedStore:
    return SealedStore(FileStore(folder), derived(keys or (KEY,)))


async def test_no_value_stands_in_a_file(tmp_path: Path) -> None:
    store = sealed(tmp_path / "t")
    canaries = [f"c4n4ry-{number}" for number in range(20)]
    for canary in canaries:
        await store.save(f"of {canary[-1]}{canary}", canary.encode())
    for canary in canaries:
        assert await store.load(f"of {canary[-1]}{canary}") == canary.encode()
    files = list((tmp_path / "t").iterdir())
    seen = "".join(path.name + path.read_text("latin-1") for path in files) + repr(store)
    assert len(files) == 20
    assert not [canary for canary in canaries if canary in seen]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


async def test_each_flipped_byte_is_refused_in_one_line(tmp_path: Path) -> None:
    store = sealed(tmp_path)
    await store.save("name", b"s3cret")
    path = store.files.path("name")
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(NotAuthorized, match="cannot be decrypted") as caught:
            await store.load("name")
        assert "\n" not in str(caught.value)
        assert "s3cret" not in str(caught.value)


async def test_a_value_opens_under_its_own_name_only(tmp_path: Path) -> None:
    store = sealed(tmp_path)
    await store.save("of alice", b"s3cret")
    store.files.path("of alice").rename(store.files.path("of bob"))
    with pytest.raises(NotAuthorized, match="cannot be decrypted"):
        await store.load("of bob")


async def test_another_key_is_noticed_at_the_start_and_an_older_one_still_opens(tmp_path: Path) -> None:
    await sealed(tmp_path).check()
    await sealed(tmp_path).save("name", b"s3cret")
    await sealed(tmp_path).check()
    with pytest.raises(NotAuthorized, match="cannot be decrypted"):
        await sealed(tmp_path, OTHER).check()
    rotated = sealed(tmp_path, OTHER, KEY)
    await rotated.check()
    assert await rotated.load("name") == b"s3cret"


async def test_the_key_is_not_the_one_that_seals_for_clients(tmp_path: Path) -> None:
    await sealed(tmp_path).save("name", b"s3cret")
    raw = SealedStore(FileStore(tmp_path), KeyRing.from_bytes(KEY))
    with pytest.raises(NotAuthorized, match="cannot be decrypted"):
        await raw.load("name")


@pytest.mark.parametrize("in_files", [True, False])
async def test_values_are_few_and_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_files: bool) -> None:
    monkeypatch.setattr(sealed_store, "MAX_ENTRIES", 3)
    store = open_store(tmp_path / "t" if in_files else None, [KEY])
    assert isinstance(store, SealedStore if in_files else BoundedStore)
    for name in ("a", "b", "c", "a"):
        await store.save(name, b"x")
    with pytest.raises(NotAuthorized):
        await store.save("d", b"x")
    await store.drop("b")
    assert await store.load("b") is None
    await store.save("d", b"x")
    if in_files:
        with pytest.raises(NotAuthorized, match="too large"):
            await store.save("a", b"x" * 64 * 1024)
        assert await store.load("a") == b"x"
