"""A server that is asked to end says so before it closes its doors, if it is told to wait for load balancers."""

import signal

from tests.workers.crowd import crowd


async def test_readiness_ends_before_the_doors_close() -> None:
    async with crowd("--lame-duck", "1.5", workers=1) as one:
        assert await one.ready()
        one.process.signal(signal.SIGTERM)
        await one.process.wait_said(b"leaving")
        assert not await one.ready()
        assert await one.call("where") == one.pid
        assert await one.process.wait() == 0


async def test_a_second_signal_does_not_wait() -> None:
    async with crowd("--lame-duck", "1000", workers=1) as one:
        one.process.signal(signal.SIGTERM)
        await one.process.wait_said(b"leaving")
        one.process.signal(signal.SIGTERM)
        await one.process.wait()
