"""Exceptions for handlers."""

from collections.abc import Sequence

from callboard.errors import CallboardError, InvalidParams
from callboard.server.content.problems import Problem


class Unfit(InvalidParams):
    """Values that a published schema does not allow, told so that their sender can put them right."""

    def __init__(self, what: str, problems: Sequence[Problem], *, more: bool = False) -> None:
        lines = [f"- {problem}" for problem in problems]
        super().__init__("\n".join([f"{what}:", *lines, *(["- and more"] if more else [])]))
        self.problems = tuple(problems)


class BadArguments(Unfit):
    """The arguments of a call do not fit. A tool answers with a tool error; its text is for the model to act on."""


class BadForm(Unfit):
    """The content of an accepted form does not fit the form that was asked for."""


class BadResult(CallboardError):
    """A handler returned what it may not. The fault is the server's own: the log gets all of it, the peer `brief`.

    *what* goes to the peer: it names types and what to do, and never a value. The log also gets *found* and the
    *problems*, which quote values.
    """

    def __init__(self, what: str, problems: Sequence[Problem] = (), *, found: str = "") -> None:
        told = f"{what}: {found}" if found else what
        super().__init__("\n".join([told, *(f"- {problem}" for problem in problems)]))
        self.problems = tuple(problems)
        self.brief = what


class ToolError(CallboardError):
    """Raise it in a handler to tell the model, in your own words, why the call failed."""
