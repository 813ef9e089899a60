"""`callboard token`: new tokens, of which a file has hashes alone; the list of them; and their end."""

import json
import stat
import threading
from pathlib import Path

import pytest

from callboard.cli import token as command
from callboard.cli.codes import Exit
from callboard.cli.main import app
from callboard.errors import CannotServe
from callboard.serve.tokens import TokenTable


def run(*arguments: object) -> int:
    return int(app([str(one) for one in arguments], result_action="return_value", exit_on_error=False))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.txt"


def made(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, str]:
    assert run("token", "new", *arguments) == Exit.FINE
    return capsys.readouterr()


def test_a_new_token_goes_to_standard_output_and_its_hash_to_the_file(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, hint = made(
        capsys, "ada", "--scope", "a:b", "--scope", "c", "--tenant", "acme", "--expires", "90d", "--file", file
    )
    (token,) = out.splitlines()
    assert command.HINT in hint
    assert token not in hint + file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    caller = TokenTable.read(file).known(token)
    assert caller is not None
    assert (caller.principal, caller.tenant) == ("ada", "acme")
    assert caller.scopes == {"a:b", "c"}
    assert caller.expires is not None


def test_without_a_file_the_line_is_printed_too(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token, line = made(capsys, "ada")[0].splitlines()
    file.touch(0o600)
    file.write_text(line)
    assert TokenTable.read(file).known(token) is not None
    told = json.loads(made(capsys, "ada", "--json")[0])
    assert set(told) == {"token", "line"}


def test_a_line_is_added_to_what_is_there(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.touch(0o640)
    file.write_text("# ours\nbob 0123456789abcdef-bob")  # without an end of line
    file.chmod(0o640)
    token = made(capsys, "ada", "--file", file)[0].strip()
    assert file.read_text().startswith("# ours\nbob 0123456789abcdef-bob\nada sha256:")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert TokenTable.read(file).known(token) is not None
    assert [one.name for one in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ada", "--expires", "2001-01-01"], "is over"),
        (["ada", "--expires", "soon"], "expected a span such as 90d"),
        (["a b"], "no spaces"),
        (["anonymous"], "is reserved"),
    ],
)
def test_wrong_arguments_are_refused_and_no_token_is_made(
    arguments: list[str], words: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CannotServe, match=words):
        run("token", "new", *arguments, "--file", file)
    assert not file.exists()
    assert not capsys.readouterr().out


def test_a_file_that_others_can_read_or_that_is_wrong_is_left_as_it_is(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("bob 0123456789abcdef-bob\n")
    file.chmod(0o644)
    with pytest.raises(CannotServe, match="chmod 600"):
        run("token", "new", "ada", "--file", file)
    file.chmod(0o600)
    file.write_text("bob short\n")
    with pytest.raises(CannotServe, match="line 1: the token is shorter"):
        run("token", "new", "ada", "--file", file)
    assert file.read_text() == "bob short\n"
    assert not capsys.readouterr().out


def test_the_list_has_no_secrets(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = [made(capsys, "ada", "--scope", "a:b", "--tenant", "acme", "--file", file)[0].strip()]
    with file.open("a") as lines:
        lines.write("bob 0123456789abcdef-bob expires=2001-01-01\n")
    assert run("token", "list", file) == Exit.FINE
    text = capsys.readouterr().out
    assert text.splitlines() == [
        "ada\tacme\tnever ends\thash\ta:b",
        "bob\t-\tended 2001-01-01T00:00:00Z\tclear text\t-",
    ]
    assert run("token", "list", file, "--json") == Exit.FINE
    told = capsys.readouterr().out
    assert [(one["principal"], one["is_expired"], one["is_hashed"]) for one in json.loads(told)["tokens"]] == [
        ("ada", False, True),
        ("bob", True, False),
    ]
    for secret in (*tokens, "0123456789abcdef-bob", "sha256:"):
        assert secret not in text + told


def test_revoked_tokens_are_taken_out_and_the_rest_stays(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["ada"], ["ada", "--tenant", "acme"], ["bob"]):
        made(capsys, *words, "--file", file)
    file.write_text("# ours\n" + file.read_text())
    assert run("token", "revoke", file, "ada", "--tenant", "acme") == Exit.FINE
    assert TokenTable.read(file).keys == {"ada", "bob"}
    assert run("token", "revoke", file, "ada") == Exit.FINE
    assert TokenTable.read(file).keys == {"bob"}
    assert file.read_text().startswith("# ours\n")
    with pytest.raises(CannotServe, match="no token of ada"):
        run("token", "revoke", file, "ada")


def test_a_running_server_takes_the_last_revocation_for_what_it_is(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(capsys, "ada", "--file", file)
    assert run("token", "revoke", file, "ada", "--json") == Exit.FINE
    assert json.loads(capsys.readouterr().out) == {"revoked": 1}
    assert not TokenTable.read(file, is_running=True).keys


def test_two_commands_at_once_lose_no_line(file: Path) -> None:
    threads = [threading.Thread(target=run, args=("token", "new", f"u{number}", "--file", file)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert TokenTable.read(file).keys == {f"u{number}" for number in range(8)}
