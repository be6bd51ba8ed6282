"""A release in blocks that is killed: `stream_killing.py SOURCE FOLDER STORE MOMENT`.

MOMENT is the number of a report of progress, or a step of the commit: SIGKILL ends the process
there, or nothing does when it is `never`.
"""

import os
import signal
import sys
from pathlib import Path

from tests.distributed.streams import mechanism

from subspacedp import distributed
from subspacedp.distributed import commit, resume


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(source: str, folder: str, store: str, moment: str) -> None:
    reports = 0

    def tell(progress: distributed.Progress) -> None:
        nonlocal reports
        reports += 1
        if moment == str(reports):
            die()

    destroy, place = commit.destroy_key, resume.put_in_place
    if moment == "before the key is destroyed":
        commit.destroy_key = lambda folder: die()
    if moment == "after the key is destroyed":
        commit.destroy_key = lambda folder: (destroy(folder), die())
    if moment == "before it is in place":
        rename = os.rename
        os.rename = lambda a, b: die() if str(b) == folder else rename(a, b)
    if moment == "when others may read it":
        chmod = Path.chmod
        Path.chmod = lambda path, mode: (chmod(path, mode), die())
    if moment == "after it is in place":
        resume.put_in_place = lambda target: (place(target), die())
    if moment == "within a line of the journal":
        write = os.write

        def half(file: int, data: bytes) -> int:
            if data.startswith(b"5 "):
                write(file, data[:20])
                die()
            return write(file, data)

        os.write = half
    distributed.stream_release(
        mechanism(), source, folder, store=store, seed=7, block_cells=5_000, resume=True,
        progress=tell,
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
