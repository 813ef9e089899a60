"""One cattrs converter per revision, and the two functions that all else uses: `read` and `write`."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, TypeAlias, TypeVar

import msgspec
from cattrs import Converter

from callboard.codecs.revisions import _read, _write
from callboard.codecs.revisions._choose import union_reader
from callboard.codecs.revisions._read import Misfit
from callboard.codecs.revisions.model import Model
from callboard.codecs.revisions.revision import Revision
from callboard.errors import InvalidParams

T = TypeVar("T", bound=Model)
Predicate: TypeAlias = Callable[[Any], bool]


@cache
def converter_for(revision: Revision) -> Converter:
    """The converter of one revision. Its hooks are built when a class is first seen, so importing costs nothing."""
    converter = Converter(detailed_validation=False)
    for kind, reader in _read.SCALARS.items():
        converter.register_structure_hook(kind, reader)
    for accepts, build_reader in _readers(revision):
        converter.register_structure_hook_factory(accepts, build_reader)
    for accepts, build_writer in _writers(revision):
        converter.register_unstructure_hook_factory(accepts, build_writer)
    return converter


def _readers(revision: Revision) -> Iterator[tuple[Predicate, Callable[[Any, Converter], _read.Reader]]]:
    yield _read.is_any, lambda _form, _converter: _read.read_anything
    yield _read.is_literal, _read.literal_reader
    yield _read.is_sequence, _read.sequence_reader
    yield _read.is_mapping, _read.mapping_reader
    yield _read.is_annotated, _read.annotated_reader
    yield _read.is_settings, lambda _form, _converter: _read.read_settings  # of two that accept, the later one is taken
    yield _read.is_union, partial(union_reader, revision)
    yield _read.is_model, partial(_read.model_reader, revision)


def _writers(revision: Revision) -> Iterator[tuple[Predicate, Callable[[Any, Converter], _write.Writer]]]:
    yield _read.is_sequence, _write.sequence_writer
    yield _read.is_mapping, _write.mapping_writer
    yield _read.is_union, _write.union_writer
    yield _read.is_model, partial(_write.model_writer, revision)


def read(revision: Revision, model: type[T], value: object, *, at: str = "params") -> T:
    """Read decoded JSON, or raw bytes of it, as a *model* of *revision*.

    Raises `InvalidParams` naming the path, which begins with *at*, and what was expected there.
    """
    result: T = read_form(revision, model, value, at=at)
    return result


def read_form(revision: Revision, form: Any, value: object, *, at: str = "params") -> Any:
    """As `read`, for any type that stands in a model: a union, an array, a map."""
    value = decoded(value, at=at)
    try:
        return _reader(revision, form)(value, form)
    except Misfit as misfit:
        raise InvalidParams(misfit.at(at)) from None


def decoded(value: object, *, at: str) -> object:
    """Raw bytes as the JSON they hold, anything else as it is. Raises `InvalidParams`."""
    if not isinstance(value, bytes | bytearray | msgspec.Raw):
        return value
    try:
        result: object = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise InvalidParams(f"{at}: expected JSON") from None
    return result


def write(revision: Revision, value: Model) -> dict[str, Any]:
    """The JSON object of a model in *revision*: what it does not know is left out, `extra` is kept.

    Raises `ValueError` if the object does not exist in *revision*, or lacks what is required there.
    """
    written: dict[str, Any] = write_form(revision, type(value), value)
    return written


def write_form(revision: Revision, form: Any, value: object) -> Any:
    """As `write`, for any type that stands in a model."""
    return writer(revision, form)(value)


@cache
def _reader(revision: Revision, form: Any) -> _read.Reader:
    return converter_for(revision).get_structure_hook(form)


@cache
def writer(revision: Revision, form: Any) -> _write.Writer:
    """The writer for a type of a model."""
    return _write.writer_of(form, converter_for(revision))
