"""The package for R reads every kind of release, and gives the figures of this one."""

import csv
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.noise import ReleaseKeys
from subspacedp.noise.words import KEY_BYTES
from subspacedp.release import verify_folder, write_margins
from subspacedp.release.files import write_files
from subspacedp.release.folders import new_folder
from subspacedp.release.signature import (
    new_private_key,
    read_private_key,
    sign_folder,
    write_digests,
)
from subspacedp.release.successor import note_successor
from tests.blocks.tables import digest_of
from tests.release.fitted import FITTED

PACKAGE = Path(__file__).parents[1] / "r"
EXAMPLE = PACKAGE / "inst" / "extdata" / "release"

pytestmark = pytest.mark.skipif(
    shutil.which("Rscript") is None
    or subprocess.run(
        ["Rscript", "--vanilla", "-e", "stopifnot(requireNamespace('jsonlite'))"],
        capture_output=True, check=False,
    ).returncode != 0,
    reason="R with jsonlite is not installed: the package in r/ was NOT run or checked",
)  # fmt: skip


def counts_on(domain, seed=3):
    return np.random.default_rng(seed).integers(0, 50, domain.shape)


TREE = sdp.Domain(
    [
        sdp.Axis(
            "county", [f"0{i}" for i in range(9)],
            levels={"state": list("AAABBBBCC"), "region": list("XXXXXXXYY")},
        ),
        sdp.Axis("sex", ["F", "NA"]),
        sdp.Axis("age", range(5), levels={"old": ["y", "y", "y", "o", "o"]}),
    ]
)  # fmt: skip
ZEROS = np.arange(90).reshape(TREE.shape) % 11 == 3
TABLES = sdp.Marginals(margins=[["state", "sex"], ["region", "old"], ["county"]])
SEVERAL = sdp.Margins(TREE, [["state", "sex"], ["region", "old"], ["county", "sex"]])
ROWS = sdp.LinearInvariants(np.stack([np.arange(90) % 3, (np.arange(90) % 5 == 0) * 2]))
STATE_SEX = sdp.hold("state", "sex")

WITH_DATA = {
    "a tree": lambda: sdp.design(TREE, sdp.hold("state"), sdp.ZCDP(0.1), mechanism=TABLES),
    "a tree with digits": lambda: sdp.design(
        TREE, sdp.hold("state") & sdp.hold("sex"), sdp.ZCDP(0.1), decimals=0, mechanism=TABLES
    ),
    "tables of a tree": lambda: sdp.design(
        TREE, sdp.hold("region"), sdp.PureDP(1.0), mechanism=TABLES
    ),
    "several margins": lambda: sdp.design(SEVERAL, sdp.hold("state"), sdp.ZCDP(0.1), decimals=1),
    "several margins, pure": lambda: sdp.design(SEVERAL, sdp.hold("region"), sdp.PureDP(1.0)),
    "empty cells": lambda: sdp.design(
        TREE, sdp.hold("region") & sdp.zeros(ZEROS), sdp.ZCDP(0.1),
        mechanism=sdp.Marginals(margins=[["state", "sex"], ["county"]]),
    ),
    "nested margins with digits": lambda: sdp.design(
        TREE, STATE_SEX & sdp.hold("county") & sdp.hold("age"), sdp.PureDP(0.5), decimals=1
    ),
    "a small table": lambda: sdp.design(
        TREE, STATE_SEX & sdp.hold("county"), sdp.PureDP(4.0), decimals=0
    ),
    "rows with digits": lambda: sdp.design(TREE, ROWS, sdp.PureDP(0.5), decimals=1),
    "extended": lambda: sdp.design(
        TREE, STATE_SEX & sdp.hold("age"), sdp.ZCDP(0.5), mechanism="extended"
    ),
}  # fmt: skip


def release_of(name):
    """With data where that shows more; otherwise of the empty table."""
    if name in WITH_DATA:
        counts = counts_on(TREE) * ~ZEROS if name == "empty cells" else counts_on(TREE)
        return WITH_DATA[name]().release(sdp.Table(counts, TREE), seed=2)
    design = FITTED[name]()
    nothing = design.mechanism.nothing()
    keys = ReleaseKeys(bytes(KEY_BYTES), "0" * 32, design.mechanism.context)
    return design.release_with(keys, nothing, nothing, seeded=True)


PLACE = sdp.Axis(
    "block", list("abcdefgh"), levels={"county": list("xxxxyyyy")},
    groupings={"school": ["N", "N", "M", "M", "M", None, "S", "S"], "grid": [1, 2] * 4},
)  # fmt: skip
CROSSED = sdp.Domain([PLACE, sdp.Axis("sex", ["F", "M"])])
LEVELS = sdp.Marginals(margins=[["county"], ["school"], ["grid", "sex"]])


@pytest.mark.parametrize(
    ("held", "budget", "decimals"),
    [
        (sdp.hold("county"), sdp.ZCDP(0.3), None),
        (sdp.hold("school"), sdp.PureDP(1.0), None),
        (sdp.hold("school") & sdp.hold("grid"), sdp.ZCDP(0.3), 0),
    ],
)
def test_levels_that_cross(tmp_path, held, budget, decimals, monkeypatch):
    design = sdp.design(CROSSED, held, budget, mechanism=LEVELS, decimals=decimals)
    release = design.release(sdp.Table(counts_on(CROSSED), CROSSED), seed=2)
    release.save(tmp_path / "one")
    weights = [release.where(grid=1), release.where(school="M", sex="F"), release.where(block="f")]
    np.savetxt(tmp_path / "one.weights.csv", [w.ravel() for w in weights], delimiter=",")
    *told, verified = run_r(COMPARE, tmp_path)
    for w, (_, value, stderr, half, _) in zip(weights, told, strict=True):
        estimate = release.estimate(w)
        low, high = estimate.interval(0.95)
        assert float(value) == pytest.approx(float(estimate.value), abs=1e-9)
        assert float(stderr) == pytest.approx(float(estimate.stderr), rel=1e-9, abs=1e-9)
        assert float(half) == pytest.approx(float(high - low) / 2, rel=0.3, abs=1e-6)
    assert verified[-1] == "TRUE"
    monkeypatch.setattr("subspacedp.mechanisms.marginals.error_model.MOST_STATED", 10)
    release.save(tmp_path / "large")
    shutil.rmtree(tmp_path / "one")
    shutil.copy(tmp_path / "one.weights.csv", tmp_path / "large.weights.csv")
    with pytest.raises(AssertionError, match="Levels cross in this large table"):
        run_r(COMPARE, tmp_path)


NAMES = [*WITH_DATA, *(name for name in FITTED if not name.startswith("imposed"))]

COMPARE = r"""
for (file in list.files(file.path(package, "R"), full.names = TRUE)) source(file)
folders <- list.dirs(".", recursive = FALSE)
for (folder in folders) {
  release <- read_release(folder)
  weights <- as.matrix(read.csv(file.path(folder, "..", paste0(basename(folder), ".weights.csv")),
                                header = FALSE))
  for (i in seq_len(nrow(weights))) {
    found <- estimate(release, weights[i, ])
    ends <- interval(found)
    cat(sprintf("%s\t%.17g\t%.17g\t%.17g\t%s\n", basename(folder), found$value, found$stderr,
                diff(ends) / 2, attr(ends, "method")))
  }
  checks <- verify(release)
  cat(sprintf("%s\tverify\t%s\n", basename(folder), all(checks$ok)))
}
"""


def run_r(script, folder, *, change=lambda text: text):
    text = change(f"package <- {json.dumps(str(PACKAGE))}\n{script}")
    (folder / "script.R").write_text(text, "utf-8")
    done = subprocess.run(
        ["Rscript", "--vanilla", "script.R"], cwd=folder, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """For every release the sums of the package and those of R."""
    folder = tmp_path_factory.mktemp("releases")
    rng = np.random.default_rng(9)
    wanted = {}
    for name in NAMES:
        release = release_of(name)
        release.save(folder / name)
        size = release.mechanism.query.size
        rows = [np.ones(size), rng.integers(0, 2, size), rng.normal(size=size), np.eye(size)[-1]]
        with (folder / f"{name}.weights.csv").open("w", newline="") as file:
            csv.writer(file).writerows([[repr(float(w)) for w in row] for row in rows])
        wanted[name] = [release.estimate(np.reshape(row, release.query.shape)) for row in rows]
    found = {name: [] for name in NAMES}
    verified = {}
    for name, *line in run_r(COMPARE, folder):
        if line[0] == "verify":
            verified[name] = line[1] == "TRUE"
        else:
            found[name].append((*map(float, line[:3]), line[3]))
    return wanted, found, verified, folder


@pytest.mark.parametrize("name", NAMES)
def test_values_and_standard_errors_are_those_of_this_package(compared, name):
    wanted, found, verified, _ = compared
    assert len(found[name]) == len(wanted[name]) == 4
    assert verified[name]
    for one, (value, stderr, _, _) in zip(wanted[name], found[name], strict=True):
        assert stderr == pytest.approx(one.stderr, rel=1e-9, abs=1e-9)
        assert value == pytest.approx(one.value, rel=1e-9, abs=1e-9)


def test_all_mechanisms_are_compared():
    mechanisms = {release_of(name).mechanism.name for name in NAMES}
    assert mechanisms == {FITTED[name]().mechanism.name for name in FITTED} - {"imposed"}


@pytest.mark.parametrize("name", NAMES)
def test_intervals_are_exact_or_say_that_they_are_not(compared, name):
    """Either may be wider than it must by about 0.6 % of a standard error, off a lattice."""
    wanted, found, _, _ = compared
    for one, (_, stderr, half, method) in zip(wanted[name], found[name], strict=True):
        exact = one.margin_of_error(0.95)
        if method == "exact":
            below = 1e-6 if one.methods() == {"exact"} else 0.012
            assert exact - below * stderr <= half <= exact + 0.012 * stderr
        elif method == "normal":
            assert half == pytest.approx(1.959963984540054 * stderr, rel=1e-12)
        else:
            assert (method, half, stderr) == ("fixed", 0.0, 0.0)
    if FITTED.get(name) and name.startswith(("projected linear", "correlated", "optimal")):
        assert {method for *_, method in found[name]} <= {"exact", "fixed"}


def test_on_a_lattice_intervals_are_the_same(compared):
    wanted, found, _, _ = compared
    same, different = 0, set()
    for name in NAMES:
        for one, (_, stderr, half, method) in zip(wanted[name], found[name], strict=True):
            if method == "exact" and one.methods() == {"exact"}:
                if abs(half - one.margin_of_error(0.95)) < 1e-6 * stderr:
                    same += 1
                else:
                    different.add(name)
    assert same >= 20
    # Decimal coefficients: on a lattice finer than R looks for.
    assert different <= {"projected real row"}


def test_wrong_noise_is_noticed(compared):
    """The broken twin: the mean of one held margin too few is subtracted."""
    wanted, _, _, folder = compared
    forgets = "for (by in noise$margins)", "for (by in noise$margins[-1])"
    code = (PACKAGE / "R" / "error-model.R").read_text("utf-8")
    assert code.count(forgets[0]) == 1
    twin = folder / "twin.R"
    twin.write_text(code.replace(*forgets), "utf-8")

    def with_twin(text):
        marked = text.replace("folders <-", 'source("twin.R")\nfolders <-', 1)
        return marked.replace('list.dirs(".", recursive = FALSE)', '"./a small table"')

    lines = run_r(COMPARE, folder, change=with_twin)
    errors = [float(line[2]) for line in lines if line[1] != "verify"]
    pairs = zip(errors, wanted["a small table"], strict=True)
    assert any(abs(error - one.stderr) > 1e-3 for error, one in pairs)


MARGINS = r"""
for (file in list.files(file.path(package, "R"), full.names = TRUE)) source(file)
release <- read_release("release")
show <- function(x) {
  numbers <- lapply(x[c("value", "stderr", "lower")], function(v) sprintf("%.17g", v))
  cat(paste0(do.call(paste, c(x[1:2], numbers, attr(x, "method")[1], sep = "\t")), "\n"), sep = "")
}
show(margin(release, "state", "sex"))
show(margin(release, "region", "sex"))
"""


def test_margins_are_read_or_worked_out(tmp_path):
    release = release_of("nested margins with digits")
    with new_folder(tmp_path / "release") as folder:
        write_files(release, folder)
        write_margins(release, [["state", "sex"]], folder)
        write_digests(folder)
    lines = run_r(MARGINS, tmp_path)
    for start, names in ((0, ("state", "sex")), (6, ("region", "sex"))):
        table = release.margin(*names).columns(0.95)
        for i, line in enumerate(lines[start : start + len(table["value"])]):
            assert line[:2] == [table[name][i] for name in names]
            assert float(line[2]) == pytest.approx(table["value"][i], abs=1e-9)
            assert float(line[3]) == pytest.approx(table["stderr"][i], abs=1e-9)
            if not start:
                assert float(line[4]) == table["lower"][i]
            assert line[5].strip() == ("published" if not start else "fixed")


def test_a_store_of_numpy_is_read(tmp_path):
    design = FITTED["projected nothing held"]()
    counts = np.arange(6).reshape(3, 2) * 2**33
    release = design.release_to(tmp_path / "release", counts, seed=1, store="npy")
    script = (
        MARGINS.split("show <-", maxsplit=1)[0] + 'cat(sprintf("%.0f\\n", release$figures$value))'
    )
    found = [int(line[0]) for line in run_r(script, tmp_path)]
    assert found == np.asarray(release.values).ravel().tolist()


def test_digests_in_two_levels_are_checked(tmp_path):
    """Of a folder, as it is and with one bit changed; and of a file of several chunks."""
    design = FITTED["projected nothing held"]()
    counts = np.arange(6).reshape(3, 2)
    for name in ("release", "altered"):
        design.release_to(tmp_path / name, counts, seed=1, store="npy")
    with (tmp_path / "altered" / "values.npy").open("r+b") as file:
        file.seek(130)
        file.write(b"\x07")
    content = np.random.default_rng(1).bytes(2 * 2**18 + 9)
    (tmp_path / "large").write_bytes(content)
    script = (
        MARGINS.split("release <-", maxsplit=1)[0]
        + """for (folder in c("release", "altered")) {
  checks <- verify(folder)
  cat(checks$ok[checks$check == "digests"], "\\n")
}
cat(tree_file("large"), "\\n")
"""
    )
    lines = [line[0].strip() for line in run_r(script, tmp_path)]
    assert lines == ["TRUE", "FALSE", digest_of(content, tree=True)]


def test_signed_and_replaced_releases_are_checked(tmp_path):
    """As they are; with an altered file; and with a note that is about another release."""
    new_private_key(tmp_path / "key.pem")
    key = read_private_key(tmp_path / "key.pem")
    design = FITTED["projected nothing held"]()
    table = sdp.Table(np.arange(6).reshape(3, 2), design.mechanism.domain)
    for name, seed in (("release", 1), ("newer", 2)):
        release = design.release(table, seed=seed)
        with new_folder(tmp_path / name) as folder:
            write_files(release, folder)
            sign_folder(folder, key)
    note_successor(tmp_path / "release", tmp_path / "newer", key)
    shutil.copytree(tmp_path / "release", tmp_path / "altered")
    with (tmp_path / "altered" / "values.csv").open("a", encoding="utf-8") as file:
        file.write("\n")
    shutil.copy(tmp_path / "release" / "replaced-by.json", tmp_path / "newer")
    script = (
        MARGINS.split("release <-", maxsplit=1)[0]
        + """for (folder in c("release", "altered", "newer")) {
  checks <- verify(folder)
  cat(checks$ok[checks$check %in% c("replaced", "digests")], "\n")
}
"""
    )
    assert [line[0].strip() for line in run_r(script, tmp_path)] == [
        "TRUE TRUE",
        "TRUE FALSE",
        "FALSE TRUE",
    ]


def test_of_another_store_there_are_standard_errors(tmp_path):
    design = FITTED["projected nothing held"]()
    release = design.release_to(
        tmp_path / "release", np.arange(6).reshape(3, 2), seed=1, store="parquet"
    )
    script = MARGINS.split("show <-", maxsplit=1)[0] + (
        "one <- estimate(release, c(1, 1, 0, 0, 0, 0))\n"
        'cat(sprintf("%.17g\\t%s\\t%s\\n", one$stderr, is.na(one$value), all(verify(release)$ok)))'
    )
    ((stderr, missing, ok),) = run_r(script, tmp_path)
    assert (missing, ok) == ("TRUE", "TRUE")
    wanted = release.estimate(np.array([[1.0, 1], [0, 0], [0, 0]])).stderr
    assert float(stderr) == pytest.approx(wanted, rel=1e-9)


def test_the_example_is_a_release():
    assert verify_folder(EXAMPLE).ok
    assert 'for_publication": false' in (EXAMPLE / "certificate.json").read_text("utf-8")


def test_r_cmd_check_has_nothing_to_say(tmp_path):
    """Built, installed, examples, tests and vignette run; without errors, warnings or notes."""
    library = tmp_path / "library"
    library.mkdir()
    sources = tmp_path / "r"
    shutil.copytree(PACKAGE, sources)
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8",
        "R_LIBS": str(library), "_R_CHECK_CRAN_INCOMING_": "false",
    }  # fmt: skip

    def run(*command):
        done = subprocess.run(
            ["R", "CMD", *command], cwd=tmp_path, capture_output=True, text=True, timeout=400,
            check=False, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("INSTALL", "-l", str(library), "r")  # its own vignette engine has to be there to build it
    run("build", "r")
    (archive,) = tmp_path.glob("subspacedp_*.tar.gz")
    said = run("check", "--no-manual", archive.name)
    assert "Status: OK" in said, said
