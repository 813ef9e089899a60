"""A function as its signature shows it: what comes from the peer, what is injected, what goes back."""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import attrs

from callboard.server.signature.docstrings import Docstring

UNSTATED: Final = inspect.Parameter.empty
"""No annotation, or no default."""

_LISTED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@attrs.frozen
class Made:
    """A default that is made for each call."""

    factory: Callable[[], Any]


@attrs.frozen(kw_only=True)
class Shape:
    """A function, as its signature shows it."""

    name: str
    docstring: Docstring
    listed: tuple[inspect.Parameter, ...]
    """The published signature, with evaluated annotations."""
    others: inspect.Parameter | None
    """`**kwargs`, if the function takes them."""
    context_parameter: str | None
    returns: Any
    is_async: bool

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        context_type: type,
        hidden: Collection[str],
        namespace: Mapping[str, Any],
    ) -> "Shape":
        inner = _innermost(function)
        name = _name(function)
        hints = _hints(name, inner, namespace)
        given = _signature(name, function)
        parameters = [
            parameter.replace(annotation=hints.get(parameter.name, UNSTATED)) for parameter in given.parameters.values()
        ]
        contexts = [one.name for one in parameters if _is_context(one.annotation, context_type)]
        if len(contexts) > 1:
            raise TypeError(f"{name}(): {' and '.join(contexts)} both have the type Context; keep one")
        published = [_without_field(name, one) for one in parameters if one.name not in (*contexts, *hidden)]
        for parameter in published:
            _check_kind(name, parameter)
        return cls(
            name=name,
            docstring=Docstring.parse(inspect.getdoc(inner) or _own_doc(function)),
            listed=tuple(one for one in published if one.kind in _LISTED),
            others=next((one for one in published if one.kind is inspect.Parameter.VAR_KEYWORD), None),
            context_parameter=next(iter(contexts), None),
            returns=hints.get("return", inspect.Signature.empty),
            is_async=any(inspect.iscoroutinefunction(one) for one in (function, type(function).__call__, inner)),
        )

    @property
    def published(self) -> tuple[inspect.Parameter, ...]:
        """All parameters that come from the peer, `**kwargs` last."""
        return (*self.listed, self.others) if self.others is not None else self.listed

    def takes_all_of(self, input_schema: Mapping[str, Any]) -> bool:
        """Whether the one parameter is meant for the arguments as a whole: it is none of them."""
        properties = input_schema.get("properties", {})
        return len(self.listed) == 1 and self.others is None and self.listed[0].name not in properties


def _signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as reason:
        raise TypeError(f"{name}(): it has no readable signature; wrap it in a function") from reason


def _check_kind(name: str, parameter: inspect.Parameter) -> None:
    if parameter.name.startswith("__"):
        raise TypeError(
            f"{name}(): {parameter.name} looks private, but parameters are published; remove the underscores"
        )
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise TypeError(
            f"{name}(): {parameter.name} is positional-only, but arguments are passed by name; move it behind the /"
        )
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        raise TypeError(
            f"{name}(): *{parameter.name} cannot be passed by name; use a list, as in `{parameter.name}: list[str]`"
        )


def _without_field(name: str, parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter whose default is pydantic's `Field(5, ge=0)`, as if it were annotated with that, and had 5."""
    field: Any = parameter.default
    if type(field).__module__.partition(".")[0] != "pydantic":
        return parameter
    if not hasattr(field, "default_factory") or parameter.annotation is UNSTATED:
        raise TypeError(f"{name}(): the default of {parameter.name} is a pydantic object, not a value")
    if field.alias is not None or field.validation_alias is not None:
        raise TypeError(f"{name}(): {parameter.name} has an alias, but is published by its own name; rename it")
    default = UNSTATED if field.is_required() else field.default
    if callable(field.default_factory):
        default = Made(field.default_factory)
    return parameter.replace(annotation=Annotated[parameter.annotation, field], default=default)


def _is_context(annotation: Any, context_type: type) -> bool:
    """Whether a parameter wants the context: `Context`, a subclass, `Context[...]`, `Context | None`."""
    if get_origin(annotation) is Annotated:
        return _is_context(annotation.__origin__, context_type)
    kind = get_origin(annotation) or annotation
    if isinstance(kind, type) and issubclass(kind, context_type):
        return True
    inner = [argument for argument in get_args(annotation) if argument is not type(None)]
    return len(inner) == 1 < len(get_args(annotation)) and _is_context(inner[0], context_type)


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that has the annotations: under partials, decorators and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function) and not isinstance(function, type):
        method: Any = type(function)
        function = inspect.unwrap(method.__call__)
    return function


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def _own_doc(function: Any) -> str:
    """The docstring of a callable object's class; that of `partial` says nothing."""
    return "" if isinstance(function, functools.partial) else inspect.getdoc(function) or ""


def _hints(name: str, function: Callable[..., Any], namespace: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return get_type_hints(function, localns=dict(namespace) or None, include_extras=True)
    except NameError as reason:
        raise TypeError(
            f"{name}(): an annotation names {reason.name}, which is not defined; "
            "define it at the top of the module, before the handler"
        ) from reason
