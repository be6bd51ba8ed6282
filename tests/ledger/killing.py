"""A process that is killed while it publishes: `killing.py ADDRESS FOLDER KILLS SEED KIND`.

Again and again a child reserves, draws, writes files and commits until SIGKILL ends it at a random
moment. KIND `sound` is that order; `late` is a broken twin that reserves after the files are out.
"""

import hashlib
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet  # noqa: F401 - loaded once, before the first fork
import sqlalchemy  # noqa: F401

import subspacedp as sdp
from subspacedp.ledger import invariants_of, open_ledger, spend_of


def publish(ledger, mechanism, table, folder: Path, kind: str) -> None:
    if kind == "late":
        release = mechanism.release(table)
        release.save(folder / release.release_id)
        time.sleep(0.03)
        reservation = ledger.reserve("census", [spend_of(mechanism.mechanism)])
        reservation.drawing()
    else:
        held = [invariants_of(mechanism.mechanism)]
        reservation = ledger.reserve("census", [spend_of(mechanism.mechanism)], held=held)
        reservation.drawing()
        release = mechanism.release(table)
        # The folder names the entry, so that it can be told which entry paid for files.
        release.save(folder / f"{reservation.number}")
    target = folder / (release.release_id if kind == "late" else f"{reservation.number}")
    digest = hashlib.sha256((target / "certificate.json").read_bytes()).hexdigest()
    reservation.commit([release.release_id], target, [digest])


def child(address: str, folder: Path, kind: str, ready: int) -> None:
    domain = sdp.Domain([sdp.Axis("age", ["young", "middle", "old"])])
    table = sdp.Table([5, 7, 8], domain)
    mechanism = sdp.design(domain, sdp.hold(), sdp.PureDP(0.5), decimals=0)
    with open_ledger(address) as ledger:
        publish(ledger, mechanism, table, folder, kind)
        os.write(ready, b"1")
        while True:
            publish(ledger, mechanism, table, folder, kind)


def main() -> None:
    address, folder, kills, seed, kind = sys.argv[1:]
    rng = random.Random(int(seed))
    for _ in range(int(kills)):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            child(address, Path(folder), kind, write)
            os._exit(1)  # the loop ends by SIGKILL alone
        os.close(write)
        # Some are killed before their first publication is complete, the others after it.
        if rng.random() < 0.8:
            select.select([read], [], [], 60)
        time.sleep(rng.uniform(0, 0.1))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(read)
        if not os.WIFSIGNALED(status):
            sys.exit(f"the child ended by itself: {status}")


if __name__ == "__main__":
    main()
