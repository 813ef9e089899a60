"""A command that does not end by itself."""

import os
import signal


def main() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
