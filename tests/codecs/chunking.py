"""Where the bytes are cut: Hypothesis chooses, and no decoder may notice."""

from collections.abc import Iterable

from hypothesis import strategies as st


@st.composite
def chunked(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """*data* cut at any places, with empty chunks among them."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def byte_by_byte(data: bytes) -> Iterable[bytes]:
    """The slowest peer there is."""
    return (data[at : at + 1] for at in range(len(data)))
