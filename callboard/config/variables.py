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
        raise NotExpanded(f"{found[0][:100]} is not known here; {_instead(found['what'])}")
    held = os.environ.get(variable["name"])
    if not held and variable["otherwise"] is not None:
        return variable["otherwise"]
    if held is None:
        hint = "; VS Code would fill it in, here write a path" if variable["name"] in _OF_EDITORS else ""
        raise NotExpanded(f"the environment has no {variable['name']}{hint}")
    return held


def _instead(what: str) -> str:
    if what.startswith(("input:", "command:", "config:")):
        return "VS Code would ask its user, here write ${VAR} and set it in the environment"
    return "${VAR} is"
