"""`python -m tests.golden`: freeze a seeded choice of cases, the same number of every mechanism."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from tests.golden.cases import MECHANISMS, all_cases, fingerprint

ACCEPTED, REFUSED = 50, 5  # of every mechanism
FROZEN = Path(__file__).with_name("frozen.json")


def main() -> None:
    rng = np.random.default_rng(2026)
    cases = list(all_cases())
    out = []
    for name in MECHANISMS:
        own = [case for case in cases if case.mechanism == name]
        left = {False: ACCEPTED, True: REFUSED}
        for i in rng.permutation(len(own)).tolist():
            found = fingerprint(own[i])
            if left["refused" in found] > 0:
                left["refused" in found] -= 1
                out.append({"case": asdict(own[i]), "fingerprint": found})
            if not any(left.values()):
                break
    FROZEN.write_text(json.dumps(out, indent=1) + "\n", "utf-8")
    print(f"{len(out)} cases")


if __name__ == "__main__":
    main()
