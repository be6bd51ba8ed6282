"""Pages of tables with noise for their levels, and of margins whose table is never built."""

from __future__ import annotations

from functools import reduce
from operator import and_

import numpy as np
import pytest
from tests.report.conftest import HOSTILE, margins_alone, with_levels
from tests.report.test_content import embedded, words

import subspacedp as sdp
from subspacedp.report import ReportNotes, write_report
from subspacedp.report.words import facts as headline


@pytest.fixture(scope="module", params=[sdp.PureDP(0.5), sdp.ZCDP(0.05)], ids=str)
def budget(request: pytest.FixtureRequest) -> sdp.Budget:
    found: sdp.Budget = request.param
    return found


@pytest.fixture(scope="module")
def nested(table: sdp.Table, budget: sdp.Budget) -> sdp.Release:
    return with_levels(table, budget)


@pytest.fixture(scope="module")
def margins(table: sdp.Table, budget: sdp.Budget) -> sdp.Release:
    return margins_alone(table, budget)


def test_noise_for_levels_has_a_picture_of_every_table(nested: sdp.Release) -> None:
    page = write_report(nested, title="Counties")
    text = words(page)
    assert "Error by table" in text
    assert "this release noise on the cells alone" in text
    errors = [nested.stderr(), nested.margin("state", "sex").stderr]
    here = [float(np.sqrt(np.mean(np.square(stderr)))) for stderr in errors]
    digits = 2 if max(here) < 10 else 1
    for name, figures, error in zip(("county × sex", "state × sex"), (120, 6), here, strict=True):
        assert f"{name} {figures} {error:.{digits}f} " in text
    assert "Error of every margin" not in page


def test_another_release_has_no_such_picture(page: str) -> None:
    assert "Error by table" not in page
    assert "Error of every margin" not in page


def test_margins_have_a_table_of_their_errors(margins: sdp.Release) -> None:
    page = write_report(margins, title="Counties")
    text = words(page)
    for part in (
        "66 figures",
        "The margins county; state × sex. A table of all cells is not published",
        "Every state total: exact, without noise, and not protected.",
        "In at least half of the figures the noise is at most this, in 19 of 20 cases.",
        "margin figures exact median value off by at most, in 19 of 20 cases standard error weight",
        "All 4 hold",
        "margins agree with each other",
        "margin the margin of the row, by its levels",
    ):
        assert part in text, part
    assert "every cell" not in text
    stderr = margins.margin("county").stderr
    assert f"county 60 0 {np.median(margins.margin('county').value):,.0f} " in text
    assert f"{stderr.min():,.1f}" in text or f"{stderr.min():,.2f}" in text


def test_every_figure_of_the_margins_is_in_the_table(margins: sdp.Release) -> None:
    (data,) = embedded(write_report(margins, title="Counties"), "margins")
    numbers = {c["name"]: c["values"] for c in data["numbers"]}
    assert numbers["value"] == margins.values.tolist()
    assert numbers["stderr"] == margins.stderr().tolist()
    labels = {c["name"]: [c["texts"][code] for code in c["codes"]] for c in data["labels"]}
    assert labels["margin"] == ["county"] * 60 + ["state × sex"] * 6
    assert labels["group"][60:62] == ["DE · F", "DE · M"]
    assert labels["group"][0] == "DE county 0"


def test_many_axes_and_margins_stay_readable() -> None:
    axes = [sdp.Axis(f"q{i}", range(40)) for i in range(20)]
    domain = sdp.Domain(axes)
    pairs = [[f"q{i}", f"q{i + 1}"] for i in range(19)]
    rng = np.random.default_rng(1)
    people = rng.integers(0, 40, (500, 20))
    tables = {
        (f"q{i}", f"q{i + 1}"): np.histogramdd(people[:, i : i + 2], [range(41)] * 2)[0]
        for i in range(19)
    }
    mechanism = sdp.design(
        sdp.Margins(domain, pairs), sdp.hold("q0"), sdp.ZCDP(0.5), mechanism="auto"
    )
    release = mechanism.release(sdp.MarginTables(domain, tables), seed=1)
    notes = ReportNotes(margins={"release": pairs})
    page = write_report(release, title="Questions", notes=notes)
    text = words(page)
    assert "This table has 3 of 19 margins, as many as fit on a page; the files have all." in text
    assert "and 13 more. A table of all cells" in text
    assert len(page) < 3_000_000


def test_hostile_names_of_margins_and_levels_are_text() -> None:
    axis = sdp.Axis("<b>place</b>", HOSTILE, levels={"</script>": list("aabbcc")})
    domain = sdp.Domain([axis, sdp.Axis("sex", ["F", "M"])])
    table = sdp.Table(np.arange(12).reshape(6, 2) * 100, domain)
    workload = sdp.Margins(domain, [["<b>place</b>"], ["</script>", "sex"]])
    for release in (
        sdp.design(workload, None, sdp.PureDP(1.0), mechanism="auto").release(table, seed=1),
        sdp.design(domain, None, sdp.PureDP(1.0), mechanism="marginals").release(table, seed=1),
    ):
        page = write_report(release, title="Places")
        assert "<b>place" not in page
        assert page.count("</script>") == page.count("<script")


def test_the_headline_names_no_more_than_anybody_reads() -> None:
    domain = sdp.Domain([sdp.Axis(f"q{i}", ["a", "b"]) for i in range(9)])
    held = reduce(and_, (sdp.hold(f"q{i}") for i in range(9)))
    query = sdp.Margins(domain, [[f"q{i}", f"q{i + 1}"] for i in range(8)])
    tables = {(f"q{i}", f"q{i + 1}"): np.full((2, 2), 5) for i in range(8)}
    mechanism = sdp.design(query, held, sdp.ZCDP(0.5), mechanism="auto")
    release = mechanism.release(sdp.MarginTables(domain, tables), seed=1)
    facts = {fact.name: fact.meaning for fact in headline(release, "1")}
    assert facts["Published"].endswith("q5 (2 labels) and 3 more.")
    assert "every q5 total and 3 more: exact" in facts["Published exactly"]
