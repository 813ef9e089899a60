"""Which functions can be served, and what is said of the others."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import pydantic
import pytest
from msgspec import Meta

from tests.server.kinds import Context, Opaque, Place, signature


def test_methods_partials_callable_objects_and_wrapped_functions_are_described() -> None:
    class Tools:
        """Several."""

        def method(self, x: int) -> None: ...

        async def __call__(self, x: int) -> None: ...

    def tool(x: int, y: int) -> None:
        """One.

        :param x: The first.
        """

    @functools.wraps(tool)
    async def wrapped(*args: Any, **kwargs: Any) -> None: ...

    assert list(signature(Tools().method).input_schema["properties"]) == ["x"]
    assert list(signature(Tools()).input_schema["properties"]) == ["x"]
    assert signature(Tools()).is_async
    assert signature(wrapped).is_async
    assert not signature(tool).is_async
    assert signature(functools.partial(tool, y=2)).read({"x": 1}) == {"x": 1, "y": 2}
    assert list(signature(wrapped).input_schema["properties"]) == ["x", "y"]
    described = [signature(one) for one in (Tools().method, Tools(), tool, functools.partial(tool, y=2), wrapped)]
    assert [(one.name, one.description, one.parameters[0].description) for one in described] == [
        ("method", "", ""),
        ("Tools", "Several.", ""),
        *[("tool", "One.", "The first.")] * 3,
    ]


def refused_positional(x: int, /) -> None: ...
def refused_private(__x: int) -> None: ...
def refused_star(*names: str) -> None: ...
def refused_untyped(x) -> None: ...  # type: ignore[no-untyped-def]
def refused_type(x: list[Opaque]) -> None: ...
def refused_union(x: Place | Opaque) -> None: ...
def refused_name(x: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def refused_contexts(a: Context, b: Context) -> None: ...
def refused_default(x: int = pydantic.Field(5, alias="y")) -> None: ...
def refused_context(ctx) -> None: ...  # type: ignore[no-untyped-def]
def refused_result() -> Opaque: ...  # type: ignore[empty-body]
def refused_bounds(x: Annotated[bool, Meta(ge=1)]) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (refused_positional, ["x is positional-only", "behind the /"]),
        (refused_private, ["__x looks private", "remove the underscores"]),
        (int, ["it has no readable signature"]),
        (refused_star, ["*names", "names: list[str]"]),
        (refused_untyped, ["the parameter x has no type", "x: str"]),
        (refused_type, ["the parameter x", "Opaque has no JSON Schema", "input_schema="]),
        (refused_union, ["the parameter x", "Opaque has no JSON Schema"]),
        (refused_name, ["names Missing", "top of the module"]),
        (refused_contexts, ["a and b both have the type Context"]),
        (refused_default, ["x has an alias", "published by its own name"]),
        (refused_context, ["the parameter ctx has no type", "`ctx: Context`"]),
        (refused_result, ["no output schema for its return type", "output_schema=False"]),
        (refused_bounds, ["the parameter x", "Can only set `ge` on a numeric type"]),
    ],
)
def test_a_signature_that_cannot_be_served_is_refused_with_advice(
    function: Callable[..., Any], words: list[str]
) -> None:
    with pytest.raises(TypeError) as caught:
        signature(function)
    for word in [f"{function.__name__}()", *words]:
        assert word in str(caught.value)
