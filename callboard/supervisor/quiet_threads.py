"""Threads beside the loop, of which the main thread's signals keep clear."""

import signal


def leave_signals_to_main() -> None:
    """Have this thread take no signals. Not for a thread that starts processes: they would not take any, either.

    Python handles signals in the main thread. If the system gives one to another thread while the main thread blocks,
    as it may if two come at once, the main thread hears of it only when it goes on.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
