"""Two actors under a supervisor: one counts, one crashes now and then and is restarted.

python examples/actors.py
"""

import attrs
import trio

from callboard.supervisor import Actor, Ask, ChildSpec, SupervisorSpec, open_tree, render


@attrs.frozen
class Add:
    """Count one more."""

    amount: int


@attrs.frozen
class Total(Ask[int]):
    """Ask for the sum."""


@attrs.define(eq=False)
class Counter(Actor[Add | Total]):
    """Adds numbers. Crashes on a negative one."""

    total: int = 0

    async def run(self) -> None:
        async for message in self.inbox:
            match message:
                case Add(amount) if amount < 0:
                    raise ValueError("cannot count backwards")
                case Add(amount):
                    self.total += amount
                case Total():
                    message.reply(self.total)


COUNTER = ChildSpec("counter", Counter)


async def main() -> None:
    async with open_tree(SupervisorSpec("example", children=(COUNTER,))) as root:
        counter = root.address_of(COUNTER)
        await counter.send(Add(2))
        await counter.send(Add(3))
        print("before the crash:", await counter.ask(Total(), within=1))
        await counter.send(Add(-1))
        print("after the restart:", await counter.ask(Total(), within=5))
        print(render(root.tree()))


if __name__ == "__main__":
    trio.run(main)
