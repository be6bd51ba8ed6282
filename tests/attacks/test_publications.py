"""Whole publications: the same files, to the byte, for inputs that must not be told apart."""

import csv

import numpy as np
import pytest
from tests.attacks.interception import Sampler, intercepted, numbers
from tests.attacks.views import content

pytest.importorskip("ibis", reason="the extra `publish` is not installed")

from subspacedp.publication.running import run

COUNTIES, SEXES = list("abcde"), ["F", "M"]
AXES = {
    "county": {
        "labels": COUNTIES,
        "levels": {"state": {"X": list("abc"), "Y": list("de")}},
        "groupings": {"school": {"N": list("abde")}},  # c is in none
    },
    "sex": {"labels": SEXES},
}
COUNTS = np.arange(10).reshape(5, 2) * 3 + 6
PURE, GAUSSIAN = {"epsilon": 0.8}, {"rho": 0.1}
KINDS = {
    "cells": {
        "hold": [["state"]],
        "privacy": PURE,
        "publish": {"decimals": 0, "margins": [["state", "sex"]], "records": True},
    },
    "limits, records and formats": {
        "hold": [["state"], ["sex"]],
        "inequalities": {"at_most": [{"margin": ["county"], "limit": 60}]},
        "privacy": PURE,
        "publish": {
            "decimals": 0,
            "margins": [["county"]],
            "records": True,
            "formats": ["xlsx", "sdmx-csv"],
        },
    },
    "real values": {
        "hold": [["state"], ["sex"]],
        "privacy": GAUSSIAN,
        "mechanism": "projected",
        "publish": {},
    },
    "margins alone": {
        "hold": [["state"]],
        "privacy": GAUSSIAN,
        "publish": {"decimals": 0, "cells": False, "margins": [["county"], ["state", "sex"]]},
    },
    "classifications that cross": {
        "hold": [["state"], ["school"]],
        "privacy": GAUSSIAN,
        "mechanism": "marginals",
        "publish": {
            "decimals": 0,
            "margins": [["school", "sex"], ["state", "sex"]],
            "formats": ["xlsx", "sdmx-csv"],
        },
    },
    "several tables": {
        "privacy": PURE,
        "publish": {"decimals": 0},
        "tables": {
            "one": {"axes": ["county", "sex"], "hold": [["state"]], "share": 0.5},
            "two": {"axes": ["county"], "hold": [["state"]], "share": 0.5},
        },
    },
}


def rows_of(counts, rng):
    """One record a person."""
    for (i, j), n in np.ndenumerate(counts):
        for k in range(int(n)):
            yield [f"{i}{j}{k}", COUNTIES[i], SEXES[j], int(rng.integers(10**6))]


def published(home, rows, kind, unit, sampler, **data):
    """The files of a publication, and the sentences that were shown while it was made."""
    home.mkdir()
    with (home / "persons.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["person", "county", "sex", "income"], *rows])
    spec = {
        "data": {"source": "persons.csv", "unit": unit, **data},
        "axes": AXES,
        **KINDS[kind],
    }
    sentences = []
    folder = home / "published"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        if sampler is None:
            run(spec, out=folder, seed=1, progress=sentences.append)
        else:
            with intercepted(sampler):
                run(spec, out=folder, seed=1, progress=sentences.append)
    return content(folder), sentences


def moved(counts):
    """The same state and school totals, and the same by sex: what is held does not change."""
    out = counts.copy()
    out[0, 0] += 3
    out[1, 0] -= 3
    out[3, 1] -= 2
    out[4, 1] += 2
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_measurement_and_held_figures_is_published(kind, tmp_path):
    """Noisy integers are the same for other counts, by a sampler that gives them outright."""
    files = []
    for number, counts in enumerate((COUNTS, moved(COUNTS))):
        rows = list(rows_of(counts, np.random.default_rng(1)))
        sampler = Sampler(numbers(7), instead=True)
        files.append(published(tmp_path / str(number), rows, kind, "row", sampler))
    names = set(files[0][0])
    assert any(n.endswith("report.html") for n in names)
    assert any(n.endswith("certificate.json") for n in names)
    assert files[0] == files[1]


def test_other_counts_with_the_same_noise_are_told_apart(tmp_path):
    files = []
    for number, counts in enumerate((COUNTS, moved(COUNTS))):
        rows = list(rows_of(counts, np.random.default_rng(1)))
        files.append(published(tmp_path / str(number), rows, "cells", "row", Sampler(numbers(7))))
    assert files[0][0] != files[1][0]


def regrouped(rng):
    """Two persons of a cell with 3 and 1 records, or with 2 and 2; other names, order, incomes."""
    for split in ((3, 1), (2, 2)):
        rows, person = [], 0
        for (i, j), n in np.ndenumerate(COUNTS):
            for k in range(int(n)):
                person += 1
                name = f"p{int(rng.integers(10**6)):06d}-{person}"
                records = split[k] if k < 2 else 1
                incomes = rng.integers(10**6, size=records).tolist()
                rows += [[name, COUNTIES[i], SEXES[j], income] for income in incomes]
        rng.shuffle(rows)
        yield rows


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "inequalities" not in KINDS[kind]])
def test_equal_bounded_and_full_tables_give_the_same_bytes(kind, tmp_path):
    """Who the records are of, in which order and with what else in them, is seen nowhere."""
    bound = {"records": 1, "key": "public text"}
    files = [
        published(tmp_path / str(number), rows, kind, "person", None, **bound)
        for number, rows in enumerate(regrouped(np.random.default_rng(2)))
    ]
    assert files[0] == files[1]
