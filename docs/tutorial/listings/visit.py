"""Visit the library: python visit.py [TARGET]"""

import sys

import trio

from callboard import connect
from callboard.errors import ServerRefused


async def main(target: str) -> None:
    async with connect(target) as client:
        print("speaking", client.revision)
        result = await client.call("shelf")
        print(result.structured_content)
        try:
            await client.call("burn", book="emma")
        except ServerRefused as error:
            print("no:", error)


trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "library.py")
