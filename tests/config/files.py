"""Files of servers, as they stand on a disk."""

import json
from pathlib import Path
from typing import Any

from callboard.config import BackendSpec, BadConfiguration, Configuration, Mistake, read_configuration


def read(folder: Path, text: str, name: str = "servers.toml") -> Configuration:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_configuration(file)


def read_one(folder: Path, **written: Any) -> BackendSpec:
    """The only server of a file in JSON."""
    [spec] = read(folder, json.dumps({"mcpServers": {"it": written}}), "mcp.json").backends
    return spec


def mistakes(folder: Path, text: str, name: str = "servers.toml") -> tuple[Mistake, ...]:
    """What is wrong with such a file; nothing if it is right."""
    try:
        read(folder, text, name)
    except BadConfiguration as error:
        return error.mistakes
    return ()


def told(folder: Path, text: str, name: str = "servers.toml") -> list[str]:
    """The same, as it is shown, without the folder."""
    return [str(mistake).removeprefix(f"{folder}/") for mistake in mistakes(folder, text, name)]
