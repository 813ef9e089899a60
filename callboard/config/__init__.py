"""The servers that a broker is to run: read from a file, explained where it is wrong, and watched for changes."""

from callboard.config.load import read_configuration
from callboard.config.model import (
    BackendSpec,
    BackendTarget,
    Configuration,
    Difference,
    PythonTarget,
    Remote,
    UpstreamAuth,
    difference,
)
from callboard.config.report import BadConfiguration, Mistake

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
