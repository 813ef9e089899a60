"""What an idle session weighs: legacy sessions after their handshake, with nothing to do.

    python -m benchmarks.sessions [--quick] [--json FILE]

Each is a supervisor, a writer with its outbox, a reader, and both ends of an in-memory connection.
"""

import argparse
import gc
import tracemalloc

import psutil
import trio
import trio.testing

from benchmarks.measure import add_json, verdict, write_json
from callboard.actors.server.session_tree import open_session
from callboard.codecs.revisions import Revision
from callboard.server import Server
from callboard.testing import Peer
from callboard.transports.memory import memory_pair

TARGET = 40.0


async def weigh(count: int) -> dict[str, float]:
    """KiB for one idle session, as Python allocated it and as the process grew; seconds to open them all."""
    server = Server("idle")
    process = psutil.Process()
    async with server.host() as host:
        gc.collect()
        before, resident = tracemalloc.get_traced_memory()[0], process.memory_info().rss
        peers, started = [], trio.current_time()
        for number in range(count):
            there, here = memory_pair()
            await open_session(host, here, f"s-{number}")
            peers.append(Peer(there, Revision.V2025_11_25))
            await peers[-1].initialize()
        await trio.testing.wait_all_tasks_blocked()
        took = trio.current_time() - started
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0] - before
        grown = process.memory_info().rss - resident
        for peer in peers:
            peer.connection.close()
        await trio.testing.wait_all_tasks_blocked()
    return {"traced_kib": traced / count / 1024, "resident_kib": grown / count / 1024, "open_us": took / count * 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000 sessions instead of 10,000")
    add_json(parser)
    options = parser.parse_args()
    count = 1_000 if options.quick else 10_000
    resident = trio.run(weigh, count)  # first without the tracer, which weighs something itself
    tracemalloc.start()
    traced = trio.run(weigh, min(count, 2_000))
    found = {"sessions": count, "resident_kib": resident["resident_kib"], "traced_kib": traced["traced_kib"]}
    found["open_us"] = resident["open_us"]
    print(f"{count} idle legacy sessions: {found['open_us']:.0f} us to open each")
    print(verdict("KiB each, as the process grew", found["resident_kib"], TARGET, at_most=True))
    print(verdict("KiB each, as Python allocated it", found["traced_kib"], TARGET, at_most=True))
    write_json(options.json, found)


if __name__ == "__main__":
    main()
