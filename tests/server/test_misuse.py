"""Decorators that are written in another way than they are meant say what to write."""

from typing import Any

import pytest

from callboard import Server


def test_a_name_that_is_given_by_position_is_told_the_keyword() -> None:
    server: Any = Server("s")
    with pytest.raises(TypeError, match=r"for a name write @server\.tool\(name='add'\)"):
        server.tool("add")
    with pytest.raises(TypeError, match=r"for a name write @server\.prompt\(name='greet'\)"):
        server.prompt("greet")


def test_a_bare_resource_is_told_that_it_needs_a_uri() -> None:
    server: Any = Server("s")

    def notes() -> str:
        return ""

    with pytest.raises(TypeError, match=r'write @server\.resource\("notes://notes"\) before notes\(\)'):
        server.resource(notes)
    with pytest.raises(TypeError, match="must be a string, not int"):
        server.resource(3)


def test_a_context_without_a_type_is_told_its_type() -> None:
    server: Any = Server("s")

    def log(ctx) -> None: ...  # type: ignore[no-untyped-def]  # which is the mistake

    with pytest.raises(TypeError, match=r"annotate it, as in `ctx: Context`"):
        server.tool(log)
