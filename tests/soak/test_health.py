"""Promise 23: health tells the truth, whatever the backends do."""

import trio

from benchmarks.nemesis_acts import FAULTS
from benchmarks.nemesis_history import share
from tests.broker.test_admin import ask
from tests.figures import BUSY, LONG, figure
from tests.served import free_port
from tests.soak.stage import scene

ROUGH = tuple(FAULTS) if LONG else ("killed", "deaf", "garbage", "flood", "flood_newlines", "flood_stderr")
NO_RESTART = {"times": 0, "per": 1, "cool_down": 1.0}


async def test_23_it_lives_and_says_so_at_once_whatever_a_backend_does() -> None:
    admin, taken = f"127.0.0.1:{free_port()}", list[float]()

    async def look() -> None:
        while True:
            began = trio.current_time()
            assert (await ask(f"http://{admin}", "/livez"))[0] == 200
            taken.append(trio.current_time() - began)
            assert (await ask(f"http://{admin}", "/readyz"))[0] == 200  # the other one is up all the time
            await trio.sleep(0.01)

    async with scene(("b0", "b1"), "--admin", admin, timeout=1) as here:
        await here.run.wait_up("b0")
        await here.run.wait_up("b1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            for fault in ROUGH:
                await FAULTS[fault](here.run, "b0", 2.0 if LONG else 0.3)
                here.run.kill("b0")
                await here.run.wait_up("b0")
            nursery.cancel_scope.cancel()
    taken.sort()
    figure("promise 23", f"/livez {len(taken)} times: p99 {share(taken, 0.99) * 1000:.0f} ms under {len(ROUGH)} faults")
    assert share(taken, 0.99) <= 0.1 * BUSY


async def test_23_it_is_not_ready_when_the_last_backend_is_gone_and_is_again_when_one_is_back() -> None:
    admin = f"127.0.0.1:{free_port()}"
    url = f"http://{admin}"
    async with scene(("b0", "b1"), "--admin", admin, restart=NO_RESTART) as here:
        run = here.run
        await run.wait_up("b0")
        await run.wait_up("b1")
        assert (await ask(url, "/readyz"))[0] == 200
        run.kill("b0")
        assert (await ask(url, "/readyz"))[0] == 200
        began = trio.current_time()
        run.kill("b1")
        with trio.fail_after(1.0 * BUSY):
            while (await ask(url, "/readyz"))[0] != 503:  # noqa: ASYNC110 -- another process's business
                await trio.sleep(0.01)
        red = trio.current_time() - began
        assert (await ask(url, "/livez"))[0] == 200
        with trio.fail_after(15):
            while (await ask(url, "/readyz"))[0] != 200:  # noqa: ASYNC110
                await trio.sleep(0.05)
    figure("promise 23", f"/readyz red {red * 1000:.0f} ms after the last backend was killed, green when it was back")
