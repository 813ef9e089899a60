"""A server for the tests that start processes. Run as a script it serves by itself."""

import ctypes
import os
import subprocess
import sys
import threading
import time

import trio

from callboard import Context, Server

print("loading", flush=True)  # noqa: T201  # a stray one, before anything is served

server = Server("app", version="3.2.1")
other = Server("other")
thing = 7


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def sleep(seconds: float, *, ctx: Context) -> str:
    sys.stderr.write("asleep\n")
    await trio.sleep(seconds)
    return "slept"


@server.tool
async def stubborn() -> str:
    """Does not want to end."""
    sys.stderr.write("asleep\n")
    with trio.CancelScope(shield=True):
        await trio.sleep(3600)
    return "never"


@server.tool
async def block() -> str:
    """Holds the whole event loop."""
    sys.stderr.write("asleep\n")
    time.sleep(3600)  # noqa: ASYNC251
    return "never"


@server.tool
async def noise() -> str:
    """Says things where it should not, in every way there is."""
    print("printed")  # noqa: T201
    sys.stdout.buffer.write(b"binary\n")
    sys.stdout.flush()
    os.write(1, b"descriptor\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"from C")
    libc.fflush(None)
    subprocess.run(["echo", "from a child"], check=True)  # noqa: ASYNC221, S607
    return subprocess.run(["cat"], capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221, S607


@server.tool
async def crash() -> str:
    raise ZeroDivisionError("secret-canary")


@server.tool
async def read_input() -> str:
    return input()  # noqa: ASYNC250


@server.tool
def in_a_thread() -> str:
    sys.stderr.write(f"asleep in {threading.current_thread().name}\n")
    time.sleep(3600)
    return "never"


if __name__ == "__main__":
    server.run()
    print("printed after it was served")  # noqa: T201
