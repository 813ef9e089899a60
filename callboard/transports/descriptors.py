"""The descriptors of this process: how many it may have."""

import os
from typing import Final

MOST_DESCRIPTORS: Final = 65_536
"""Descriptors that the process asks for at its start, if the hard limit allows it. No setting needs more, and some
programs close every descriptor up to their limit when they start: a million takes them seconds."""


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard one. Where there is no such limit, do nothing."""
    if os.name != "posix":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # a sandbox may forbid it: then the limit is what it was
            return
