"""Plain arguments are read by their types alone: they must come to what the schema and the conversion come to."""

from itertools import product
from typing import Any

import msgspec
import pytest

from callboard import Context
from callboard.server.content.errors import BadArguments
from callboard.server.signature.signature import Signature

VALUES = (
    *("1", "1.0", "1.5", "-0", "-0.0", "1e3", "1e19", "1e30", "0.1e1", "18446744073709551616", "1" + "0" * 40, "1e-5"),
    *("true", "null", '"x"', '"\\u0000"', "[]", "{}", '{"a":1}'),
)
SHAPES = (
    '{{"{0}":{1}}}',
    '{{"whole":1,"{0}":{1}}}',
    '{{"{0}":"twice","whole":1,"{0}":{1}}}',
    '{{"whole":{1},"{0}":{1}}}',
)


async def plain(whole: int, number: float = 1.5, text: str | None = None, truth: bool = False) -> str:
    return ""


async def rich(whole: int, texts: list[str]) -> str:
    return ""


def read(signature: Signature, arguments: Any) -> Any:
    try:
        return [(name, type(value), value) for name, value in signature.read(arguments).items()]
    except BadArguments as error:
        return str(error)


@pytest.mark.parametrize("shape", SHAPES)
def test_plain_arguments_are_read_as_any_others_are(shape: str) -> None:
    signature = Signature.of(plain, context_type=Context)
    for name, value in product(("whole", "number", "text", "truth", "unknown"), VALUES):
        given = shape.format(name, value).encode()
        assert read(signature, msgspec.Raw(given)) == read(signature, msgspec.json.decode(given)), given


def test_arguments_that_are_not_plain_are_checked_against_the_schema() -> None:
    signature = Signature.of(rich, context_type=Context)
    assert signature.read(msgspec.Raw(b'{"whole":3.0,"texts":["a"]}')) == {"whole": 3, "texts": ["a"]}
    with pytest.raises(BadArguments, match="texts"):
        signature.read(msgspec.Raw(b'{"whole":3,"texts":[1]}'))
