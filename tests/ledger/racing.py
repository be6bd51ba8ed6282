"""Processes that race for one account: `racing.py ADDRESS PROCESSES SPENDS KIND`.

KIND `sound` uses the ledger as it is; `unlocked` looks whether there is room in one transaction
and takes it in another. Prints the numbers of the entries that each process was given, as JSON.
"""

import json
import os
import sys
import time

import sqlalchemy  # noqa: F401 - loaded once, before the processes part

from subspacedp.errors import SubspaceDPError
from subspacedp.ledger import Ledger, LimitError, open_ledger
from subspacedp.privacy import PureDP, ReplaceOne
from subspacedp.privacy.composition import Spend

SPEND = Spend(budget=PureDP(0.01), neighbours=ReplaceOne())


class Unlocked(Ledger):
    """The broken twin: what `check` found may be gone when the entry is written."""

    looked = False

    def reserve(self, account, spends, **more):
        self.looked = False
        self.check(account, spends)
        time.sleep(0.01)
        self.looked = True
        return super().reserve(account, spends, **more)

    def _check_room(self, con, row, asked):
        if not self.looked:
            super()._check_room(con, row, asked)


def race(address: str, spends: int, kind: str) -> dict[str, object]:
    ledger = open_ledger(address)
    if kind == "unlocked":
        ledger = Unlocked(ledger._database)
    taken, refused = [], 0
    for turn in range(spends):
        try:
            reservation = ledger.reserve("race", [SPEND], note=f"{os.getpid()} {turn}")
        except LimitError:
            refused += 1
            continue
        taken.append(reservation.number)
        reservation.drawing()
        reservation.commit([f"{reservation.number:032x}"], "folder", ["0" * 64])
    return {"taken": taken, "refused": refused}


def main() -> None:
    address, processes, spends, kind = sys.argv[1:]
    start_read, start_write = os.pipe()
    children = []
    for _ in range(int(processes)):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(start_write)
            os.read(start_read, 1)  # returns when all processes are there
            try:
                answer = race(address, int(spends), kind)
            except SubspaceDPError as error:
                answer = {"error": str(error)}
            os.write(write, json.dumps(answer).encode())
            os._exit(0)
        os.close(write)
        children.append((child, read))
    os.close(start_read)
    os.close(start_write)
    answers = []
    for child, read in children:
        with os.fdopen(read, "rb") as stream:
            answers.append(json.loads(stream.read() or b'{"error": "died"}'))
        os.waitpid(child, 0)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
