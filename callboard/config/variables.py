"""`${VAR}`: what of the environment stands in a text."""

import os
import re
from typing import Final

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?P<what>[^}]*)\}")
_VARIABLE: Final = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<otherwise>.*))?", re.DOTALL)
_OF_EDITORS: Final = frozenset(
    ("workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "file", "cwd", "extensionPath")
)


class NotExpanded(Exception):
    """A text names something that is not there. Says which, and nothing of what is there."""


def expand(text: str) -> str:
    """*text* with `${VAR}` and `${VAR:-otherwise}` filled in; `$${` is `${`. What comes in is not looked at again.

    Raises `NotExpanded`.
    """
    return _REFERENCE.sub(_held, text)


def has_variable(text: str) -> bool:
    """Whether anything of *text* comes from the environment."""
    return any(found["what"] is not None for found in _REFERENCE.finditer(text))


def _held(found: re.Match[str]) -> str:
    if found["what"] is None:
        return "${"
    variable = _VARIABLE.fullmatch(found["what"])
    if variable is None:
        raise NotExpanded(f"unknown variable {found[0][:100]}; {_instead(found['what'])}")
    held = os.environ.get(variable["name"])
    if not held and variable["otherwise"] is not None:
        return variable["otherwise"]
    if held is None:
        hint = ", a variable of VS Code; write a path" if variable["name"] in _OF_EDITORS else ""
        raise NotExpanded(f"environment variable not set: {variable['name']}{hint}")
    return held


def _instead(what: str) -> str:
    if what.startswith(("input:", "command:", "config:")):
        return "inputs are a feature of VS Code; use ${VAR} and set the environment variable"
    return "use ${VAR}"
