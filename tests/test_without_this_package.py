"""What the page for readers without the package shows gives the numbers of the package."""

import hashlib
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import subspacedp as sdp
from subspacedp.inference import regress

PAGE = Path(__file__).parents[1] / "docs" / "without-this-package.md"
TOLERANCE = 1e-9

needs_r = pytest.mark.skipif(
    shutil.which("Rscript") is None,
    reason="Rscript is not installed: the R lines of docs/without-this-package.md were NOT run",
)


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


def small_domain():
    states = ["DE", "DE", "DE", "IL", "IL"]
    county = sdp.Axis("county", ["Kent", "New Castle", "Sussex", "Cook", "Lake"],
                      levels={"state": states})  # fmt: skip
    return sdp.Domain([county, sdp.Axis("sex", ["F", "M"])])


def awkward_domain():
    """Codes with leading zeros, a label NA, quotes, commas, and groups that are not together."""
    names = ["01001", "01003", 'a "quoted", one', "Doña Ana", "NA", "07", "7", "TRUE", "1e3"]
    county = sdp.Axis("county", names, levels={"state": ["NA", "DE", "DE"] * 3})
    return sdp.Domain([sdp.Axis("sex", ["F", "M", "X"]), county])


def make(domain, held, budget, **options):
    counts = np.random.default_rng(7).integers(0, 400, domain.shape)
    return sdp.design(domain, held, budget, **options).release(sdp.Table(counts, domain), seed=3)


def make_sums():
    """Sums in units of 1/2: noise and held totals are in these units too."""
    domain, rng = small_domain(), np.random.default_rng(8)
    people = pd.DataFrame({
        "county": rng.choice(domain.axes[0].labels, 300), "sex": rng.choice(["F", "M"], 300),
        "paid": rng.integers(0, 41, 300) / 2,
    })  # fmt: skip
    query = sdp.ClippedSums(domain, "paid", 0, 20, unit=0.5)
    return sdp.design(query, sdp.hold("state"), sdp.PureDP(1.0)).release(people, seed=3)


RELEASES = {
    "sums": make_sums,
    "two margins": lambda **o: make(
        small_domain(), sdp.hold("state") & sdp.hold("sex"), sdp.PureDP(1.0), **o
    ),
    "nested margins": lambda **o: make(
        awkward_domain(), sdp.hold("sex", "state") & sdp.hold("county"), sdp.PureDP(0.3), **o
    ),
    "a redundant margin": lambda **o: make(
        awkward_domain(), sdp.hold("sex", "state") & sdp.hold("state"), sdp.ZCDP(0.02), **o
    ),
    "the total": lambda **o: make(small_domain(), sdp.hold(), sdp.GaussianDP(3.0), **o),
    "nothing": lambda **o: make(small_domain(), None, sdp.ApproxDP(1.0, 1e-6), **o),
}


def wanted_of(release):
    """The numbers of the package under the names that the page gives them."""
    values = np.asarray(release.values, float)
    chosen = release.where(state="DE", sex="F")
    plain = real_valued(release)
    men = release.where(sex="M").reshape(-1)
    place = np.linspace(0, 1, values.size)
    fit = regress(plain, np.column_stack([men, place]))
    half = release.cells().margin_of_error(method="normal").ravel() * 1.96 / 1.959963984540054
    law = release.mechanism.law
    out = {
        "share_good": np.mean(release.stderr() < 0.1 * np.abs(values)),
        "total": release.estimate(chosen).value,
        "total_stderr": plain.estimate(chosen).stderr,
        "tail1": 1 - float(law.cdf(0)().mid()) + float(law.cdf(-1)().mid()),
        "tail6": 1 - float(law.cdf(5)().mid()) + float(law.cdf(-6)().mid()),
    }
    margin = plain.margin("state", "sex").columns()
    out |= {f"margin_value{j}": v for j, v in enumerate(in_file_order(release, margin["value"]))}
    out |= {f"margin_error{j}": v for j, v in enumerate(in_file_order(release, margin["stderr"]))}
    out |= {f"coefficient{j}": b for j, b in enumerate(fit.coefficients)}
    out |= {f"noise{j}": v for j, v in enumerate(fit.noise_covariance.ravel())}
    return out | {f"half{side}{j}": h for side in (0, 1) for j, h in enumerate(half)}


def in_file_order(release, totals):
    """Totals of state by sex in the order in which the cells first name them."""
    labels = release.query.columns()
    pairs = list(zip(labels["state"].tolist(), labels["sex"].tolist(), strict=True))
    margin = release.margin("state", "sex").columns()
    known = dict(zip(zip(margin["state"].tolist(), margin["sex"].tolist(), strict=True),
                     totals.tolist(), strict=True))  # fmt: skip
    return [known[pair] for pair in dict.fromkeys(pairs)]


def real_valued(release):
    """The same release as if nothing had been rounded: what is noise alone."""
    design = release.mechanism
    if design.decimals is None:
        return release
    budget, neighbours = design.budget, design.neighbours
    held = sdp.hold("state") & sdp.hold("sex")  # what the releases with digits below hold
    real = sdp.design(design.domain, held, budget, neighbours=neighbours)
    return sdp.Release(
        mechanism=real.mechanism, values=np.asarray(release.values, float), exact=release.exact,
        release_id=release.release_id, seeded=True, version=release.version,
    )  # fmt: skip


def shared(wanted, run):
    """What a language shows: margins in Python alone, for R there is a package."""
    return {k: v for k, v in wanted.items() if run is run_python or not k.startswith("margin")}


def differing(found, wanted):
    """The names of all numbers that are not those of the package."""
    return [
        name for name, value in wanted.items()
        if not abs(found[name] - value) <= TOLERANCE * max(1.0, abs(value))
    ]  # fmt: skip


def run_python(folder, monkeypatch, change=lambda text: text):
    """Run the page's lines but for those that use the package, and collect their numbers."""
    monkeypatch.chdir(folder)
    space = {}
    shown = [block for block in blocks("python") if "sdp." not in block]
    assert len(shown) == len(blocks("python")) - 2
    for block in shown:
        exec(compile(change(block), str(PAGE), "exec"), space)  # noqa: S102 - our own page
    cells = space["cells"]
    lists = {
        "coefficient": space["coefficients"],
        "noise": space["noise_covariance"].ravel(),
        "half0": cells["value"] - cells["lower"],
        "half1": cells["upper"] - cells["value"],
        "margin_value": space["margin"](["state", "sex"])["value"],
        "margin_error": space["margin"](["state", "sex"])["stderr"],
    }
    names = ["share_good", "total", "total_stderr", "safe_stderr", "bound", "margin_of_error",
             "add_up", "added", "rss"]  # fmt: skip
    out = {name: float(space[name]) for name in names}
    out |= {f"{name}{j}": float(v) for name, values in lists.items() for j, v in enumerate(values)}
    return out | {f"tail{k}": space["tail"](k) for k in (1, 6)}


COLLECT = r"""
show <- function(name, v) cat(sprintf("%s %.17g\n", name, as.numeric(v)), sep = "")
several <- function(name, v) show(paste0(name, seq_along(v) - 1), v)
for (name in c("share_good", "total", "total_stderr", "safe_stderr", "bound", "margin_of_error",
               "add_up", "added", "rss")) show(name, get(name))
several("coefficient", coefficients)
several("noise", t(noise_covariance))
several("half0", cells$value - cells$lower)
several("half1", cells$upper - cells$value)
show("tail1", tail_of(1))
show("tail6", tail_of(6))
"""


def run_r(folder, monkeypatch, change=lambda text: text):
    """The same in R."""
    script = folder / "page.R"
    script.write_text(change("\n".join(blocks("r"))) + COLLECT, "utf-8")
    done = subprocess.run(
        ["Rscript", "--vanilla", "page.R"], cwd=folder, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    return {parts[0]: float(parts[1]) for parts in lines if len(parts) == 2}


RUNNERS = [pytest.param(run_python, id="python"), pytest.param(run_r, id="r", marks=needs_r)]


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("name", RELEASES)
def test_the_lines_give_the_numbers_of_the_package(run, name, tmp_path, monkeypatch):
    release = RELEASES[name]()
    release.save(tmp_path / "release")
    found, wanted = run(tmp_path, monkeypatch), wanted_of(release)
    assert differing(found, shared(wanted, run)) == []
    assert found["add_up"] == 1
    chosen = release.where(state="DE", sex="F")
    estimate = release.estimate(chosen)
    assert found["safe_stderr"] == pytest.approx(estimate.stderr, abs=1e-9)  # nothing rounded
    assert found["bound"] >= estimate.stderr - 1e-9
    fit = regress(release, np.column_stack(
        [release.where(sex="M").reshape(-1), np.linspace(0, 1, release.values.size)]
    ))  # fmt: skip
    assert 0 < fit.noise_share < 1
    assert found["added"] / found["rss"] == pytest.approx(fit.noise_share, rel=1e-9)
    # The 95th of 100 parts of 20,000 draws: within one part with a probability of 1 − 1e-9.
    slack = 0.005 * estimate.stderr
    low, high = estimate.margin_of_error(0.94), estimate.margin_of_error(0.96)
    assert low - slack <= found["margin_of_error"] <= high + slack


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("decimals", [0, 1])
def test_with_digits_the_bound_is_safe(run, decimals, tmp_path, monkeypatch):
    release = RELEASES["two margins"](decimals=decimals)
    release.save(tmp_path / "release")
    found, wanted = run(tmp_path, monkeypatch), wanted_of(release)
    assert differing(found, shared(wanted, run)) == []
    assert found["add_up"] == 1
    stated = release.estimate(release.where(state="DE", sex="F")).stderr
    assert found["total_stderr"] <= stated <= min(found["safe_stderr"], found["bound"])
    assert found["safe_stderr"] <= 1.5 * stated


def test_the_bound_for_digits_is_safe_for_any_weights(tmp_path, monkeypatch):
    release = make(awkward_domain(), sdp.hold("sex", "state") & sdp.hold("county"),
                   sdp.PureDP(4.0), decimals=0)  # fmt: skip
    release.save(tmp_path / "release")
    monkeypatch.chdir(tmp_path)
    space = {}
    for block in (b for b in blocks("python") if "sdp." not in b):
        exec(compile(block, str(PAGE), "exec"), space)  # noqa: S102 - our own page
    rng = np.random.default_rng(5)
    for _ in range(50):
        w = rng.normal(size=release.values.size) * rng.integers(0, 2, release.values.size)
        safe = space["variance"] * (space["inside"](w) ** 2).sum() + space["rounding"](w)
        triangle = (np.abs(w) * space["cells"]["stderr"]).sum()
        stated = release.estimate(w).stderr
        assert stated <= np.sqrt(safe) * (1 + 1e-12)
        assert stated <= triangle * (1 + 1e-12)


@pytest.mark.parametrize("run", RUNNERS)
def test_a_wrong_variance_is_noticed(run, tmp_path, monkeypatch):
    """The broken twin: noise of a variance one part in a million too small."""
    release = RELEASES["two margins"]()
    release.save(tmp_path / "release")
    path = tmp_path / "release" / "certificate.json"
    data = json.loads(path.read_text("utf-8"))
    stated = json.dumps(data["noise"]["variance"])
    text = path.read_text("utf-8")
    assert text.count(stated) == 1
    wrong = json.dumps(data["noise"]["variance"] * (1 - 1e-6))
    path.write_text(text.replace(stated, wrong), "utf-8")
    broken = differing(run(tmp_path, monkeypatch), shared(wanted_of(release), run))
    assert "total_stderr" in broken
    assert "noise8" in broken
    assert "total" not in broken


@pytest.mark.parametrize("run", RUNNERS)
def test_a_forgotten_margin_is_noticed(run, tmp_path, monkeypatch):
    def one_margin(text):
        return text.replace("for by in margins:\n", "for by in margins[:1]:\n").replace(
            "for (by in margins)", "for (by in margins[1])"
        )

    release = RELEASES["two margins"]()
    release.save(tmp_path / "release")
    assert "total_stderr" in differing(
        run(tmp_path, monkeypatch, one_margin), shared(wanted_of(release), run)
    )


@pytest.mark.parametrize("run", RUNNERS)
def test_altered_values_are_noticed(run, tmp_path, monkeypatch):
    release = RELEASES["two margins"]()
    release.save(tmp_path / "release")
    path = tmp_path / "release" / "values.csv"
    lines = path.read_text("utf-8").splitlines()
    parts = lines[1].split(",")
    parts[3] = str(float(parts[3]) + 1)
    path.write_text("\n".join([lines[0], ",".join(parts), *lines[2:]]) + "\n", "utf-8")
    with pytest.raises(AssertionError, match="add_up is not TRUE" if run is run_r else None):
        run(tmp_path, monkeypatch)


@pytest.mark.parametrize("store", ["npy", "parquet", "zarr"])
def test_digests_of_large_tables_are_those_of_the_page(tmp_path, store):
    """The page's functions, on two chunks in several files; its example has the other digest."""
    if store == "zarr":
        pytest.importorskip("zarr")
    text = next(block for block in blocks("python") if "def tree_digest" in block)
    page = {"hashlib": hashlib}
    exec(text[text.index("def plain_digest") : text.index("stated =")], page)  # noqa: S102 - the page's own lines
    side = sdp.Axis("x", range(300))
    domain = sdp.Domain([side, sdp.Axis("y", range(200))])
    design = sdp.design(domain, None, sdp.PureDP(1.0), mechanism="projected", decimals=0)
    counts = np.random.default_rng(1).integers(0, 9, domain.shape)
    release = design.release_to(tmp_path / "release", counts, seed=1, store=store)
    np.save(file := io.BytesIO(), np.ascontiguousarray(release.values))
    certificate = json.loads((tmp_path / "release" / "certificate.json").read_text("utf-8"))
    assert page["tree_digest"](file) == certificate["values"]["sha256"]
    if store == "npy":
        with (tmp_path / "release" / "values.npy").open("rb") as stored:
            assert page["tree_digest"](stored) == certificate["values"]["sha256"]
            assert page["plain_digest"](stored) == page["plain_digest"](file)


def test_the_digest_alone_catches_two_cells_exchanged(tmp_path, monkeypatch):
    """Held totals still add up; only the digest differs."""
    release = RELEASES["nothing"]()
    release.save(tmp_path / "release")
    path = tmp_path / "release" / "values.csv"
    lines = [line.split(",") for line in path.read_text("utf-8").splitlines()]
    lines[1][3], lines[2][3] = lines[2][3], lines[1][3]
    path.write_text("\n".join(",".join(line) for line in lines) + "\n", "utf-8")
    with pytest.raises(AssertionError):
        run_python(tmp_path, monkeypatch)


STATA = next(filter(None, map(shutil.which, ("stata", "stata-se", "stata-mp"))), None)


@pytest.mark.skipif(
    STATA is None,
    reason="Stata is not installed: the do-file of docs/without-this-package.md was NOT run",
)
def test_the_do_file_gives_the_margin(tmp_path):
    release = RELEASES["two margins"]()
    release.save(tmp_path / "release")
    (script,) = re.findall(r'^```stata title="margins.do"\n(.*?)^```', PAGE.read_text("utf-8"),
                           re.M | re.S)  # fmt: skip
    (tmp_path / "margins.do").write_text(script, "utf-8")
    subprocess.run([STATA, "-b", "do", "margins.do"], cwd=tmp_path, timeout=300, check=True)
    table = pd.read_csv(tmp_path / "stata-margin.csv")
    margin = release.margin("state", "sex").to_frame("pandas")
    both = margin.merge(table, on=["state", "sex"])
    assert len(both) == len(margin)
    assert both["total"].to_numpy() == pytest.approx(both["value"].to_numpy(), abs=1e-6)
    assert both["total_stderr"].to_numpy() == pytest.approx(both["stderr"].to_numpy(), abs=1e-6)
