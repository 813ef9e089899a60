"""Addresses of actors."""

from __future__ import annotations

from typing import TypeVar, cast

import trio

from callboard.errors import ActorGone, AskTimedOut
from callboard.supervisor._node import Node, State, Stop
from callboard.supervisor.ask import Asks, open_reply
from callboard.supervisor.ended import Ended
from callboard.supervisor.lifetime import WHY_KILLED
from callboard.supervisor.mailbox import Mailbox, MailboxClosed
from callboard.supervisor.overflow import Lost

M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")


class Address(trio.abc.SendChannel[M_contra]):
    """Address of one actor, valid through all its restarts: the sending end of its mailbox.

    Two addresses are equal if they reach the same actor. An actor that later gets the same name is another one.
    """

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def path(self) -> str:
        return self.node.path

    @property
    def ended(self) -> Ended | None:
        """How the actor ended, once it has ended for good."""
        return self.node.ended

    async def send(self, message: M_contra) -> None:
        """Send *message*, waiting if the mailbox is full and says so.

        Sending to an ended actor is no error, other than on a memory channel: the message is a dead letter. A caller
        that must know asks.
        """
        mailbox = self._mailbox()
        if mailbox is None:
            await trio.lowlevel.checkpoint()
            self.node.lose(message, Lost.ENDED)
            return
        try:
            await mailbox.put(message)
        except MailboxClosed:
            self.node.lose(message, Lost.ENDED)

    def send_nowait(self, message: M_contra) -> None:
        """Send *message*, as `send` does. Raises WouldBlock where `send` would wait."""
        mailbox = self._mailbox()
        if mailbox is None:
            self.node.lose(message, Lost.ENDED)
            return
        try:
            mailbox.put_nowait(message)
        except MailboxClosed:
            self.node.lose(message, Lost.ENDED)

    async def aclose(self) -> None:
        """Let go of the address. The actor goes on: others may hold its address, and its supervisor ends it."""
        await trio.lowlevel.checkpoint()

    async def ask(self, message: Asks[M_contra, R], *, within: float) -> R:
        """Send a question and wait for its answer, *within* seconds in all.

        Raises:
            AskTimedOut: exactly at the deadline. The actor may still handle the question; its answer is dropped.
            ActorGone: as soon as the actor can no longer answer; AskDropped if the mailbox gave it up.
            Exception: what the actor refused it with.
        """
        node = self.node
        await trio.lowlevel.checkpoint_if_cancelled()
        mailbox = self._mailbox()
        if mailbox is None:
            node.lose(message, Lost.ENDED)
            raise ActorGone(node.path, why=node.ended.why if node.ended is not None else "no mailbox")
        reply = open_reply(message, node)
        asks = node.asks
        if asks is None:
            asks = node.asks = set()
        asks.add(reply)
        try:
            with trio.CancelScope(deadline=trio.current_time() + within):
                try:
                    mailbox.put_nowait(message)
                except trio.WouldBlock:
                    await mailbox.wait_put(message)
                return cast("R", await reply.wait())
        except MailboxClosed:
            node.lose(message, Lost.ENDED)
            raise ActorGone(node.path, why="it is stopping") from None
        finally:
            asks.discard(reply)
            reply.abandon()
        raise AskTimedOut(node.path, within=within)

    async def wait_ended(self) -> Ended:
        """Wait until the actor has ended for good."""
        node = self.node
        if node.ended is None:
            while node.ended is None:
                await node.wait_change()
        else:
            await trio.lowlevel.checkpoint()
        return node.ended

    async def wait_started(self) -> None:
        """Wait until the actor runs, or has ended."""
        await trio.lowlevel.checkpoint()
        while self.node.state in (State.STARTING, State.BACKING_OFF):
            await self.node.wait_change()

    def begin_stop(self) -> None:
        """Ask the actor to stop for good; when its drain time has passed it is cancelled."""
        self.node.begin_stop(Stop.GOOD)

    async def stop(self) -> Ended:
        """`begin_stop`, and wait for the end."""
        self.node.begin_stop(Stop.GOOD)
        return await self.wait_ended()

    def kill(self, why: str = WHY_KILLED) -> None:
        """Cancel the actor where it stands. Its supervisor treats that as an end that went wrong.

        The first *why* stays: the actor reads it as `why_cut`, its watchers as `Ended.why`.
        """
        self.node.kill(why)

    def _mailbox(self) -> Mailbox[object] | None:
        return None if self.node.ended is not None else self.node.mailbox

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and other.node is self.node

    def __hash__(self) -> int:
        return hash(self.node)

    def __repr__(self) -> str:
        return f"<Address {self.node.path} {self.node.state.value} at {id(self.node):#x}>"
