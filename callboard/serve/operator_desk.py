"""What operators want done to a running server: done where it is to be done, and logged with who wanted it."""

from typing import Final, Literal, Protocol, TypeAlias

import attrs

from callboard.errors import CannotServe
from callboard.observe.rows import clip
from callboard.supervisor import get_logger
from callboard.supervisor.audit import note

log = get_logger("callboard.admin")

ActionOutcome: TypeAlias = Literal["done", "not found", "no answer", "failed"]

_OUTCOMES: Final[dict[bool | None, ActionOutcome]] = {True: "done", False: "not found", None: "no answer"}


class Acting(Protocol):
    """A process, or all workers of a node."""

    async def act(self, action: str, subject: str) -> bool | None:
        """Do it. Whether there is such a server, tool or client; None if the process that has it does not say."""


class Balanced(Protocol):
    """The health of a server, by which balancers go."""

    is_held: bool
    """Whether an operator has it say that it is not ready."""


@attrs.frozen(eq=False)
class OperatorDesk:
    """Does what operators want. Each attempt is one log line."""

    acting: Acting
    health: Balanced | None = None

    async def act(self, operator: str, action: str, subject: str) -> ActionOutcome:
        outcome: ActionOutcome = "failed"
        try:
            outcome = await self._act(action, subject)
        except (OSError, CannotServe) as error:  # pins that cannot be written
            log.warning("action_failed", action=action, reason=str(error)[:200])
        finally:
            log.warning("operator_action", operator=operator, action=action, subject=clip(subject), outcome=outcome)
            name = (
                "definition_approved" if action == "approve" else "operator_action"
            )  # of a call, its own line says it
            note(name, principal=operator, name=subject, action=action, outcome="ok" if outcome == "done" else "failed")
        return outcome

    async def _act(self, action: str, subject: str) -> ActionOutcome:
        if action not in ("drain", "resume"):
            return _OUTCOMES[await self.acting.act(action, subject)]
        if self.health is None:
            return "not found"
        self.health.is_held = action == "drain"
        return "done"
