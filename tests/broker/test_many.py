"""Many backends: the first of them has something to say long before the last one is started."""

import pytest

from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from tests.broker.back import Back, text
from tests.broker.front import backend, brokered, peer

COUNT = 50


@pytest.mark.parametrize("behind", [R4, R5], ids=str)
async def test_all_of_many_backends_are_listed_and_answer(behind: Revision) -> None:
    backs = {f"b{number}": Back(behind) for number in range(COUNT)}
    specs = [backend(back.ways, name, prefix=name) for name, back in backs.items()]
    async with brokered(*specs) as host, peer(host, capabilities={}) as client:
        listed = (await client.request("tools/list"))["tools"]
        assert [one["name"] for one in listed] == [f"{name}__{tool}" for name in backs for tool in ("book", "other")]
        for name, back in backs.items():
            begun = await client.begin("tools/call", name=f"{name}__book", arguments={})
            line, request = await back.hear()
            await line.answer(request, **text(name))
            assert (await client.finish(begun))["content"][0]["text"] == name
