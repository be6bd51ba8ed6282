"""The figures of the demonstrations, drawn by the build of the site from chosen seeds.

`python -m website.figures` draws them into `docs/demonstrations/`, for who reads the pages where
nothing is built. The site has those that its own build drew. They are kept in `build/figures` until
the code changes that draws them.
"""

from __future__ import annotations

import csv
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subspacedp.demo.page import Figure

PLACE = Path("docs") / "demonstrations"
PRACTICE_RUNS = 20  # the pages' tables have 50, which take a minute
SEED = 1


def census_figures() -> list[Figure]:
    """Every county of one release, errors by size of county, and slopes over 1,000 runs."""
    import numpy as np

    from subspacedp.datasets import county_names
    from subspacedp.demo.figures import boxes_figure, california_figure, cartogram, counts_figure
    from subspacedp.demo.study import CensusStudy

    study, names = CensusStudy(0.192, 1000), county_names()
    budgets = (f"ε = {study.epsilon:g}", str(study.matched.mechanism.budget))
    release = study.mechanism.release(study.table, seed=SEED)
    errors = np.asarray(release.values) - study.table.counts
    return [
        cartogram(errors, study.table.counts, study.states, release.stderr()),
        boxes_figure(study.boxed("IL"), names, "Illinois"),
        california_figure(*study.california, names, budgets),
        counts_figure(study.slopes),
    ]


def practice_figures() -> list[Figure]:
    """Bias and squared error by the size of a cell."""
    from studies.practice import PracticeStudy, bias_figure, error_figure

    compared = PracticeStudy(0.192, 20 * PRACTICE_RUNS).comparisons  # one run for every twenty
    return [bias_figure(compared), error_figure(compared)]


def campus_figures() -> list[Figure]:
    """Errors of fifty runs, and hourly curves under both readings."""
    import numpy as np

    from studies.campus import SHOWN, some_curves, variance_figure
    from studies.campus_errors import (
        campus_table,
        day_mechanism,
        expected_quantiles,
        run_errors,
        unit_mechanism,
    )

    table, unit = campus_table(), unit_mechanism()
    made = {
        "an hour, σ = 1": unit,
        "a day, ε = 4": day_mechanism(4.0),
        "a day, ε = 1": day_mechanism(1.0),
    }
    released = {name: one.release(table, seed=SEED).values for name, one in made.items()}
    order = np.argsort(-table.counts.sum(axis=1).ravel(), kind="stable")
    panels = [divmod(int(order[place]), table.counts.shape[2]) for place in SHOWN]
    return [
        variance_figure(run_errors(unit, table, 50, SEED), expected_quantiles(unit)),
        some_curves(table.counts, released, panels),
    ]


def gallery_figures(root: Path) -> list[Figure]:
    """The accuracy gallery, from its table: to compute that takes a minute."""
    from studies.gallery import GalleryRow, gallery_figure

    with (root / PLACE / "gallery.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            GalleryRow(
                query=row["query"],
                law=row["law"],
                mechanism=row["mechanism"],
                error=float(row["error"]) if row["error"] else None,
                times_best=float(row["times_best"]) if row["times_best"] else None,
                proven=row["proven"] == "True",
                refusal=row["refusal"],
            )
            for row in csv.DictReader(file)
        ]
    return [gallery_figure(rows)]


def draw_figures(root: Path, folder: Path) -> None:
    """Draw all of them into a folder, as SVG on white paper."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [*census_figures(), *practice_figures(), *campus_figures(), *gallery_figures(root)]
    for one in drawn:
        one.write(folder)


def figures(root: Path) -> list[Path]:
    """The figures for the site; drawn now unless the last build's code was the same."""
    folder = root / "build" / "figures" / _state(root)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent) as scratch:  # another build may do the same
            draw_figures(root, Path(scratch) / "new")
            if not folder.is_dir():
                (Path(scratch) / "new").rename(folder)
    return sorted(folder.glob("*.svg"))


def _state(root: Path) -> str:
    """A digest of the code that draws, and of what it draws from."""
    code = [path for folder in ("src", "studies") for path in (root / folder).rglob("*.py")]
    sources = [*code, root / PLACE / "gallery.csv", Path(__file__)]
    digest = sha256()
    for path in sorted(sources):
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    here = Path(__file__).parents[1]
    draw_figures(here, here / PLACE)
