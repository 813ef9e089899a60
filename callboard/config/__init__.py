"""The servers that a broker is to run: read from a file, explained where it is wrong, and watched for changes."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from callboard.config.load import read_configuration
    from callboard.config.model import (
        BackendSpec,
        BackendTarget,
        Configuration,
        Difference,
        OpenApiTarget,
        PythonTarget,
        UpstreamAuth,
        difference,
    )
    from callboard.config.remote import Remote
    from callboard.config.report import BadConfiguration, Mistake

__all__ = [
    "BackendSpec",
    "BackendTarget",
    "BadConfiguration",
    "Configuration",
    "Difference",
    "Mistake",
    "OpenApiTarget",
    "PythonTarget",
    "Remote",
    "UpstreamAuth",
    "difference",
    "read_configuration",
]

_MODULES: Final = {"read_configuration": "load", "BadConfiguration": "report", "Mistake": "report", "Remote": "remote"}


def __getattr__(name: str) -> object:
    """Load a name when it is asked for: a server that reads a file of tokens needs nothing of backends."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'model')}"), name)
