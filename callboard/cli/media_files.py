"""`-o FILE` and `--save DIR`: the images, sounds and other bytes of a result, as files."""

import re
import sys
from pathlib import Path
from typing import Annotated, Final

import attrs
from cyclopts import Parameter

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
            "standard output. Further ones go beside it: FILE-2.png.",
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


@attrs.define(eq=False)
class MediaFiles:
    """The files of one result. Names are made here: a server's own could lead anywhere."""

    flags: SaveFlags = attrs.field(factory=SaveFlags)
    stem: str = "result"
    _kept: int = attrs.field(default=0, init=False)

    @property
    def is_stdout(self) -> bool:
        """Whether standard output is for the bytes alone."""
        return self.flags.output is not None and str(self.flags.output) == STDOUT

    @property
    def wants_text(self) -> bool:
        """Whether a text goes to a file, if there were no bytes."""
        return self.flags.output is not None and not self.is_stdout and not self._kept

    def keep(self, data: bytes, kind: str) -> str:
        """Write *data*, of this MIME type. Returns the names of its files; none if nothing was asked for.

        Raises `CannotWrite`.
        """
        self._kept += 1
        names = []
        if self.is_stdout:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
        elif self.flags.output is not None:
            names.append(_written(_numbered(self.flags.output.expanduser(), self._kept), data))
        if self.flags.save is not None:
            names.append(self._in_directory(self.flags.save.expanduser(), data, kind))
        return ", ".join(names)

    def keep_text(self, text: str) -> None:
        """Write a text in the place of bytes. Raises `CannotWrite`."""
        if self.flags.output is not None:
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
