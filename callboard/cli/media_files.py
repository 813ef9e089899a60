"""`-o FILE` and `--save DIR`: the images, sounds and other bytes of a result, as files."""

import re
import sys
from enum import Enum, auto
from pathlib import Path
from typing import Annotated, Final

import attrs
from cyclopts import Parameter

from callboard.cli.input_files import BadArgument
from callboard.cli.streams import CannotWrite

MOST_NAMES: Final = 10_000
"""Files of one tool in a directory of `--save`: each further one takes the next free number."""

STDOUT: Final = "-"

_EXTENSIONS: Final = {
    "application/gzip": ".gz",
    "application/json": ".json",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "audio/aac": ".aac",
    "audio/flac": ".flac",
    "audio/mp4": ".m4a",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "audio/webm": ".webm",
    "audio/x-wav": ".wav",
    "image/avif": ".avif",
    "image/bmp": ".bmp",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/tiff": ".tiff",
    "image/webp": ".webp",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/plain": ".txt",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
}
_OTHER: Final = ".bin"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")

_FLAG: Final = Parameter(negative="", show_default=False)


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class SaveFlags:
    """Files for the bytes of a result."""

    output: Annotated[
        Path | None,
        _FLAG,
        Parameter(
            name=("--output", "-o"),
            allow_leading_hyphen=True,
            help="Write the image, sound or other bytes of the result to FILE, or its text if it has no bytes; - is "
            "standard output. Further ones go beside it: FILE-2.png. Nothing is written if the tool failed.",
        ),
    ] = None
    save: Annotated[
        Path | None,
        _FLAG,
        Parameter(help="Write images, sounds and other bytes into DIR, as TOOL-1.png. No file is overwritten."),
    ] = None

    @property
    def is_given(self) -> bool:
        return self.output is not None or self.save is not None

    @property
    def is_stdout(self) -> bool:
        """Whether standard output is for the bytes or the text alone."""
        return self.output is not None and str(self.output) == STDOUT

    def check(self, *, is_json: bool) -> None:
        """Raises `BadArgument` if two things would go to standard output."""
        if is_json and self.is_stdout:
            raise BadArgument("-o -: standard output is used for --json; name a file, or leave out one of them")


class TextPlace(Enum):
    """Where the text of a result goes."""

    SHOWN = auto()
    """To standard output, as a terminal or a pipe gets it."""
    OUTPUT = auto()
    """To the file of `-o`."""
    STDERR = auto()
    """Beside it: standard output is for bytes alone, or the text says why the tool failed."""
    NOWHERE = auto()
    """It is in the JSON."""


@attrs.define(eq=False)
class MediaFiles:
    """The files of one result. Names are made here: a server's own could lead anywhere."""

    flags: SaveFlags = attrs.field(factory=SaveFlags)
    stem: str = "result"
    is_failed: bool = False
    """A failed tool's result is none for the file of `-o`."""
    _kept: int = attrs.field(default=0, init=False)

    @property
    def is_stdout(self) -> bool:
        return self.flags.is_stdout

    def place_of_text(self, *, has_bytes: bool, is_json: bool) -> TextPlace:
        """Where a text goes that has bytes beside it, or none."""
        if self.flags.output is not None:
            if not (has_bytes or self.is_failed):
                return TextPlace.OUTPUT
            if not is_json and (self.is_failed or self.is_stdout):
                return TextPlace.STDERR
        return TextPlace.NOWHERE if is_json else TextPlace.SHOWN

    def keep(self, data: bytes, kind: str) -> str:
        """Write *data*, of this MIME type. Returns the names of its files; none if nothing was asked for.

        Raises `CannotWrite`.
        """
        self._kept += 1
        names = []
        if self.is_failed or self.flags.output is None:
            pass
        elif self.is_stdout:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
        else:
            names.append(_written(_numbered(self.flags.output.expanduser(), self._kept), data))
        if self.flags.save is not None:
            names.append(self._in_directory(self.flags.save.expanduser(), data, kind))
        return ", ".join(names)

    def keep_text(self, text: str) -> None:
        """Write a text in the place of bytes. Raises `CannotWrite`."""
        if self.is_stdout:
            sys.stdout.write(text)
        elif self.flags.output is not None:
            _written(self.flags.output.expanduser(), text.encode(errors="replace"))

    def _in_directory(self, directory: Path, data: bytes, kind: str) -> str:
        stem = _UNSAFE.sub("-", self.stem)[:100].strip("-") or "result"
        extension = _EXTENSIONS.get(kind.partition(";")[0].strip().lower(), _OTHER)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for number in range(1, MOST_NAMES + 1):
                path = directory / f"{stem}-{number}{extension}"
                try:
                    with path.open("xb") as file:
                        file.write(data)
                except FileExistsError:
                    continue
                return str(path)
        except OSError as error:
            raise CannotWrite(f"{directory}: {error.strerror or error}") from None
        raise CannotWrite(f"{directory}: has {MOST_NAMES:,} files of {stem} already")


def _numbered(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def _written(path: Path, data: bytes) -> str:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise CannotWrite(f"{path}: {error.strerror or error}") from None
    return str(path)
