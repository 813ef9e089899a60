"""Exit codes of the commands."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes are a stable interface: scripts depend on them."""

    FINE = 0
    TOOL_FAILED = 1
    """The tool returned a result with `isError`; its text is the output."""
    LIMIT_BROKEN = 1
    """`bench`: a limit of `--fail-if` was exceeded."""
    NOT_UP = 1
    """`status`: the server is not ready, or one of its servers or workers is not up."""
    MISFIT = 1
    """`convert --check`: something does not fit the schema."""
    USAGE = 2
    """Invalid arguments."""
    CANNOT_CONNECT = 3
    """No connection to the server."""
    REFUSED = 4
    """The server returned an error or an invalid response, or requires a login."""
    LOST = 5
    """Timed out, or connection lost. The request may or may not have been executed."""
    CANNOT_WRITE = 6
    """The request succeeded, but the output could not be written."""
    INTERRUPTED = 130
    """Ctrl-C."""
