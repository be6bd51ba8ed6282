"""`make bench`: run every benchmark, print the table, write `bench/latest.json`.

`python -m bench blocks --full` takes 10⁹ cells instead of 10⁸.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import (
    blocks,
    campus,
    crossing,
    inference,
    marginals,
    matrix,
    microdata,
    noise,
    optimal,
    plans,
    projection,
    publication,
    second_table,
    startup,
    tabulation,
    whole_release,
    workbench,
)
from bench.timing import Ratio

PARTS = {
    "startup": startup.run,
    "noise": noise.run,
    "projection": projection.run,
    "whole_release": whole_release.run,
    "campus": campus.run,
    "crossing": crossing.run,
    "matrix": matrix.run,
    "inference": inference.run,
    "microdata": microdata.run,
    "optimal": optimal.run,
    "tabulation": tabulation.run,
    "publication": publication.run,
    "plans": plans.run,
    "second_table": second_table.run,
    "marginals": marginals.run,
    "blocks": blocks.run,
    "workbench": workbench.run,
}
LATEST = Path(__file__).with_name("latest.json")


def main(names: list[str]) -> int:
    """Run the named parts, or all; 1 when a target is missed."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"no benchmark `{unknown[0]}`; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    console = Console(highlight=False)
    ratios: list[Ratio] = []
    for name in names or PARTS:
        with console.status(f"measuring {name} …"):
            ratios.extend(PARTS[name]())
    table = Table(box=None, padding=(0, 2))
    for heading in ("what", "ratio", "target", "measured"):
        table.add_column(heading, justify="right" if heading in ("ratio", "target") else "left")
    for ratio in ratios:
        colour = "green" if ratio.met else "bold red"
        data = ratio.as_dict()
        table.add_row(
            ratio.name, f"[{colour}]{data['ratio']:g}[/]", data["target"], f"[dim]{ratio.note}[/]"
        )
    console.print(table)
    known = json.loads(LATEST.read_text("utf-8")) if names and LATEST.exists() else {}
    known.update({ratio.name: ratio.as_dict() for ratio in ratios})
    LATEST.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    return 0 if all(ratio.met for ratio in ratios) else 1


if __name__ == "__main__":
    sys.exit(main([name for name in sys.argv[1:] if name != "--full"]))
