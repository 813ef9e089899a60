"""`FILE.py:NAME`: an author's file, and the server in it."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final

from callboard.errors import CannotServe
from callboard.server.server import Server

DEFAULT_NAME: Final = "server"

_OURS: Final = (__file__, "<frozen importlib")


def load_server(target: str) -> Server:
    """The server that *target* names; without a name, `server`. Raises `CannotServe`, in words for its author."""
    file, name = split_target(target)
    module = _load(file)
    servers = [known for known, value in vars(module).items() if isinstance(value, Server)]
    if not hasattr(module, name):
        there = f"; it has: {', '.join(servers)}" if servers else " and no other server"
        raise CannotServe(f"{file} has no {name!r}{there}")
    found = getattr(module, name)
    if not isinstance(found, Server):
        raise CannotServe(f"{file}:{name} is not a callboard.Server but {type(found).__name__}")
    return found


def split_target(target: str) -> tuple[Path, str]:
    """File and name."""
    if target.endswith(".py"):
        return Path(target), DEFAULT_NAME
    file, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        raise CannotServe(f"{target[:200]!r} is not a Python server: expected FILE.py:NAME")
    return Path(file), name


def _load(file: Path) -> ModuleType:
    if not file.is_file():
        raise CannotServe(f"{file}: no such file")
    # Not by its own name, which may be that of a module which others mean.
    spec = importlib.util.spec_from_file_location(f"_served_{file.stem}", file.resolve())
    if spec is None or spec.loader is None:
        raise CannotServe(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and annotations look there
    sys.path.insert(0, str(file.resolve().parent))  # as if Python itself ran it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # any exception of an author's file is for the author to read
        raise CannotServe(f"{file}: import failed:\n{_shortened(error)}") from None
    return module


def _shortened(error: BaseException) -> str:
    """The traceback, without the steps that are ours and Python's own."""
    told = traceback.TracebackException.from_exception(error)
    for one in (told, told.__cause__, told.__context__):
        if one is not None:
            one.stack = traceback.StackSummary.from_list([s for s in one.stack if not s.filename.startswith(_OURS)])
    return "".join(told.format()).rstrip()
