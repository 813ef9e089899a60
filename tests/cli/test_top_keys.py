"""The keyboard of `top`: bytes of a terminal as keys."""

import os

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from callboard.cli.top_keys import KeyDecoder, read_keys


def decoded(*pieces: bytes) -> list[str]:
    decoder = KeyDecoder()
    return [key for piece in pieces for key in decoder.feed(piece)] + decoder.flush()


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"sq", ["s", "q"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F", ["pgup", "pgdn", "home", "end"]),
        (b"\r\n\x7f\x08", ["enter", "enter", "backspace", "backspace"]),
        (b"\x1b", ["esc"]),
        (b"\x1b\x1b[A", ["esc", "up"]),
        (b"\x1a", ["suspend"]),
        ("é界".encode(), ["é", "界"]),
        (b"\x1b[200~x\x1b[1;5Cy\x1bxz", ["x", "y", "z"]),
        (b"\x00\x01\xff", ["\ufffd"]),
        (b"\x1b[" + b"1" * 100 + b"q", []),
        (b"\x1b[" + b"1" * 100, ["esc", "[", *"1" * 100]),
    ],
)
def test_keys_have_names(typed: bytes, keys: list[str]) -> None:
    assert decoded(typed) == keys


@given(st.lists(st.sampled_from([b"s", b"\x1b[A", b"\x1b[5~", "é".encode(), b"\r"])), st.integers(1, 3))
def test_keys_survive_any_chunking(typed: list[bytes], length: int) -> None:
    whole = b"".join(typed)
    assert decoded(*(whole[at : at + length] for at in range(0, len(whole), length))) == decoded(whole)


async def test_an_escape_that_stands_alone_is_a_key_after_a_moment_and_the_end_of_the_terminal_is_an_end() -> None:
    reading, writing = os.pipe()
    pressed: list[str] = []
    try:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read_keys, reading, pressed.append)
                os.write(writing, b"\x1b")
                while not pressed:  # noqa: ASYNC110  # a key has no event
                    await trio.sleep(0.01)
                os.write(writing, b"q")
                os.close(writing)
    finally:
        os.close(reading)
    assert pressed == ["esc", "q"]
