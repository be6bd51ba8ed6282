"""`subspacedp demo census`: county populations of 2010, state totals held exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as RichTable

from subspacedp.cli.show import checks_table
from subspacedp.datasets import census2010
from subspacedp.invariants import hold
from subspacedp.mechanisms import Mechanism, design
from subspacedp.privacy import PureDP
from subspacedp.release import Release, check_new_folder, verify_folder
from subspacedp.tables import Table

__all__ = ["run"]

SIZES = [0, 5_000, 20_000, 100_000, 500_000]


def run(out: Path, epsilon: float, decimals: int | None, *, as_json: bool) -> None:
    """Design, release, verify, save, and say what happened."""
    check_new_folder(out)
    table = census2010()
    mechanism = design(table.domain, hold("state"), PureDP(epsilon), decimals=decimals)
    release = mechanism.release(table)
    release.save(out)
    if as_json:
        print(json.dumps(_summary(mechanism, release, table, out), ensure_ascii=False))
        return
    _print(mechanism, release, table, out)


def _summary(mechanism: Mechanism, release: Release, table: Table, out: Path) -> dict[str, Any]:
    errors = release.values - table.counts
    return {
        "held": str(mechanism.design.held),
        "guarantee": release.certificate()["guarantee"],
        "expected_squared_error": mechanism.expected_error().total,
        "seen_squared_error": float(np.sum(errors**2)),
        "by_size": _by_size(errors, mechanism, table),
        "verified": verify_folder(out).ok,
        "folder": str(out),
    }


def _by_size(
    errors: npt.NDArray[Any], mechanism: Mechanism, table: Table
) -> list[dict[str, float | int]]:
    expected = mechanism.expected_error().per_cell
    bins = np.digitize(table.counts, SIZES) - 1
    rows: list[dict[str, float | int]] = []
    for i, least in enumerate(SIZES):
        inside = bins == i
        rows.append(
            {
                "from_population": least,
                "counties": int(inside.sum()),
                "expected_root_mean_square": float(np.sqrt(expected[inside].mean())),
                "seen_root_mean_square": float(np.sqrt(np.mean(errors[inside] ** 2))),
                "seen_mean": float(errors[inside].mean()),
            }
        )
    return rows


def _print(mechanism: Mechanism, release: Release, table: Table, out: Path) -> None:
    console = Console(highlight=False)

    def heading(text: str) -> None:
        console.print(f"\n[bold]{text}[/]")

    def indented(thing: Any) -> None:
        console.print(Padding(thing, (0, 0, 0, 2)))

    summary = _summary(mechanism, release, table, out)
    heading("Population of 3,221 US counties, 2010, with state totals held exact")
    indented(
        f"{mechanism.design.budget}, discrete Laplace noise projected so that every one of the "
        f"{mechanism.design.space.rank} state totals is published exactly."
    )
    heading("What is promised")
    indented(escape(" ".join(mechanism.guarantee.sentences())))
    heading("Error (the data are public, so it can be shown)")
    errors = RichTable(box=None, padding=(0, 2), header_style="dim")
    errors.add_column("population from", justify="right")
    errors.add_column("counties", justify="right")
    errors.add_column("typical error expected", justify="right")
    errors.add_column("seen", justify="right")
    errors.add_column("mean error seen", justify="right")
    for row in summary["by_size"]:
        errors.add_row(
            f"{row['from_population']:,}",
            f"{row['counties']:,}",
            f"{row['expected_root_mean_square']:.1f}",
            f"{row['seen_root_mean_square']:.1f}",
            f"{row['seen_mean']:+.1f}",
        )
    indented(errors)
    indented("[dim]The mean error is noise around 0 in every row: no trend with size.[/]")
    heading("Checks")
    indented(checks_table(verify_folder(out)))
    heading("Files")
    for name, what in (
        ("values.csv", "value and standard error of every county"),
        ("values.parquet", "the same, for programs"),
        ("certificate.json", "the promise, its terms, and what is not protected"),
    ):
        console.print(f"  {escape(str(out / name))}  [dim]{what}[/]", soft_wrap=True)
    console.print(
        f"\nCheck them any time with: subspacedp verify {escape(str(out))}", soft_wrap=True
    )
