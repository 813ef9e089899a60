"""The servers that a broker is to run: read from a file, explained where it is wrong, and watched for changes."""

from callboard.configuration.mistakes import BadConfiguration, Mistake
from callboard.configuration.reading import read_configuration
from callboard.configuration.values import (
    BackendSpec,
    BackendTarget,
    Configuration,
    Difference,
    PythonTarget,
    Remote,
    UpstreamAuth,
    difference,
)

__all__ = [
    "BackendSpec",
    "BackendTarget",
    "BadConfiguration",
    "Configuration",
    "Difference",
    "Mistake",
    "PythonTarget",
    "Remote",
    "UpstreamAuth",
    "difference",
    "read_configuration",
]
