"""Errors and warnings about a file: all of them, each with its line."""

from collections.abc import Sequence
from pathlib import Path

import attrs

from callboard.config.positions import SourceNode
from callboard.errors import CannotRead, CannotServe


@attrs.frozen(kw_only=True)
class Mistake:
    """One thing to mend, or, if it *is_warning*, to look at. Never has anything in it that the environment holds."""

    file: Path
    line: int | None
    """None if it is about no line: the file cannot be read at all."""
    message: str
    where: str = ""
    """The dotted path of the key."""
    column: int | None = None
    is_warning: bool = False

    def __str__(self) -> str:
        place = str(self.file) if self.line is None else f"{self.file}:{self.line}"
        told = f"{self.where}: {self.message}" if self.where else self.message
        return f"{place}: {'warning: ' if self.is_warning else ''}{told}"


class BadConfiguration(CannotServe):
    """A file that says what cannot be. Holds all of its mistakes, and what was odd besides."""

    def __init__(self, mistakes: Sequence[Mistake], warnings: Sequence[Mistake] = ()) -> None:
        lines = [str(mistake) for mistake in mistakes]
        super().__init__(lines[0] if len(lines) == 1 else "\n".join([f"{len(lines)} errors:", *lines]))
        self.mistakes = tuple(mistakes)
        self.warnings = tuple(warnings)


class UnreadableConfiguration(BadConfiguration, CannotRead):
    """A file that could not be read at all."""


@attrs.frozen
class Report:
    """Gathers what is found in one *file*."""

    file: Path
    an_object: str = "an object"
    """Name of a value with keys in the format."""
    found: list[Mistake] = attrs.field(factory=list)

    def tell(self, node: SourceNode, where: str, message: str, *, is_warning: bool = False) -> None:
        mistake = Mistake(
            file=self.file, line=node.line, column=node.column, where=where, message=message, is_warning=is_warning
        )
        if mistake not in self.found:
            self.found.append(mistake)

    def skip(self, where: str) -> bool:
        """Make warnings of the mistakes at *where* and below. Returns whether there were any."""
        those = [one for one in self.found if not one.is_warning and f"{one.where}.".startswith(f"{where}.")]
        for mistake in those:
            message = f"{mistake.message}; the server is skipped"
            self.found[self.found.index(mistake)] = attrs.evolve(mistake, message=message, is_warning=True)
        return bool(those)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return self._sorted(is_warning=False)

    @property
    def warnings(self) -> tuple[Mistake, ...]:
        return self._sorted(is_warning=True)

    def _sorted(self, *, is_warning: bool) -> tuple[Mistake, ...]:
        some = [mistake for mistake in self.found if mistake.is_warning == is_warning]
        return tuple(sorted(some, key=lambda mistake: mistake.line or 0))

    def check(self) -> None:
        """Raises `BadConfiguration` if there is any mistake."""
        if self.mistakes:
            raise BadConfiguration(self.mistakes, self.warnings)
