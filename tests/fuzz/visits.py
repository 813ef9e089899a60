"""What a client does with all that a broker offers: lists, calls, reads, follows, completes, cancels, comes again."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

import trio

from callboard.codecs.revisions import LEGACY, MODERN
from callboard.codecs.revisions.revision import R2, R4
from tests.fuzz.offers import LISTS
from tests.fuzz.strict import ANSWERS, Customer, Json
from tests.fuzz.values import GOOD_TEXTS, VALUES

MAX_PAGES: Final = 20
CAPABILITIES: Final[tuple[Json, ...]] = (
    {},
    {"elicitation": {}},
    {"sampling": {}, "roots": {"listChanged": True}},
    {"sampling": {"tools": {}, "context": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}},
)
URIS: Final = (
    "notes://one",
    "notes://two/2",
    "notes://by/x",
    "files://a/b?version=1",
    "nothing://there",
    "notes://",
    "x",
)


async def list_all(customer: Customer, method: str) -> list[Json]:
    """Every entry of a list, page by page."""
    found: list[Json] = []
    cursor: Json = {}
    for _ in range(MAX_PAGES):
        answer = await customer.ask(method, **cursor)
        if "result" not in answer:
            break
        found += answer["result"].get(LISTS[method][0], [])
        if "nextCursor" not in answer["result"]:
            break
        cursor = {"cursor": answer["result"]["nextCursor"]}
    return found


async def visit(customer: Customer, draw: Random, avoid: str = "") -> None:
    """One client's whole stay. It lists everything; what has a name that begins with *avoid* it does not use."""
    await customer.initialize()
    seen = {method: await list_all(customer, method) for method in LISTS}
    if avoid:
        seen = {method: [one for one in those if not one["name"].startswith(avoid)] for method, those in seen.items()}
    deeds: list[Callable[[Customer, Random, dict[str, list[Json]]], Awaitable[None]]]
    deeds = [_call, _call, _call, _read, _get, _complete, _follow, _leave, _sundry]
    async with trio.open_nursery() as nursery:
        for _ in range(draw.choice((4, 8))):
            nursery.start_soon(draw.choice(deeds), customer, draw, seen)


def _any(draw: Random, entries: list[Json], member: str, otherwise: str) -> Any:
    return draw.choice(entries)[member] if entries and draw.random() < 0.9 else otherwise


async def _to_the_end(customer: Customer, method: str, params: Json, more: Json | None = None) -> None:
    """Ask, and answer what is asked back, as often as it takes; but not for ever."""
    asked = dict(params)
    for _ in range(4):
        result = (await customer.ask(method, more=more, **asked)).get("result", {})
        if result.get("resultType") != "input_required":
            return
        wanted = result.get("inputRequests", {})
        responses = {key: ANSWERS.get(one["method"], {}) for key, one in wanted.items()}
        asked = {**params, "inputResponses": responses, "requestState": result.get("requestState", "")}


async def _call(customer: Customer, draw: Random, seen: dict[str, list[Json]]) -> None:
    params: Json = {"name": _any(draw, seen["tools/list"], "name", "odd__unknown"), "arguments": {"city": "Oslo"}}
    if draw.random() < 0.2:
        params["arguments"] = {draw.choice(GOOD_TEXTS): draw.choice(VALUES)}
    if customer.revision == R4 and draw.random() < 0.3:
        params["task"] = {"ttl": 1000}
    await _to_the_end(
        customer, "tools/call", params, {"progressToken": draw.randrange(9)} if draw.random() < 0.5 else None
    )


async def _read(customer: Customer, draw: Random, seen: dict[str, list[Json]]) -> None:
    listed = _any(draw, seen["resources/list"], "uri", draw.choice(GOOD_TEXTS))
    await _to_the_end(customer, "resources/read", {"uri": listed if draw.random() < 0.6 else draw.choice(URIS)})


async def _get(customer: Customer, draw: Random, seen: dict[str, list[Json]]) -> None:
    name = _any(draw, seen["prompts/list"], "name", "odd__unknown")
    await _to_the_end(customer, "prompts/get", {"name": name, "arguments": {"a": "1"}})


async def _complete(customer: Customer, draw: Random, seen: dict[str, list[Json]]) -> None:
    prompt = {"type": "ref/prompt", "name": _any(draw, seen["prompts/list"], "name", "odd__unknown")}
    template = _any(draw, seen["resources/templates/list"], "uriTemplate", draw.choice(GOOD_TEXTS))
    ref = prompt if draw.random() < 0.5 else {"type": "ref/resource", "uri": template}
    await customer.ask("completion/complete", ref=ref, argument={"name": "a", "value": "b"})


async def _follow(customer: Customer, draw: Random, seen: dict[str, list[Json]]) -> None:
    uris = [*draw.sample(URIS, 2), _any(draw, seen["resources/list"], "uri", "notes://one")]
    if customer.revision in MODERN:
        wanted: Json = {"resourceSubscriptions": uris, "toolsListChanged": True, "promptsListChanged": True}
        listening = await customer.begin("subscriptions/listen", notifications=wanted)
        await trio.sleep(draw.choice((0.0, 0.5, 3.0)))
        await customer.give_up(listening)
        return
    for uri in uris:
        await customer.ask("resources/subscribe", uri=uri)
    await trio.sleep(draw.choice((0.0, 0.5)))
    if draw.random() < 0.5:
        await customer.ask("resources/unsubscribe", uri=uris[0])


async def _leave(customer: Customer, draw: Random, seen: dict[str, list[Json]]) -> None:
    """Begin a call, and cancel it."""
    name = _any(draw, seen["tools/list"], "name", "odd__unknown")
    begun = await customer.begin("tools/call", name=name, arguments={})
    await trio.sleep(draw.choice((0.0, 0.0, 1.0)))
    await customer.give_up(begun)


async def _sundry(customer: Customer, draw: Random, seen: dict[str, list[Json]]) -> None:
    if customer.revision in LEGACY:
        await customer.ask("ping")
        await customer.ask("logging/setLevel", level=draw.choice(("debug", "info", "error")))
        await customer.say({"method": "notifications/roots/list_changed"})
    if customer.revision == R4:
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            await customer.ask(method, taskId=draw.choice(("t-1", "odd:t-1", "")))
    if customer.revision >= R2:
        await customer.ask("unknown/method")
