"""The signature of a handler: its name, its schema, and the conversion of JSON to arguments.

Everything is worked out when the handler is registered. A call then costs one decoding, one check against the
published schema and one conversion to the annotated types; or the decoding alone, where the types are plain.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

import attrs
import msgspec

from callboard.errors import InvalidDefinition
from callboard.server.content.errors import BadArguments
from callboard.server.content.problems import Problem, find_problems, problems_of
from callboard.server.signature.output import OutputSchema
from callboard.server.signature.parameters import (
    Convert,
    Parameter,
    ReadPlain,
    by_keyword,
    by_keyword_as_given,
    first_line,
    plain_reader,
    whole,
)
from callboard.server.signature.schemas import Schema, Validator, compile_schema
from callboard.server.signature.shape import Shape

Arguments: TypeAlias = Mapping[str, Any] | bytes | msgspec.Raw | msgspec.UnsetType | None
"""Arguments of a call: JSON bytes of the message, values, or nothing."""

_decode: Final = msgspec.json.Decoder().decode


@attrs.frozen(eq=False, kw_only=True)
class Signature:
    """One handler, described. Make it with `Signature.of`."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    """The published parameters, in the order of the signature. Injected ones are not among them."""
    input_schema: Schema
    output: OutputSchema | None
    context_parameter: str | None
    """The keyword under which the handler wants its context, if it does."""
    is_async: bool
    _validator: Validator = attrs.field(repr=False)
    _convert: Convert = attrs.field(repr=False)
    _read_plain: ReadPlain | None = attrs.field(repr=False)

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        context_type: type,
        name: str | None = None,
        description: str | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | bool = True,
        hidden: Collection[str] = (),
        plain: tuple[type, ...] = (),
        namespace: Mapping[str, Any] | None = None,
    ) -> "Signature":
        """Describe *function*.

        *hidden* parameters are filled by the caller and not published. *plain* types are results in themselves, and
        promise no data. *namespace* helps where annotations are text that names something local. An *input_schema*
        is published as it stands: the handler takes its properties by keyword, or, with one parameter that is none
        of them, all of the arguments at once. *output_schema* replaces what the return annotation says; False
        publishes none.

        Raises `TypeError` with the function, the parameter and what to do.
        """
        shape = Shape.of(function, context_type=context_type, hidden=hidden, namespace=namespace or {})
        if input_schema is None:
            parameters, schema, convert = by_keyword(shape)
        elif shape.takes_all_of(input_schema):
            parameters, schema, convert = whole(shape, input_schema)
        else:
            parameters, schema, convert = by_keyword_as_given(shape, input_schema)
        return cls(
            name=name or shape.name,
            description=shape.docstring.text if description is None else description,
            parameters=parameters,
            input_schema=schema,
            output=_output(shape, output_schema, plain),
            context_parameter=shape.context_parameter,
            is_async=shape.is_async,
            validator=_compiled(shape, schema),
            convert=convert,
            read_plain=plain_reader(shape) if input_schema is None else None,
        )

    def read(self, arguments: Arguments = None) -> dict[str, Any]:
        """Return the keyword arguments of the handler: checked, of the annotated types, defaults filled in.

        Raises `BadArguments` with everything that is wrong, up to a limit.
        """
        if self._read_plain is not None and isinstance(arguments, msgspec.Raw):
            try:
                return self._read_plain(arguments)
            except msgspec.DecodeError:
                pass  # below it is said what is wrong, or 3.0 is found to be an integer
        values = self._values(arguments)
        try:
            fits = self._validator.is_valid(values)
        except ValueError as reason:  # values of ours that no JSON can hold
            raise self._bad(Problem("", f"not JSON ({reason})")) from reason
        if not fits:
            problems, more = find_problems(self._validator, self.input_schema, values)
            raise self._bad(*problems, more=more)
        try:
            return self._convert(values)
        except msgspec.ValidationError as error:
            return self._read_whole_numbers(values, error)

    def read_text(self, arguments: Mapping[str, str | list[str]] | None = None) -> dict[str, Any]:
        """As `read`, for the string arguments of prompts and URI templates.

        Text is taken as it is where the schema allows that, and else as the JSON that it may be: `3`, `true`.
        """
        values: dict[str, Any] = dict(arguments or {})
        for error in self._validator.iter_errors(values):
            name = error.instance_path[0] if error.instance_path else None
            if isinstance(name, str) and isinstance(values[name], str):
                try:
                    values[name] = _decode(values[name])
                except msgspec.DecodeError:
                    continue  # no JSON either; `read` says what is allowed
        return self.read(values)

    def _values(self, arguments: Arguments) -> Any:
        if isinstance(arguments, bytes | msgspec.Raw):
            try:
                return _decode(arguments)
            except (msgspec.DecodeError, RecursionError) as reason:
                raise self._bad(Problem("", f"not JSON ({reason})")) from reason
        return {} if arguments is None or arguments is msgspec.UNSET else arguments

    def _read_whole_numbers(self, values: Any, error: msgspec.ValidationError) -> dict[str, Any]:
        """To JSON Schema 3.0 is an integer; msgspec wants it spelled so. Rare, so it is tried second."""
        try:
            return self._convert(_spelled_as_integers(values))
        except msgspec.ValidationError:
            raise self._bad(*problems_of(error)) from error

    def _bad(self, *problems: Problem, more: bool = False) -> BadArguments:
        return BadArguments(f"Invalid arguments for {self.name}", problems, more=more)


def _output(shape: Shape, wanted: Mapping[str, Any] | bool, plain: tuple[type, ...]) -> OutputSchema | None:
    if wanted is False:
        return None
    try:
        return OutputSchema.of(shape.returns, plain=plain) if wanted is True else OutputSchema.explicit(wanted)
    except (TypeError, InvalidDefinition) as reason:
        advice = "use a return type with a JSON Schema, or register with output_schema=False"
        raise TypeError(
            f"{shape.name}(): no output schema for its return type ({first_line(reason)}): {advice}"
        ) from None


def _compiled(shape: Shape, schema: Schema) -> Validator:
    try:
        return compile_schema(schema)
    except InvalidDefinition as reason:
        raise TypeError(f"{shape.name}(): invalid input schema: {first_line(reason)}") from None


def _spelled_as_integers(value: Any) -> Any:
    match value:
        case dict():
            return {key: _spelled_as_integers(inner) for key, inner in value.items()}
        case list():
            return [_spelled_as_integers(inner) for inner in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value
