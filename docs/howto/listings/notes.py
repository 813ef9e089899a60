"""Notes in a database. Its connections are opened when the server starts, and shared by all calls."""

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from queue import SimpleQueue

import attrs
import trio

from callboard import Context, Server, ToolError

CONNECTIONS = 4


@attrs.frozen
class Pool:
    """A few connections. A call takes one for a transaction, and puts it back."""

    idle: SimpleQueue[sqlite3.Connection] = attrs.field(factory=SimpleQueue)

    @classmethod
    def open(cls, file: str) -> "Pool":
        pool = cls()
        for _ in range(CONNECTIONS):
            pool.idle.put(sqlite3.connect(file, check_same_thread=False))
        with pool.transaction() as db:
            db.execute("CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        return pool

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self.idle.get()
        try:
            with connection:  # commits, or rolls back if the block raises
                yield connection
        finally:
            self.idle.put(connection)

    def close(self) -> None:
        for _ in range(CONNECTIONS):
            self.idle.get().close()


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[Pool]:
    pool = await trio.to_thread.run_sync(Pool.open, os.environ.get("NOTES", "notes.db"))
    try:
        yield pool  # this is `ctx.lifespan`
    finally:
        pool.close()


server = Server("notes", version="1.0", lifespan=lifespan)


@server.tool
def add(text: str, *, ctx: Context) -> int:
    """Write a note down; returns its number."""
    pool: Pool = ctx.lifespan
    with pool.transaction() as db:
        return db.execute("INSERT INTO notes (text) VALUES (?)", [text]).lastrowid or 0


@server.tool
def find(word: str, *, ctx: Context) -> list[str]:
    """All notes with a word in them."""
    pool: Pool = ctx.lifespan
    with pool.transaction() as db:
        return [text for (text,) in db.execute("SELECT text FROM notes WHERE instr(text, ?)", [word])]


@server.tool
def remove(number: int, *, ctx: Context) -> None:
    """Throw a note away."""
    pool: Pool = ctx.lifespan
    with pool.transaction() as db:
        if not db.execute("DELETE FROM notes WHERE id = ?", [number]).rowcount:
            raise ToolError(f"There is no note {number}.")


if __name__ == "__main__":
    server.run()
