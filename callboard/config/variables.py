"""`${VAR}`: what of the environment stands in a text."""

import os
import re
from typing import Final

from callboard.codecs.caller_template import OF_CALLER, CallerField, CallerTemplate

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


def read_template(text: str) -> CallerTemplate:
    """*text* with what the environment holds filled in, and what it names of the caller left open: `${principal}`.

    Raises `NotExpanded`.
    """
    parts: list[str | CallerField] = []
    end = 0
    for found in _REFERENCE.finditer(text):
        parts.append(text[end : found.start()])
        is_callers = found["what"] is not None and OF_CALLER.fullmatch(found["what"]) is not None
        parts.append(CallerField(found["what"]) if is_callers else _held(found))
        end = found.end()
    parts.append(text[end:])
    return tuple(part for part in parts if part)


def has_variable(text: str) -> bool:
    """Whether anything of *text* comes from the environment."""
    return any(found["what"] is not None for found in _REFERENCE.finditer(text))


def _held(found: re.Match[str]) -> str:
    if found["what"] is None:
        return "${"
    variable = _VARIABLE.fullmatch(found["what"])
    is_callers = OF_CALLER.fullmatch(found["what"]) is not None
    if is_callers and (variable is None or variable["name"] not in os.environ):
        raise NotExpanded(f"{found[0][:100]} is only for values in `headers` and `env`")
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
