"""Figures from a release: values, standard errors, intervals, covariances and what is refused."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import dense
from tests.mechanisms.contract import exact_projector
from tests.strategies import margins, problems

import subspacedp as sdp
from subspacedp.errors import AlteredError, DomainError, ReleaseError
from subspacedp.mechanisms import estimates
from subspacedp.release import verify_folder

DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", list("abcde"), levels={"state": list("XXXYY")}),
        sdp.Axis("sex", ["F", "M"]),
        sdp.Axis("year", [2000, 2001, 2002]),
    ]
)
COUNTS = np.arange(30).reshape(5, 2, 3) * 7
TABLE = sdp.Table(COUNTS, DOMAIN)
HELD = sdp.hold("state") & sdp.hold("sex", "year")
PURE, GAUSS = sdp.PureDP(0.5), sdp.ApproxDP(1.0, 1e-6)


def make(budget=PURE, decimals=None, held=HELD, **options):
    return sdp.design(DOMAIN, held, budget, decimals=decimals, **options).release(TABLE, seed=5)


RELEASES = {
    "real": lambda: make(),
    "digits": lambda: make(decimals=0),
    "decimals": lambda: make(GAUSS, 2),
    "extended": lambda: make(GAUSS, mechanism="extended"),
    "basis": lambda: make(PURE, mechanism="extended"),
    "general": lambda: make(held=sdp.LinearInvariants(_rows())),
    "zeros": lambda: make(held=HELD & sdp.zeros(COUNTS == 0)),
    "imposed": lambda: imposed(9.0),
}
every = pytest.mark.parametrize("name", RELEASES)


def _rows():
    rows = np.zeros((2, 30), np.int64)
    rows[0, :7], rows[1, 5:12] = 1, 2
    return rows


def imposed(variance):
    rng = np.random.default_rng(4)
    return sdp.impose_on(
        DOMAIN, HELD, lambda x: x + rng.normal(0, 3.0, x.shape), budget=sdp.PureDP(1.0),
        variance=variance,
    ).release(TABLE)  # fmt: skip


# ------------------------------------------------------------------------- shapes and exact values


@every
def test_shapes_and_plain_numbers(name):
    release = RELEASES[name]()
    one = release.estimate(release.where(sex="F", county=["a", "d"]))
    assert isinstance(one.value, float)
    assert isinstance(one.stderr, float)
    assert isinstance(one.fixed, bool)
    assert isinstance(one.margin_of_error(), float)
    assert all(isinstance(end, float) for end in one.interval())
    several = release.estimate(np.stack([release.where(sex="F"), release.where(year=2001)]))
    assert several.value.shape == several.stderr.shape == several.interval()[0].shape == (2,)
    assert release.cells().value.shape == (5, 2, 3)
    assert release.interval()[1].shape == (5, 2, 3)
    assert release.margin("state", "year").value.shape == (2, 3)
    flat = release.estimate(release.where(sex="F", county=["a", "d"]).ravel())
    assert flat.value == one.value
    assert release.estimate(np.zeros((0, 5, 2, 3))).margin_of_error().shape == (0,)


@every
def test_two_ways_to_a_figure_agree(name):
    """A group total as a margin and as a weighted sum; a cell as a cell and as a weight."""
    release = RELEASES[name]()
    by_year = release.margin("year")
    weights = np.stack([release.where(year=y) for y in (2000, 2001, 2002)])
    as_sums = release.estimate(weights)
    assert np.allclose(by_year.value.ravel(), as_sums.value)
    low, high = by_year.stderr.ravel(), as_sums.stderr
    # Roundings that never have anything to decide are counted by the first and not by the second.
    assert np.all(high <= low * (1 + 1e-9))
    if release.mechanism.rounding is None:
        assert np.allclose(low, high, rtol=1e-9)
        a, b = by_year.margin_of_error().ravel(), as_sums.margin_of_error()
        assert np.allclose(a, b, rtol=0.005)
    cells = release.cells()
    some = [(0, 0, 0), (3, 1, 2)]
    eye = np.stack([np.eye(30)[np.ravel_multi_index(i, (5, 2, 3))] for i in some])
    apart = release.estimate(eye.reshape(2, 5, 2, 3))
    assert [cells.value[i] for i in some] == apart.value.tolist()
    assert np.allclose([cells.stderr[i] for i in some], apart.stderr, rtol=1e-9)
    assert np.array_equal(cells.stderr, release.stderr())


@pytest.mark.parametrize("decimals", [None, 0, 2])
@pytest.mark.parametrize("budget", [PURE, GAUSS], ids=repr)
def test_what_is_held_is_exact(budget, decimals):
    release = make(budget, decimals)
    for names in [("state",), ("sex", "year"), ("sex",), ("year",), ()]:
        found = release.margin(*names)
        truth = np.squeeze(DOMAIN.margin(*names).sum(COUNTS))
        assert np.asarray(found.value).tolist() == truth.tolist()
        assert not np.any(found.stderr)
        assert np.all(found.fixed)
        lower, upper = found.interval(0.99)
        assert np.asarray(lower).tolist() == np.asarray(upper).tolist() == truth.tolist()
        assert found.methods() == {"fixed"}
    assert not np.any(release.margin("county").fixed)
    assert release.estimate(release.where(state="X")).stderr == 0.0
    assert release.estimate(release.where(state="X")).value == pytest.approx(COUNTS[:3].sum())


def test_a_single_county_of_a_state_is_fixed_and_its_margin_says_so():
    domain = sdp.Domain([sdp.Axis("c", range(4), levels={"s": list("ABBB")})])
    release = sdp.design(domain, sdp.hold("s"), PURE).release(
        sdp.Table([3, 4, 5, 6], domain), seed=1
    )
    cells = release.cells()
    assert cells.fixed.tolist() == [True, False, False, False]
    assert cells.value[0] == 3
    assert cells.margin_of_error()[0] == 0.0
    assert "1 of them fixed" in repr(cells)


def test_noise_that_mostly_is_0_has_no_margin_of_error_and_is_not_exact():
    release = make(sdp.PureDP(12.0), 0, sdp.hold("state"), mechanism="projected")
    cells = release.cells()
    assert not cells.margin_of_error().any()
    assert not cells.fixed.any()
    assert "exact" not in cells.shown("").text()
    # Designs are compared by what noise there is, not by 0.
    assert cells.mean_squared_margin() == pytest.approx(np.mean(cells.stderr**2))
    held = release.margin("state")
    assert held.fixed.all()
    assert held.mean_squared_margin() == 0.0


def test_margins_of_error_of_whole_figures_are_whole_where_laws_are_simulated():
    designed = sdp.design(DOMAIN, sdp.hold("county") & sdp.hold("sex"), sdp.PureDP(1.0), decimals=0)
    cells = designed.accuracy()
    assert cells.methods() == {"simulated"}
    assert np.array_equal(cells.margin_of_error(), np.rint(cells.margin_of_error()))


# -------------------------------------------------------------------------- against dense algebra


@given(problem=problems(max_axes=3, max_cells=40, max_labels=6), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_covariance_is_that_of_the_dense_projector(problem, seed):
    domain, held = problem
    if sdp.null_space(domain, held).dimension == 0:
        return
    design = sdp.design(domain, held, PURE).mechanism
    weights = np.random.default_rng(seed).normal(size=(3, *domain.shape))
    flat = weights.reshape(3, -1)
    P = dense.float_projector(dense.matrix(domain, held))
    truth = design.law.variance * flat @ P @ flat.T
    found = design.noise.covariance(weights)
    assert np.allclose(found, truth, atol=1e-9 * max(1.0, np.abs(truth).max()))
    assert np.allclose([design.noise.variance(w) for w in weights], np.diag(found), rtol=1e-9)


@given(problem=problems(max_axes=3, max_cells=40, max_labels=6), data=st.data())
@settings(max_examples=40)
def test_margin_standard_errors_are_those_of_the_dense_projector(problem, data):
    domain, held = problem
    if sdp.null_space(domain, held).dimension == 0:
        return
    names = data.draw(margins(domain))
    design = sdp.design(domain, held, PURE).mechanism
    groups = dense.margin_matrix(domain, names)
    P = dense.float_projector(dense.matrix(domain, held))
    truth = np.sqrt(
        np.maximum(design.law.variance * np.einsum("gi,ij,gj->g", groups, P, groups), 0)
    )
    found = design.margin_accuracy(*names)
    assert np.allclose(np.asarray(found.stderr).ravel(), truth, atol=1e-6 * truth.max(initial=1.0))


@pytest.mark.parametrize("decimals", [0, 1])
def test_covariance_with_digits_exceeds_that_without_by_a_nonnegative_matrix(decimals):
    digits, real = make(decimals=decimals), make()
    weights = np.random.default_rng(1).integers(-3, 4, (6, 5, 2, 3))
    more = digits.covariance(weights) - real.covariance(weights)
    assert np.linalg.eigvalsh(more).min() >= -1e-9
    assert np.allclose(
        np.sqrt(np.diag(digits.covariance(weights))), digits.estimate(weights).stderr
    )


def test_one_row_of_weights_has_a_covariance_matrix_too():
    release = make()
    w = release.where(sex="F", county="a")
    assert release.covariance(w).shape == (1, 1)
    assert release.covariance(w)[0, 0] == pytest.approx(release.estimate(w).stderr ** 2)


def test_noise_in_a_basis_has_the_variance_of_the_basis():
    release = make(PURE, mechanism="extended")
    design = release.mechanism
    back = design.basis.back
    w = np.random.default_rng(2).normal(size=(5, 2, 3))
    truth = design.law.variance * float(design.unit) ** 2 * np.sum((back.T @ w.ravel()) ** 2)
    assert release.estimate(w).stderr == pytest.approx(math.sqrt(truth), rel=1e-9)
    P = exact_projector(sdp.design(DOMAIN, HELD, PURE))
    assert np.allclose(back @ back.T, P, atol=1e-6)


def test_the_extended_mechanism_on_unequal_groups_states_no_less_than_each_grid_has():
    release = make(GAUSS, mechanism="extended")
    sigma, d = release.mechanism.law.sigma, release.mechanism.on_margins.denominators
    assert len(np.unique(d)) > 1
    assert np.all(release.stderr() ** 2 >= sigma**2 * exact_diagonal(release) * (1 - 1e-9))
    assert release.cells().methods() == {"smeared"}


def exact_diagonal(release):
    return release.mechanism.space.diagonal()


# ---------------------------------------------------------------------------------- other queries


def test_a_linear_query_with_general_invariants():
    query = sdp.LinearQuery([[1, 2, 0, 1], [0, 1, -1, 0], [1, 1, 1, 1]])
    mechanism = sdp.design(query, sdp.LinearInvariants([[1, 0, 1]]), PURE)
    people = sdp.Domain([sdp.Axis("kind", range(4))])
    release = mechanism.release(sdp.Table([4, 5, 6, 7], people), seed=1)
    P = np.eye(3) - np.array([[1, 0, 1]]).T @ [[1, 0, 1]] / 2
    truth = mechanism.mechanism.law.variance * P
    assert np.allclose(release.covariance(np.eye(3)), truth)
    assert release.estimate([1, 0, 1]).fixed is True
    assert release.estimate([1, 0, 1]).value == pytest.approx(2 * 4 + 3 * 5 + 6 + 2 * 7)
    cells = release.cells()
    assert np.allclose(cells.stderr, np.sqrt(np.diag(truth)))
    assert cells.methods() == {"exact"}
    with pytest.raises(ReleaseError, match="no axes"):
        release.margin("a")


def test_clipped_sums_are_in_units_of_their_values():
    domain = sdp.Domain([sdp.Axis("a", ["x", "y"]), sdp.Axis("b", ["u", "v", "w"])])
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {"a": rng.choice(["x", "y"], 200), "b": rng.choice(["u", "v", "w"], 200),
         "v": rng.integers(0, 21, 200) / 2}
    )  # fmt: skip
    query = sdp.ClippedSums(domain, "v", 0, 10, unit=0.5)
    release = sdp.design(query, sdp.hold("a"), PURE).release(people, seed=1)
    truth = people.groupby("a")["v"].sum()
    assert release.estimate(release.where(a="x")).value == pytest.approx(truth["x"])
    held = release.margin("a")
    assert held.value.ravel().tolist() == truth[["x", "y"]].tolist()
    assert not np.any(held.stderr)
    free = release.margin("b")
    assert np.allclose(free.value.ravel(), release.values.sum(axis=0))
    assert free.stderr.ravel() == pytest.approx(
        math.sqrt(release.mechanism.law.variance * 0.25 * 2 * 2 / 3)
    )


def test_weights_that_the_invariants_fix_but_for_one_part_in_many_are_not_fixed():
    """10¹¹ times the held total plus one cell: the cell's noise is all the error there is."""
    domain = sdp.Domain([sdp.Axis("a", range(4))])
    release = sdp.design(domain, sdp.hold(), PURE).release(sdp.Table([1, 2, 3, 4], domain), seed=1)
    cell = release.estimate([1, 0, 0, 0])
    for many in (1e3, 1e6, 1e9, 1e11):
        almost = release.estimate(np.array([1.0, 0, 0, 0]) + many)
        assert almost.stderr == pytest.approx(cell.stderr, rel=1e-3)


def test_declared_noise_has_chebyshev_intervals_or_none():
    release = imposed(9.0)
    w = release.where(county="a", sex="F")
    found = release.estimate(w)
    P = exact_projector(sdp.design(DOMAIN, HELD, PURE))
    variance = 9.0 * float(w.ravel() @ P @ w.ravel())
    assert found.stderr == pytest.approx(math.sqrt(variance))
    assert found.margin_of_error(0.96) == pytest.approx(math.sqrt(variance / 0.04))
    assert found.methods() == {"Chebyshev"}
    assert release.margin("state").margin_of_error().ravel().tolist() == [0.0, 0.0]
    unknown = imposed(None)
    with pytest.raises(ReleaseError, match="declared without a variance"):
        unknown.estimate(w).interval()
    with pytest.raises(ReleaseError, match="declared without a variance"):
        unknown.interval()
    assert math.isnan(unknown.estimate(w).stderr)


# --------------------------------------------------------------------------------- margins of error


@every
def test_simultaneous_margins_are_bonferronis(name):
    release = RELEASES[name]()
    cells = release.cells()
    free = int(np.count_nonzero(~cells.fixed))
    together = cells.margin_of_error(0.9, simultaneous=True)
    alone = cells.margin_of_error(1 - 0.1 / free)
    assert np.allclose(together, alone, rtol=1e-6)
    assert np.all(together >= cells.margin_of_error(0.9))
    assert np.all((together > 0) == ~cells.fixed)


@every
def test_margins_grow_with_the_level(name):
    cells = RELEASES[name]().cells()
    found = [cells.margin_of_error(level) for level in (0.5, 0.9, 0.95, 0.99, 0.9999)]
    assert all(np.all(a <= b) for a, b in pairwise(found))
    ratio = cells.margin_of_error(0.95, method="normal")[~cells.fixed] / cells.stderr[~cells.fixed]
    assert np.allclose(ratio, 1.959964, rtol=1e-6)


def test_an_interval_is_the_value_and_its_margin():
    cells = make(decimals=0).cells()
    lower, upper = cells.interval(0.9)
    half = cells.margin_of_error(0.9)
    assert np.all(np.abs((upper - lower) / 2 - half) < 1e-6)
    assert np.allclose((upper + lower) / 2, cells.value, rtol=1e-9)
    columns = cells.columns(0.9)
    assert columns["lower"].tolist() == lower.ravel().tolist()
    assert list(columns)[:2] == ["county", "state"]
    frame = cells.to_frame("pandas", level=0.9)
    assert frame["upper"].tolist() == upper.ravel().tolist()
    assert {"state", "value", "stderr"} <= set(make().margin("state").to_frame("pandas").columns)


def test_intervals_of_counts_that_float64_does_not_carry_cover(monkeypatch):
    """Compared as whole numbers; the 60 releases have 12 figures with noise, and two held ones."""
    domain = sdp.Domain([sdp.Axis("a", range(3), levels={"g": [0, 0, 1]}), sdp.Axis("b", range(3))])
    counts = np.array([[2**59 + 12345, 7, 1], [2**60 + 1, 2**58 - 3, 0], [3, 2**57 + 9, 2**53 + 1]])
    design = sdp.design(domain, sdp.hold("g"), sdp.PureDP(1.0), decimals=0)

    def missed():
        out = np.zeros(2)
        for seed in range(60):
            release = design.release(sdp.Table(counts, domain), seed=seed)
            for names in (["a", "b"], ["b"], ["g"]):
                figures, margin = release.margin(*names), domain.margin(*names)
                ends = (np.ravel(end).tolist() for end in figures.interval(0.9))
                for low, high, true, exact in zip(
                    *ends, margin.sum(counts).ravel().tolist(), np.ravel(figures.fixed), strict=True
                ):
                    out[int(exact)] += not int(low) <= true <= int(high)
        return out

    noisy, held = missed()
    assert noisy <= 0.1 * 60 * 12 + 5 * (0.09 * 60 * 12) ** 0.5
    assert held == 0
    monkeypatch.setattr(estimates, "CARRIED", np.inf)  # the twin takes all numbers for exact
    noisy, held = missed()
    assert noisy > 0.3 * 60 * 12
    assert held > 0


def test_accuracy_is_known_before_the_data():
    mechanism = sdp.design(DOMAIN, HELD, PURE)
    release = mechanism.release(TABLE, seed=3)
    w = release.where(sex="F", county="b")
    assert mechanism.accuracy(w).stderr == release.estimate(w).stderr
    assert mechanism.accuracy(w).margin_of_error() == release.estimate(w).margin_of_error()
    a, b = mechanism.margin_accuracy("county"), release.margin("county")
    assert np.array_equal(a.margin_of_error(0.9), b.margin_of_error(0.9))
    assert np.array_equal(mechanism.accuracy().stderr, release.cells().stderr)


def test_too_many_figures_each_with_a_law_of_its_own_are_refused():
    domain = sdp.Domain([sdp.Axis("a", range(30_000))])
    design = sdp.design(domain, sdp.LinearInvariants(np.ones((1, 30_000))), GAUSS).mechanism
    with pytest.raises(ReleaseError, match="out of reach"):
        design.accuracy().margin_of_error()
    assert design.accuracy().margin_of_error(method="normal").shape == (30_000,)


# -------------------------------------------------------------------------------------- on disk


@pytest.mark.parametrize("name", [n for n in RELEASES if n != "imposed"])
def test_a_release_from_disk_answers_the_same(name, tmp_path):
    release = RELEASES[name]()
    release.save(tmp_path / "r")
    loaded = sdp.Release.load(tmp_path / "r")
    w = np.random.default_rng(3).integers(-2, 3, (2, 5, 2, 3))
    a, b = release.estimate(w), loaded.estimate(w)
    assert a.value.tolist() == b.value.tolist()
    assert a.stderr.tolist() == b.stderr.tolist()
    assert a.margin_of_error().tolist() == b.margin_of_error().tolist()
    assert np.array_equal(release.covariance(w), loaded.covariance(w))
    assert np.array_equal(release.cells().stderr, loaded.cells().stderr)
    one, two = release.margin("county"), loaded.margin("county")
    assert one.interval()[0].tolist() == two.interval()[0].tolist()


def test_altered_values_answer_nothing(tmp_path):
    make(decimals=0).save(tmp_path / "r")
    path = tmp_path / "r" / "values.parquet"
    table = pq.read_table(path)
    values = table["value"].to_pylist()
    values[0] += 1
    place = table.column_names.index("value")
    pq.write_table(table.set_column(place, "value", pa.array(values)), path)
    with pytest.raises(AlteredError):
        sdp.Release.load(tmp_path / "r")


def test_an_altered_budget_is_found_by_its_standard_errors(tmp_path):
    """A larger epsilon would make every interval too narrow."""
    make(decimals=0).save(tmp_path / "r")
    path = tmp_path / "r" / "certificate.json"
    text = path.read_text("utf-8")
    assert text.count('"epsilon": 0.5') == 1
    path.write_text(text.replace('"epsilon": 0.5', '"epsilon": 5.0'), "utf-8")
    found = verify_folder(tmp_path / "r")
    assert not found.ok
    assert "stderr" in str(found)


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "weights", [np.ones(7), np.ones((5, 2)), np.ones((2, 2, 5, 2, 3)), np.ones((5, 3, 2)), 1.0]
)
def test_weights_of_a_wrong_shape_are_refused(weights):
    with pytest.raises(ReleaseError, match="must have the shape"):
        make().estimate(weights)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_weights_must_be_finite(bad):
    w = np.ones((5, 2, 3))
    w[1, 1, 1] = bad
    with pytest.raises(ReleaseError, match="finite"):
        make().estimate(w)
    with pytest.raises(ReleaseError, match="finite"):
        make().covariance(w)


@pytest.mark.parametrize("bad", ["ab", [["a"]], object(), [[1, 2], [3]]])
def test_weights_must_be_numbers(bad):
    with pytest.raises(ReleaseError, match="must be real numbers"):
        make().estimate(bad)


@pytest.mark.parametrize("level", [0, 1, 0.0, 1.0, -0.5, 95, math.nan, True, "0.9", None])
def test_levels_are_strictly_between_zero_and_one(level):
    estimate = make().estimate(np.eye(30)[0])
    with pytest.raises(ReleaseError, match="`level` must be"):
        estimate.interval(level)
    with pytest.raises(ReleaseError, match="`level` must be"):
        estimate.margin_of_error(level, simultaneous=True)


def test_methods_are_named():
    with pytest.raises(ReleaseError, match="`method` must be"):
        make().cells().interval(method="bootstrap")


def test_labels_are_checked():
    release = make()
    with pytest.raises(DomainError, match="no axis or level `age`"):
        release.where(age=3)
    with pytest.raises(DomainError, match="`sex` has no label 'X'"):
        release.where(sex=["F", "X"])
    with pytest.raises(DomainError):
        release.margin("age")


def test_an_estimate_says_what_it_is():
    release = make()
    assert repr(release.estimate(release.where(state="X"))).endswith("published exactly)")
    assert "30 figures" in repr(release.cells())
    assert "standard error" in repr(release.estimate(release.where(county="a")))
    assert repr(release.mechanism.accuracy()).startswith("Accuracy(30 figures")


def test_a_margin_takes_a_list_and_extremes_are_refused():
    release = RELEASES["real"]()
    assert np.array_equal(
        release.margin(["state", "year"]).value, release.margin("state", "year").value
    )
    with pytest.raises(sdp.SubspaceDPError, match="named by its levels"):
        release.margin(3)
    for factor in (1e300, 1e-300):
        with pytest.raises(ReleaseError, match="1e-100 to 1e100"):
            release.estimate(release.where(sex="F") * factor)
    with pytest.raises(ReleaseError, match="real numbers"):
        release.estimate(release.where(sex="F") * 1j)
    with pytest.raises(sdp.SubspaceDPError, match="has no label"):
        release.where(county=[["a"]])


@pytest.mark.parametrize("mu", [3.0, 12.0, 30.0])
def test_unequal_groups_never_state_too_little(mu):
    """Rounding to a coarse grid may take variance away; the cell with most stands for all."""
    axis = sdp.Axis("c", range(6), levels={"s": ["a"] * 4 + ["b"] * 2})
    mechanism = sdp.design(
        sdp.Domain([axis]), sdp.hold("s"), sdp.GaussianDP(mu), mechanism="extended"
    )
    table = sdp.Table(np.zeros(6, np.int64), mechanism.mechanism.domain)
    drawn = np.array([mechanism.release(table, seed=s).values for s in range(1500)])
    seen = np.sqrt(np.mean(drawn**2, axis=0))
    assert np.all(mechanism.accuracy().stderr >= seen * 0.85)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("invariants", lambda c: c["invariants"][0].update(values=[1, 2])),
        ("noise.variance", lambda c: c["noise"].update(variance=0.5)),
        ("guarantee.kind", lambda c: c["guarantee"].update(kind="plain")),
    ],
)
def test_an_altered_certificate_does_not_load(tmp_path, part, change):
    import json

    domain = sdp.Domain([sdp.Axis("c", range(4), levels={"s": list("AABB")})])
    release = sdp.design(domain, sdp.hold("s"), PURE).release(
        sdp.Table([3, 4, 5, 6], domain), seed=1
    )
    release.save(tmp_path / "r")
    path = tmp_path / "r" / "certificate.json"
    data = json.loads(path.read_text("utf-8"))
    change(data)
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(sdp.SubspaceDPError, match="altered"):
        sdp.Release.load(tmp_path / "r")
