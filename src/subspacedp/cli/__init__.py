"""The command line: thin; every verb is a file of its own."""

import atexit
import gc
import os

__all__ = ["main"]

MANY_OBJECTS = 1_000_000  # before garbage is looked for: what is imported is none, and many objects


def main() -> None:
    """Run the command; a bad input ends in one sentence and status 2."""
    gc.set_threshold(MANY_OBJECTS)
    # Nor at the end, when memory is given back at once: files are closed by whoever opened them.
    atexit.register(gc.freeze)
    # For NumPy, before it is loaded: of small matrices a second thread is waited for.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from subspacedp.cli.app import main as run

    run()
