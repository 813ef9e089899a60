"""Borrow a book twice; a function fills in the form."""

import trio

from callboard import connect


async def main() -> None:
    async with connect("desk.py", elicitation=lambda params: {"name": "Ada", "has_card": True}) as client:
        async with client.call("borrow", book="emma", weeks=3) as call:
            async for update in call.progress:
                print("stamped", update.progress, "of", update.total)
        print(call.result.structured_content)

        with trio.move_on_after(5):  # a call ends where its scope ends, at the server too
            again = await client.call("borrow", book="emma")
            print("a second time:", "refused" if again.is_error else "lent")


trio.run(main)
