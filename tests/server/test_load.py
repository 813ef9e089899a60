"""The server of an author's file or module: found by its name, as the only one, and in a package."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard import Server
from callboard.errors import CannotServe
from callboard.server.load import is_module_target, load_server

ONE = 'from callboard import Server\n{name} = Server("{title}")\n'


@pytest.fixture(autouse=True)
def no_leftovers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Each test has modules and a path of its own."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_the_only_server_of_a_file_is_taken_whatever_it_is_called(tmp_path: Path) -> None:
    assert load_server(written(tmp_path / "a.py", ONE.format(name="mcp", title="x"))).info.name == "x"
    twice = ONE.format(name="mcp", title="x") + "app = mcp\n"
    assert load_server(written(tmp_path / "b.py", twice)).info.name == "x"


def test_of_several_servers_the_one_called_server_is_taken(tmp_path: Path) -> None:
    both = ONE.format(name="one", title="1") + ONE.format(name="server", title="2")
    file = written(tmp_path / "a.py", both)
    assert load_server(file).info.name == "2"
    assert load_server(f"{file}:one").info.name == "1"


def test_of_several_others_one_must_be_chosen(tmp_path: Path) -> None:
    file = written(tmp_path / "a.py", ONE.format(name="one", title="1") + ONE.format(name="two", title="2"))
    with pytest.raises(CannotServe, match=r"has several servers; choose one of: .*a\.py:one, .*a\.py:two"):
        load_server(file)
    with pytest.raises(CannotServe, match="has no 'three'; choose one of"):
        load_server(f"{file}:three")
    with pytest.raises(CannotServe, match=r"empty\.py has no server$"):
        load_server(written(tmp_path / "empty.py", ""))


def package(folder: Path) -> None:
    written(folder / "pkg" / "__init__.py", "")
    written(folder / "pkg" / "util.py", 'TITLE = "relative"\n')
    main = "from callboard import Server\nfrom .util import TITLE\nserver = Server(TITLE)\n"
    written(folder / "pkg" / "main.py", main)


@pytest.mark.parametrize("target", ["pkg.main:server", "pkg.main", "pkg/main.py", "pkg/main.py:server"])
def test_a_module_of_a_package_imports_its_neighbours(tmp_path: Path, target: str) -> None:
    package(tmp_path)
    assert load_server(target).info.name == "relative"


def test_a_module_is_named_as_for_python(tmp_path: Path) -> None:
    written(tmp_path / "lonely.py", ONE.format(name="mcp", title="x"))
    assert load_server("lonely", is_module=True).info.name == "x"
    with pytest.raises(CannotServe, match="is not a module"):
        load_server("no/module", is_module=True)


def test_a_module_that_is_not_there_is_told_from_one_that_imports_such() -> None:
    with pytest.raises(CannotServe, match=r"nowhere\.at\.all: no such module in"):
        load_server("nowhere.at.all:server")
    written(Path("half.py"), "import nowhere_at_all\n")
    with pytest.raises(CannotServe, match=r"(?s)half: import failed:.*ModuleNotFoundError"):
        load_server("half:server")


def test_a_syntax_error_is_one_line_with_its_place(tmp_path: Path) -> None:
    written(tmp_path / "broken.py", "x = 1\ndef f(:\n")
    with pytest.raises(CannotServe) as told:
        load_server("broken.py")
    assert str(told.value) == "broken.py:2: SyntaxError: invalid syntax"
    written(tmp_path / "imports.py", "import broken\n")
    with pytest.raises(CannotServe, match=r"^broken\.py:2: SyntaxError"):
        load_server("imports.py")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        *(("a.py", False), ("a.py:server", False), ("a.b:server", True), ("a:server", True), ("a.b", True)),
        *(("localhost:8000", False), ("a", False), ("dir/a:server", False), ("http://a.b", False)),
    ],
)
def test_files_addresses_and_modules_are_told_apart(target: str, expected: bool) -> None:
    assert is_module_target(target) is expected


@pytest.mark.parametrize("run", ["server.run()", "server.run(http=0)"])
def test_a_file_that_runs_its_server_is_told_the_guard(tmp_path: Path, run: str) -> None:
    file = written(tmp_path / "a.py", ONE.format(name="server", title="x") + run)
    with pytest.raises(CannotServe) as told:
        load_server(file)
    text = 'a.py: the file calls run() when it is loaded: put that under `if __name__ == "__main__":`'
    assert str(told.value).endswith(text)
    package(tmp_path)
    written(tmp_path / "pkg" / "runs.py", ONE.format(name="server", title="x") + run)
    with pytest.raises(CannotServe, match=r"pkg\.runs: the file calls run"):
        load_server("pkg.runs:server")


async def test_a_server_that_runs_itself_in_a_trio_program_is_told_of_serve() -> None:
    with pytest.raises(RuntimeError, match=r"in a Trio program write `await serve\(server, \.\.\.\)`"):
        Server("x").run()
