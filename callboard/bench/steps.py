"""Scripts of a scenario, and their steps."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

WITHIN: Final = 5.0
"""Seconds in which an update must be heard, if a step does not say."""

Listed: TypeAlias = Literal["tools", "prompts", "resources", "templates"]
ListName: TypeAlias = Literal["tools", "prompts", "resources"]
Action: TypeAlias = Literal["accept", "decline", "cancel"]
RequestKind: TypeAlias = Literal["call", "task", "read", "list", "prompt"]

LISTED: Final[tuple[Listed, ...]] = get_args(Listed)
LISTS: Final[tuple[ListName, ...]] = get_args(ListName)
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)


@attrs.frozen(kw_only=True)
class Elicited:
    """One way in which a question to the user is answered."""

    action: Action
    content: dict[str, Any] | None = None
    after: float = 0.0
    match: str = ""
    """Only for questions in which this stands."""
    weight: float = 1.0


@attrs.frozen(kw_only=True)
class Answers:
    """How the server's questions are answered. What is not said here is not answered at all."""

    elicitation: tuple[Elicited, ...] = ()
    sampling: str | None = None
    roots: tuple[str, ...] | None = None

    def over(self, other: "Answers") -> "Answers":
        """These, and the others for what these do not say."""
        return Answers(
            elicitation=self.elicitation or other.elicitation,
            sampling=other.sampling if self.sampling is None else self.sampling,
            roots=other.roots if self.roots is None else self.roots,
        )


NO_ANSWERS: Final = Answers()


@attrs.frozen(kw_only=True)
class StepRequest:
    """A request. A call may be cancelled after a time, and may have its own answers. A task is a call that is followed
    until it has ended."""

    label: str
    kind: RequestKind
    name: str
    args: dict[str, Any] = attrs.field(factory=dict)
    cancel_after: float | None = None
    answers: Answers = NO_ANSWERS
    save: tuple[tuple[str, str], ...] = ()
    """Names of values for later steps, and where they are in the result; without a path, the main part of it."""
    refers: bool = False
    """Whether it has `${name}` in its arguments or its URI."""


@attrs.frozen
class Think:
    """A pause, of any length between the two."""

    low: float
    high: float


@attrs.frozen
class Listen:
    """Hear of these, from the first time on and for as long as the session lasts."""

    topics: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Await:
    """Wait until there is news of something: since the last time, or from now on."""

    label: str
    topic: str
    within: float = WITHIN


@attrs.frozen
class Repeat:
    """The same, so many times."""

    times: int
    steps: "tuple[Step, ...]"


Step: TypeAlias = StepRequest | Think | Listen | Await | Repeat


@attrs.frozen(kw_only=True)
class Script:
    """The steps of a script, and how to repeat them."""

    name: str
    steps: tuple[Step, ...]
    weight: float = 1.0
    per_session: int = 0
    """How often it is played in one session, before another is opened; 0 if that lasts."""
    answers: Answers = NO_ANSWERS

    def walk(self) -> Iterator[Step]:
        """Every step, once: also those within others."""
        return walk(self.steps)


@attrs.frozen(kw_only=True)
class Scenario:
    """The scripts of a file."""

    name: str
    scripts: tuple[Script, ...]

    def __str__(self) -> str:
        named = ", ".join(script.name for script in self.scripts)
        return self.name if named == self.name else f"{self.name}: {named}"

    def choose(self, chance: random.Random) -> Script:
        """The next one."""
        return chance.choices(self.scripts, [script.weight for script in self.scripts])[0]

    @property
    def answers(self) -> Sequence[Answers]:
        """All answers of all steps."""
        found = [script.answers for script in self.scripts]
        for script in self.scripts:
            found += [step.answers for step in script.walk() if isinstance(step, StepRequest)]
        return found


def walk(steps: Sequence[Step]) -> Iterator[Step]:
    """Every step, once: also those within others."""
    for step in steps:
        yield step
        if isinstance(step, Repeat):
            yield from walk(step.steps)
