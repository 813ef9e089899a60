"""Actors: mailbox, address, life cycle, supervision tree. Knows nothing of MCP."""

from callboard.supervisor._node import State
from callboard.supervisor.actor import Actor, Unfinished
from callboard.supervisor.address import Address
from callboard.supervisor.adopted import Adopted, AdoptedBlock
from callboard.supervisor.ask import Ask
from callboard.supervisor.dead_letters import DeadLetter, DeadLetters
from callboard.supervisor.ended import Ended, How
from callboard.supervisor.lifetime import WHY_DEADLINE, WHY_DRAIN, WHY_KILLED, WHY_OVERFLOW, WHY_SUPERVISOR, Lifetime
from callboard.supervisor.logs import get_logger
from callboard.supervisor.mailbox import Mailbox
from callboard.supervisor.overflow import Lost, MailboxSpec, Overflow
from callboard.supervisor.snapshot import Fact, Snapshot, render
from callboard.supervisor.spec import ChildSpec, Restart, Strategy, SupervisorSpec
from callboard.supervisor.supervisor import Supervisor
from callboard.supervisor.tree import live_trees, open_tree
from callboard.supervisor.window import Backoff, Intensity

__all__ = [
    "WHY_DEADLINE",
    "WHY_DRAIN",
    "WHY_KILLED",
    "WHY_OVERFLOW",
    "WHY_SUPERVISOR",
    "Actor",
    "Address",
    "Adopted",
    "AdoptedBlock",
    "Ask",
    "Backoff",
    "ChildSpec",
    "DeadLetter",
    "DeadLetters",
    "Ended",
    "Fact",
    "How",
    "Intensity",
    "Lifetime",
    "Lost",
    "Mailbox",
    "MailboxSpec",
    "Overflow",
    "Restart",
    "Snapshot",
    "State",
    "Strategy",
    "Supervisor",
    "SupervisorSpec",
    "Unfinished",
    "get_logger",
    "live_trees",
    "open_tree",
    "render",
]
