"""What the exit code of a command says."""

from enum import IntEnum


class Exit(IntEnum):
    """These are a contract: scripts depend on them."""

    FINE = 0
    TOOL_FAILED = 1
    """The tool itself says that it failed: its words are the output."""
    LIMIT_BROKEN = 1
    """`bench`: what `--fail-if` names has happened."""
    USAGE = 2
    """What was typed makes no sense, or cannot be."""
    CANNOT_CONNECT = 3
    """There is no server that can be spoken to."""
    REFUSED = 4
    """The server refused, or gave an answer that is none."""
    LOST = 5
    """No answer in time, or the connection was lost: whether anything was done is not known."""
    CANNOT_WRITE = 6
    """It was done, and the output could not be written."""
    INTERRUPTED = 130
    """Ctrl-C."""
