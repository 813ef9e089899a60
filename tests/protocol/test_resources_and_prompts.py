"""Resources, prompts and completions: what is there, what is not, and how it is written."""

import base64
from typing import Any

import pytest
from trio.testing import MockClock

from callboard.codecs.revisions import EmbeddedResource, Revision, TextResourceContents
from callboard.codecs.revisions.revision import R5
from callboard.server import Server
from callboard.server.content.media import Audio, Blob, Image
from callboard.server.context import Context
from callboard.testing import Refusal
from tests.protocol.house import EVERY, open_house

PNG = b"\x89PNG\r\n\x1a\n\0\xff"
server = Server("things")


@server.resource("things://bytes", mime_type="image/png")
async def some_bytes() -> bytes:
    return PNG


@server.resource("things://one/{number}")
async def one(number: int) -> str | None:
    return None if number > 9 else f"number {number}"


@server.prompt
async def show(kind: str, times: int = 1) -> Any:
    match kind:
        case "image":
            return [Image(PNG)] * times
        case "audio":
            return Audio(b"RIFF\0\0\0\0WAVE", mime_type="audio/wav")
        case "embedded":
            return EmbeddedResource(resource=TextResourceContents(uri="things://t", mime_type="text/plain", text="t"))
        case "blob":
            return Blob(b"\0\1", mime_type="application/x-y", uri="things://b")
    return "nothing"


@server.completion("show", "kind")
async def kinds(value: str) -> list[str]:
    return [f"{value}{number}" for number in range(250)]


@server.completion("things://one/{number}", "number")
async def numbers(value: str, *, ctx: Context) -> list[str]:
    await ctx.roots()
    return []


@pytest.mark.requirement("M249", "M251", "M253", "L187", "L189")
@EVERY
@pytest.mark.parametrize("uri", ["things://one/77", "things://one/x", "things://none", "", "no uri", "../x", "\0"])
async def test_what_is_not_there_is_an_error_and_never_empty(
    revision: Revision, uri: str, autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        with pytest.raises(Refusal) as refused:
            await peer.request("resources/read", uri=uri)
        assert refused.value.code == (-32602 if revision is R5 else -32002)
        assert refused.value.data == {"uri": uri}


@pytest.mark.requirement("M254", "L188")
@EVERY
async def test_bytes_are_sent_in_base64(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        (contents,) = (await peer.request("resources/read", uri="things://bytes"))["contents"]
        assert contents["mimeType"] == "image/png"
        assert base64.b64decode(contents["blob"], validate=True) == PNG


@pytest.mark.requirement("M252", "L186")
@pytest.mark.parametrize("uri", ["nothing", "/path", "1x://a", "a b://c", "://x", "{scheme}://x", "x:"])
def test_a_resource_needs_a_scheme(uri: str) -> None:
    with pytest.raises(ValueError, match="scheme"):
        Server("schemes").resource(uri)(lambda: "")


@pytest.mark.requirement("M243", "M244", "L191", "L192")
@EVERY
async def test_media_in_prompts_have_their_type_and_are_base64(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)

        async def got(kind: str) -> Any:
            return (await peer.request("prompts/get", name="show", arguments={"kind": kind}))["messages"][0]["content"]

        image = await got("image")
        assert (image["type"], image["mimeType"]) == ("image", "image/png")
        assert base64.b64decode(image["data"], validate=True) == PNG
        if revision >= "2025-03-26":
            audio = await got("audio")
            assert (audio["type"], audio["mimeType"]) == ("audio", "audio/wav")
            assert base64.b64decode(audio["data"], validate=True).startswith(b"RIFF")
        embedded = await got("embedded")
        assert embedded["resource"] == {"uri": "things://t", "mimeType": "text/plain", "text": "t"}
        blob = (await got("blob"))["resource"]
        assert (blob["uri"], blob["mimeType"]) == ("things://b", "application/x-y")
        assert base64.b64decode(blob["blob"], validate=True) == b"\0\1"


@pytest.mark.requirement("M245", "L193")
@EVERY
@pytest.mark.parametrize("arguments", [{}, {"kind": "x", "times": "many"}, {"kind": "x", "other": "y"}, {"kind": 7}])
async def test_arguments_of_a_prompt_are_checked(
    revision: Revision, arguments: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        with pytest.raises(Refusal, match="-32602"):
            await peer.request("prompts/get", name="show", arguments=arguments)
        with pytest.raises(Refusal, match="-32602"):
            await peer.request("prompts/get", name="unknown")


@pytest.mark.requirement("M225")
@EVERY
async def test_a_completion_has_at_most_a_hundred_values(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        ref = {"type": "ref/prompt", "name": "show"}
        done = await peer.request("completion/complete", ref=ref, argument={"name": "kind", "value": "v"})
        assert done["completion"]["values"] == [f"v{number}" for number in range(100)]
        assert (done["completion"]["total"], done["completion"]["hasMore"]) == (250, True)


@pytest.mark.requirement("M226", "L195")
@EVERY
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": {"type": "ref/prompt", "name": "show"}},
        {"ref": {"type": "ref/other", "name": "show"}, "argument": {"name": "kind", "value": "v"}},
        {"ref": {"type": "ref/prompt", "name": "show"}, "argument": {"name": "kind", "value": 7}},
        {"ref": {"type": "ref/prompt", "name": "unknown"}, "argument": {"name": "kind", "value": "v"}},
        {"ref": {"type": "ref/resource", "uri": "things://unknown/{x}"}, "argument": {"name": "x", "value": "v"}},
    ],
)
async def test_a_completion_of_what_is_not_there_is_refused(
    revision: Revision, params: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        with pytest.raises(Refusal, match="-32602"):
            await peer.request("completion/complete", **params)


@EVERY
async def test_an_argument_without_candidates_has_none(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        ref = {"type": "ref/prompt", "name": "show"}
        done = await peer.request("completion/complete", ref=ref, argument={"name": "times", "value": "1"})
        assert done["completion"]["values"] == []


@pytest.mark.requirement("M171")
@EVERY
async def test_a_completion_cannot_ask_the_client(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        ref = {"type": "ref/resource", "uri": "things://one/{number}"}
        with pytest.raises(Refusal, match="-32603"):
            await peer.request("completion/complete", ref=ref, argument={"name": "number", "value": "1"})


@pytest.mark.requirement("M210", "M211", "M212")
async def test_what_may_be_kept_says_how_long_and_by_whom(autojump_clock: MockClock) -> None:
    keeping = Server("keeping", ttl=60, cache_scope="public", offers=["tools", "prompts"])
    for number in range(150):
        keeping.resource(f"keep://{number}", ttl=number / 2, cache_scope="public", name=f"n{number}")(nothing_much)
    keeping.resource("keep://t/{x}")(one_of)
    async with open_house(keeping) as house:
        peer = await house.peer(R5)
        page = await peer.request("resources/list")
        pages = [page, await peer.request("resources/list", cursor=page["nextCursor"])]
        lists = [await peer.request(m) for m in ("tools/list", "prompts/list", "resources/templates/list")]
        for result in (*pages, *lists, await peer.request("server/discover")):
            assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")
        read = await peer.request("resources/read", uri="keep://3")
        assert (read["ttlMs"], read["cacheScope"]) == (1500, "public")
        read = await peer.request("resources/read", uri="keep://t/1")
        assert (read["ttlMs"], read["cacheScope"]) == (0, "private")  # nobody said otherwise
        old = await house.peer(Revision("2025-11-25"))
        assert "ttlMs" not in await old.request("resources/read", uri="keep://3")


async def nothing_much() -> str:
    return "x"


async def one_of(x: str) -> str:
    return x


@pytest.mark.requirement("M211")
@pytest.mark.parametrize("ttl", [-1, float("inf"), float("nan")])
def test_a_time_to_keep_is_not_below_zero_and_ends(ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl"):
        Server("wrong", ttl=ttl)
    with pytest.raises(ValueError, match="ttl"):
        Server("wrong").resource("x://y", ttl=ttl)
