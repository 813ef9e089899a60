"""`FILE.py`, `FILE.py:NAME`, `package.module:NAME`: an author's code, and the server in it."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from callboard.errors import CannotServe
from callboard.server.faults import traceback_of
from callboard.server.misuse import RunsTooEarly, loading
from callboard.server.server import Server


class NoSuchServer(CannotServe):
    """What a target names is not there: no such file, module or name, or no server by that name."""


DEFAULT_NAME: Final = "server"

_MODULE: Final = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*)(?::(?P<name>[^\W\d]\w*))?")


def load_server(target: str, *, is_module: bool = False) -> Server:
    """The server that *target* names; without a name `server`, or the only one that there is.

    With *is_module* it is a module, as for `python -m`; else a file if it ends with `.py`, or is one. Raises
    `CannotServe`, in words for its author.
    """
    if is_module or is_module_target(target):
        named = _MODULE.fullmatch(target)
        if named is None:
            raise NoSuchServer(f"{target[:200]!r} is not a module: expected package.module or package.module:NAME")
        return _server(_import(named["module"], Path.cwd()), named["module"], named["name"])
    file, name = split_target(target)
    return _server(_load(file), str(file), name)


def load_name(file: Path, name: str) -> object:
    """What has this *name* in a Python *file*. Raises `CannotServe`, in words for its author."""
    module = _load(file)
    if not hasattr(module, name):
        raise CannotServe(f"{file} has no {name!r}")
    found: object = getattr(module, name)
    return found


def is_module_target(target: str) -> bool:
    """Whether *target* is `package.module:NAME` or `package.module`, and no file."""
    named = _MODULE.fullmatch(target)
    if named is None or Path(named["module"]).exists() or target.endswith(".py") or ".py:" in target:
        return False
    return named["name"] is not None or "." in target


def split_target(target: str) -> tuple[Path, str | None]:
    """File and name; None without a name."""
    if target.endswith(".py"):
        return Path(target), None
    file, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        raise NoSuchServer(
            f"{target[:200]!r} is not a Python server: expected FILE.py, FILE.py:NAME or package.module:NAME"
        )
    return Path(file), name


def _server(module: ModuleType, title: str, name: str | None) -> Server:
    """The server *name* of a module. Without a name: `server`, else the only one. Raises `CannotServe`."""
    servers = {known: value for known, value in vars(module).items() if isinstance(value, Server)}
    if name is None and DEFAULT_NAME not in servers and len({id(one) for one in servers.values()}) == 1:
        return next(iter(servers.values()))
    wanted = name or DEFAULT_NAME
    if not hasattr(module, wanted):
        there = f"; choose one of: {', '.join(f'{title}:{one}' for one in servers)}" if servers else ""
        has = "several servers" if name is None and servers else f"no {wanted!r}" if servers else "no server"
        raise NoSuchServer(f"{title} has {has}{there}")
    found = getattr(module, wanted)
    if not isinstance(found, Server):
        raise NoSuchServer(f"{title}:{wanted} is not a callboard.Server but {type(found).__name__}")
    return found


def _load(file: Path) -> ModuleType:
    if not file.is_file():
        raise NoSuchServer(f"{file}: no such file")
    path = file.resolve()
    if (path.parent / "__init__.py").is_file():
        return _load_of_package(file, path)
    # Not by its own name, which may be that of a module which others mean.
    spec = importlib.util.spec_from_file_location(f"_served_{file.stem}", path)
    if spec is None or spec.loader is None:
        raise CannotServe(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and annotations look there
    sys.path.insert(0, str(path.parent))  # as if Python itself ran it
    try:
        with loading():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # any exception of an author's file is for the author to read
        raise _failed(str(file), error) from None
    return module


def _load_of_package(file: Path, path: Path) -> ModuleType:
    """A file of a package, by its name in there: so its relative imports work."""
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    if parts[-1] == "__init__":
        parts.pop()
    module = _import(".".join(parts), root)
    if module.__file__ is None or Path(module.__file__).resolve() != path:
        raise CannotServe(f"{file}: its name {'.'.join(parts)} is that of another module: {module.__file__}")
    return module


def _import(name: str, root: Path) -> ModuleType:
    """The module *name*, with *root* to be looked in first, as `python -m` does. Raises `CannotServe`."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        with loading():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise NoSuchServer(f"{name}: no such module in {root}, nor installed") from None
        raise _failed(name, error) from None
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from None


def _failed(title: str, error: BaseException) -> CannotServe:
    """A syntax error is said in one line, and so is a server that runs itself; anything else with the traceback."""
    if isinstance(error, RunsTooEarly):
        return CannotServe(f"{title}: {error}")
    if isinstance(error, SyntaxError) and error.filename is not None:
        return CannotServe(f"{_short(error.filename)}:{error.lineno}: {type(error).__name__}: {error.msg}")
    return CannotServe(f"{title}: import failed:\n{traceback_of(error)}")


def _short(filename: str) -> str:
    """As it would be typed here."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
