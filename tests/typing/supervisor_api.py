"""The actors' API as a type checker sees it: an unused ignore below is a failure of `mypy --strict`."""

from typing import assert_type

import attrs
import trio

from callboard.supervisor import (
    Actor,
    Address,
    Ask,
    ChildSpec,
    Supervisor,
    SupervisorSpec,
    open_tree,
)


@attrs.frozen
class Add:
    n: int


@attrs.frozen
class Get(Ask[int]):
    pass


@attrs.frozen
class Name(Ask[str]):
    pass


@attrs.define(eq=False)
class Counter(Actor[Add | Get]):
    total: int = 0

    async def run(self) -> None:
        async for message in self.inbox:
            assert_type(message, Add | Get)
            match message:
                case Add(n):
                    self.total += n
                case Get():
                    message.reply(self.total)
                    message.reply("three")  # type: ignore[arg-type]
                    message.refuse(ValueError())


COUNTER = ChildSpec("counter", Counter)


async def speak(address: Address[Add | Get]) -> None:
    await address.send(Add(1))
    await address.send(Get())
    address.send_nowait(Add(1))
    assert_type(await address.ask(Get(), within=1.0), int)
    await address.send(Name())  # type: ignore[arg-type]
    await address.send("hello")  # type: ignore[arg-type]
    await address.ask(Name(), within=1.0)  # type: ignore[arg-type]
    await address.ask(Add(1), within=1.0)  # type: ignore[arg-type]
    await address.ask(Get())  # type: ignore[call-arg]


async def hold(root: Supervisor) -> None:
    counter = root.spawn(Counter(), name="c")
    assert_type(counter, Address[Add | Get])
    assert_type(root.address_of(COUNTER), Address[Add | Get])
    assert_type(await root.add(COUNTER), Address[Add | Get])
    assert_type(await root.add(SupervisorSpec("s")), Supervisor)
    only_adds: Address[Add] = counter  # whoever takes more may stand in for one that takes less
    more: Address[Add | Get | Name] = counter  # type: ignore[assignment]
    channel: trio.abc.SendChannel[Add] = only_adds
    await more.send(Name())
    await channel.send(Add(1))


def read(counter: Counter) -> trio.abc.ReceiveChannel[Add | Get]:
    return counter.inbox


async def open_one() -> None:
    async with open_tree(SupervisorSpec("top", children=(COUNTER,))) as root:
        assert_type(root, Supervisor)
