"""Pictures and other files: made by a tool, read from a folder, and put into it."""

from pathlib import Path

from callboard import Blob, Image, ResourceLink, Server, ToolError

server = Server("album", version="1.0")

FOLDER = Path("album")


@server.tool
async def chart(values: list[int]) -> Image:
    """Draw a bar for each value."""
    bars = "".join(f'<rect x="{12 * at}" y="0" width="10" height="{value}"/>' for at, value in enumerate(values))
    return Image(f'<svg xmlns="http://www.w3.org/2000/svg">{bars}</svg>'.encode(), "image/svg+xml")


@server.tool
def save(name: str, data: bytes) -> ResourceLink:
    """Keep a file; returns a link to it."""
    path = _path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return ResourceLink(uri=f"album://{name}", name=name, size=len(data))


@server.tool
def show(name: str) -> list[str | Image]:
    """A picture of the album, and a word about it."""
    if not _path(name).exists():
        raise ToolError(f"There is no picture {name}.")
    return [f"This is {name}:", Image(_path(name))]


@server.resource("album://{name}")
def picture(name: str) -> Blob | None:
    """A file of the album, as it is."""
    return Blob(_path(name)) if _path(name).exists() else None


def _path(name: str) -> Path:
    if Path(name).name != name or name.startswith("."):  # never leave the folder
        raise ToolError("A name has no slashes, and no dot at its beginning.")
    return FOLDER / name


if __name__ == "__main__":
    server.run()
