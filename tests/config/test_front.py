"""Settings of a whole broker: extensions, prefixes and profiles."""

from pathlib import Path

import pytest

from callboard.actors.broker.policy import Filter, Profile
from callboard.config import BadConfiguration, difference, read_configuration

SERVERS = '[mcpServers.one]\nurl = "https://example.com/1"\n[mcpServers.two]\nurl = "https://example.com/2"\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "servers.toml"
    file.write_text(text)
    return file


def test_extensions_prefix_and_profiles_are_read(tmp_path: Path) -> None:
    said = (
        'extensions = ["com.example/*"]\nexperimental = ["try"]\nprefix = "conflict"\n'
        + SERVERS
        + '[mcpServers.one.callboard]\nprefix = "own"\n'
        + '[profiles.few]\nservers = ["two"]\nallow = ["read_*"]\ndeny = ["*_all"]\n[profiles.all]\n'
    )
    found = read_configuration(written(tmp_path, said))
    assert found.warnings == ()
    assert (found.front.extensions, found.front.experimental) == (("com.example/*",), ("try",))
    assert [spec.prefix for spec in found.backends] == ["own", ""]
    assert found.front.profiles == (
        Profile(name="few", servers=("two",), tools=Filter(allow=("read_*",), deny=("*_all",))),
        Profile(name="all", servers=("one", "two")),
    )


def test_a_server_may_have_the_prefix_conflict_alone(tmp_path: Path) -> None:
    found = read_configuration(written(tmp_path, SERVERS + '[mcpServers.one.callboard]\nprefix = "conflict"\n'))
    assert [spec.prefix for spec in found.backends] == ["", "two"]


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("extensions = 3\n" + SERVERS, "extensions: must be a list of strings"),
        ('extensions = ["mood"]\n' + SERVERS, '"mood" is not an extension'),
        ('prefix = "bare"\n' + SERVERS, "is not one of server, conflict"),
        (SERVERS + "[profiles.one]\n", "both would be served at /mcp/one"),
        (SERVERS + '[profiles.few]\nservers = ["three"]\n', 'there is no server "three"'),
        (SERVERS + '[profiles."a/b"]\n', "has characters other than"),
        ("profiles = 3\n" + SERVERS, "profiles: must be a table"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, said: str, wrong: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        read_configuration(written(tmp_path, said))
    assert wrong in "\n".join(str(one) for one in refused.value.mistakes)


def test_an_extension_of_the_brokers_own_and_an_unknown_key_are_warned_of(tmp_path: Path) -> None:
    said = 'extensions = ["io.modelcontextprotocol/tasks"]\n' + SERVERS + "[profiles.few]\nserver = 1\n"
    warnings = "\n".join(str(one) for one in read_configuration(written(tmp_path, said)).warnings)
    assert "is served by the broker itself" in warnings
    assert "profiles.few.server" in warnings


def test_a_change_of_these_settings_alone_is_a_change(tmp_path: Path) -> None:
    old = read_configuration(written(tmp_path, SERVERS))
    new = read_configuration(written(tmp_path, 'extensions = ["com.example/a"]\n' + SERVERS))
    found = difference(old, new)
    assert (bool(found), found.is_front, found.changed) == (True, True, ())
    assert not difference(new, new)
