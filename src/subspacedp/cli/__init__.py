"""The command line: thin; every verb is a file of its own."""

import atexit
import gc
import os
import sys

__all__ = ["main"]

MANY_OBJECTS = 1_000_000  # before garbage is looked for: what is imported is none, and many objects


def _leave() -> None:
    """Look for no garbage at the end: memory is given back at once, and files were closed.

    The bindings of DuckDB count what is left of them, and say so.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()


def main() -> None:
    """Run the command; a bad input ends in one sentence and status 2."""
    gc.set_threshold(MANY_OBJECTS)
    atexit.register(_leave)
    # For NumPy, before it is loaded: of small matrices a second thread is waited for.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from subspacedp.cli.app import main as run

    run()
