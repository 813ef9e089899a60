"""A file of tokens: what a line says, what is refused, what a change of the file leads to."""

import hashlib
import time
from collections.abc import Set
from pathlib import Path
from typing import Final

import pytest

from callboard.codecs.caller import Caller
from callboard.errors import CannotRead, CannotServe
from callboard.serve.token_line import new_line, read_line, read_time, time_after
from callboard.serve.tokens import TokenFile, TokenTable, read_lines
from tests.serve.test_serve import TOKEN

OTHER: Final = "fedcba9876543210-of-bob"


def sha256(token: str) -> str:
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.touch(0o600)
    return file


def write(path: Path, text: str) -> None:
    path.write_text(text)


def table(path: Path, text: str) -> TokenTable:
    path.write_text(text)
    return TokenTable.read(path)


def known(tokens: TokenTable, token: str) -> Caller:
    caller = tokens.known(token)
    assert caller is not None
    return caller


async def test_a_file_of_tokens_says_who_is_who(path: Path) -> None:
    tokens = table(path, f"# who may come in\n\nada {TOKEN}\nbob  {OTHER}  \nada another-one-for-ada\n")
    assert known(tokens, TOKEN).key == known(tokens, "another-one-for-ada").key == "ada"
    assert known(tokens, OTHER).principal == "bob"
    assert await tokens(TOKEN) is known(tokens, TOKEN)
    for wrong in ("", "ada", TOKEN + " ", TOKEN[:-1], TOKEN.upper(), "ä\udcff"):
        assert tokens.known(wrong) is None
    assert TOKEN not in repr(tokens)


def test_a_line_has_scopes_a_tenant_and_an_end(path: Path) -> None:
    tokens = table(path, f"ada {TOKEN} files:read expires=2999-01-01 https://x.example/mail tenant=acme\n")
    ada = known(tokens, TOKEN)
    assert (ada.principal, ada.tenant) == ("ada", "acme")
    assert ada.scopes == {"files:read", "https://x.example/mail"}
    assert ada.expires == read_time("2999-01-01T00:00Z")
    assert ada.key == "ada|acme||"


def test_a_file_may_have_hashes_and_they_are_no_tokens(path: Path) -> None:
    tokens = table(path, f"ada {sha256(TOKEN)} a:b\nbob {sha256(OTHER).upper().replace('SHA', 'sha')}\n")
    assert known(tokens, TOKEN).scopes == {"a:b"}
    assert known(tokens, OTHER).key == "bob"
    assert tokens.known(sha256(TOKEN)) is None
    assert tokens.known(hashlib.sha256(TOKEN.encode()).hexdigest()) is None


def test_a_token_that_has_ended_is_refused(path: Path) -> None:
    path.write_text(f"ada {TOKEN} expires=1970-01-01T00:01\nbob {OTHER}\n")
    now = [0.0]
    tokens = TokenTable.of(read_lines(path, path.read_text()))
    tokens = TokenTable(tokens._callers, lambda: now[0])  # the clock is not the file's
    assert known(tokens, TOKEN).expires == 60
    assert tokens.keys == {"ada", "bob"}
    now[0] = 60.0
    assert tokens.known(TOKEN) is None
    assert tokens.keys == {"bob"}
    assert known(tokens, OTHER).expires is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no tokens: every request"),
        ("# only\n", "no tokens: every request"),
        (f"\n{TOKEN}\n", "line 2: expected a principal and a token"),
        (f"anonymous {TOKEN}", "is reserved for clients without a token"),
        ("ada short-secret", "shorter than 16"),
        (f"ada {TOKEN}\nbob {TOKEN}", "line 2: duplicate token"),
        (f"ada {TOKEN}\nbob {sha256(TOKEN)}", "line 2: duplicate token"),
        (f"ada sha256:{TOKEN}", "64 hexadecimal digits"),
        (f"ada {TOKEN} expire=2027-01-01", "unknown option expire="),
        (f"ada {TOKEN} expires=soon", "expected a day or a time"),
        (f"ada {TOKEN} expires=", "expires= once, with a value"),
        (f"ada {TOKEN} tenant=a tenant=b", "tenant= once"),
        (f'ada {TOKEN} a"b', "a scope has"),
    ],
)
def test_a_wrong_file_of_tokens_is_refused_without_telling_one(text: str, words: str, path: Path) -> None:
    with pytest.raises(CannotServe, match=words) as refused:
        table(path, text)
    assert TOKEN not in str(refused.value)
    assert "short-secret" not in str(refused.value)


@pytest.mark.finding("security-24")
@pytest.mark.parametrize(("mode", "is_refused"), [(0o600, False), (0o640, False), (0o644, True), (0o620, True)])
def test_a_token_file_that_others_may_read_or_change_is_refused(path: Path, mode: int, is_refused: bool) -> None:
    path.write_text(f"ada {TOKEN}\n")
    path.chmod(mode)
    for is_running in (False, True):
        if not is_refused:
            assert known(TokenTable.read(path, is_running=is_running), TOKEN).key == "ada"
            continue
        with pytest.raises(CannotServe, match=rf"mode {mode:04o}\); run: chmod 600 {path}") as refused:
            TokenTable.read(path, is_running=is_running)
        assert not isinstance(refused.value, CannotRead)  # which would be tried again and again


def test_a_running_server_goes_by_a_file_of_comments_and_not_by_an_empty_one(path: Path) -> None:
    """All are revoked; or it is not written yet."""
    path.write_text("# all tokens are revoked\n")
    assert not TokenTable.read(path, is_running=True).keys
    path.write_text("\n")
    with pytest.raises(CannotServe, match="no tokens"):
        TokenTable.read(path, is_running=True)


async def changed(path: Path, before: str, after: str) -> tuple[TokenFile, set[str], dict[str, object]]:
    """A file that was read, changed and read again; the keys that were cut off; what was logged."""
    write(path, before)
    file, gone = TokenFile(path), set[str]()

    async def end(keys: Set[str]) -> int:
        gone.update(keys)
        return len(keys)

    file.on_gone = end
    write(path, after)
    return file, gone, dict(await file.use(file.read()))


@pytest.mark.parametrize(
    ("before", "after", "gone", "added", "revoked"),
    [
        ("", "", set(), 0, 0),
        ("", "a:b", set(), 1, 1),  # more scopes: what is open can go on
        ("a:b c:d", "c:d a:b", set(), 0, 0),
        ("a:b c:d", "a:b", {"ada"}, 1, 1),
        ("tenant=x", "tenant=y", {"ada|x||"}, 1, 1),
        ("", "expires=2999-01-01", {"ada"}, 1, 1),
        ("expires=2998-01-01", "expires=2999-01-01", set(), 1, 1),
        ("expires=2999-01-01", "expires=2001-01-01", {"ada"}, 1, 1),
    ],
)
async def test_a_token_that_says_less_than_before_ends_what_is_open(
    path: Path, before: str, after: str, gone: set[str], added: int, revoked: int
) -> None:
    _, ended, facts = await changed(path, f"ada {TOKEN} {before}\nbob {OTHER}\n", f"ada {TOKEN} {after}\nbob {OTHER}\n")
    assert ended == gone
    assert (facts["added"], facts["revoked"], facts["sessions_ended"]) == (added, revoked, len(gone))


async def test_a_caller_is_the_same_object_until_its_line_changes(path: Path) -> None:
    write(path, f"ada {TOKEN}\nbob {OTHER} a:b\n")
    file = TokenFile(path)
    ada, bob = file.known(TOKEN), file.known(OTHER)
    assert file.known(TOKEN) is ada is await file(TOKEN)
    write(path, f"# hashed\nada {sha256(TOKEN)}\nbob {OTHER} a:b c:d\n")
    await file.use(file.read())
    assert file.known(TOKEN) is ada
    assert file.known(OTHER) is not bob
    assert (now := file.known(OTHER)) is not None
    assert now.scopes == {"a:b", "c:d"}


def test_forty_thousand_tokens_are_looked_up_as_fast_as_one(path: Path) -> None:
    lines = [f"u{number} {new_line('x')[1].digest.hex()}" for number in range(40_000)]

    def seconds(tokens: TokenTable) -> float:
        best = 1.0
        for _ in range(20):
            began = time.perf_counter()
            for _ in range(100):
                tokens.known(TOKEN)
            best = min(best, time.perf_counter() - began)
        return best / 100

    one, many = table(path, f"ada {TOKEN}\n"), table(path, "\n".join([*lines, f"ada {TOKEN}"]))
    assert known(many, TOKEN).key == "ada"
    assert seconds(many) < 10 * seconds(one)  # 40,000 comparisons would take a thousand times as long


# New ones.


def test_a_new_token_is_random_and_its_line_has_only_the_hash() -> None:
    (token, line), (other, _) = (new_line("ada", ["b", "a"], "acme", 2_000_000_000.0) for _ in range(2))
    assert token != other
    assert len(token) >= 43
    assert str(line) == f"ada {sha256(token)} a b tenant=acme expires=2033-05-18T03:33:20Z"
    again = read_line(str(line))
    assert again is not None
    assert (again.digest, again.caller.key, again.caller.expires) == (line.digest, "ada|acme||", 2_000_000_000.0)


@pytest.mark.parametrize(
    ("principal", "scopes", "tenant"),
    [
        ("ada b", [], ""),
        ("#ada", [], ""),
        ("", [], ""),
        ("ada\n", [], ""),
        ("anonymous", [], ""),
        ("ada", ["a b"], ""),
        ("ada", ["tenant=x"], ""),
        ("ada", ["expires=2999-01-01"], "x y"),
        ("ada", [""], ""),
    ],
)
def test_a_name_that_would_say_something_else_in_a_line_is_refused(
    principal: str, scopes: list[str], tenant: str
) -> None:
    with pytest.raises(ValueError):  # for many reasons
        new_line(principal, scopes, tenant)


@pytest.mark.parametrize(("span", "seconds"), [("90d", 90 * 86_400), ("12h", 43_200), ("2w", 14 * 86_400)])
def test_a_span_is_counted_from_now_on(span: str, seconds: int) -> None:
    assert time_after(span, 1000.0) == 1000 + seconds
    assert time_after("2027-01-01T02:00+02:00", 1000.0) == read_time("2027-01-01")
    for wrong in ("0d", "-1d", "90", "99999999d", "soon", "90m"):
        with pytest.raises(ValueError, match="expires: expected"):
            time_after(wrong, 1000.0)
