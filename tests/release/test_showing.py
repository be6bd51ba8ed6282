"""What people see when they print: figures with labels, to digits that mean something."""

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.errors import DomainError
from subspacedp.mechanisms import estimates

DOMAIN = sdp.Domain([sdp.Axis("sex", [0, 1]), sdp.Axis("place", [f"<p{i}>" for i in range(30)])])
TABLE = sdp.Table(np.arange(60).reshape(2, 30), DOMAIN)


def released(decimals=None, held="sex"):
    mechanism = sdp.design(DOMAIN, sdp.hold(held), sdp.PureDP(1.0), decimals=decimals)
    return mechanism.release(TABLE, seed=1)


def test_a_release_prints_its_first_figures_with_labels_and_intervals():
    release = released(decimals=0)
    title, head, first, *rest = str(release).splitlines()
    assert title == repr(release)
    assert head.split()[:5] == ["sex", "place", "value", "std.", "error"]
    lower, upper = (int(end[0, 0]) for end in release.interval(0.95))
    shown = [int(number) for number in first.split() if number.lstrip("-").isdigit()]
    assert shown == [0, release.values[0, 0], lower, upper]
    assert len(rest) == 10
    assert rest[-1] == "… 50 more"


def test_printed_intervals_are_never_narrower_than_the_intervals():
    estimate = released().margin("place")
    lower, upper = estimate.interval(0.95)
    rows = [line.replace(",", "").split() for line in str(estimate).splitlines()[2:-1]]
    for i, row in enumerate(rows):
        assert lower[i] - 10 < float(row[-2]) <= lower[i] + 1e-6
        assert upper[i] - 1e-6 <= float(row[-1]) < upper[i] + 10


def test_what_is_held_is_printed_as_exact():
    release = released()
    assert str(release.estimate(release.where(sex=0))) == "435 (exact)"
    lines = str(release.margin("sex")).splitlines()
    assert [line.split() for line in lines[2:]] == [["0", "435", "exact"], ["1", "1,335", "exact"]]


def test_one_figure_is_one_line():
    release = released(decimals=0)
    estimate = release.estimate(release.where(place="<p3>"))
    lower, upper = estimate.interval(0.95)
    assert str(estimate) == (
        f"{estimate.value:.0f} (standard error {estimate.stderr:.1f}, "
        f"95 % interval from {lower:.0f} to {upper:.0f})"
    )


def test_a_notebook_shows_the_same_table_and_escapes_labels():
    page = released()._repr_html_()
    assert page.count("<tr>") == 11
    assert "&lt;p0&gt;" in page
    assert "<p0>" not in page


def test_values_in_a_store_are_not_read_to_be_printed(tmp_path):
    mechanism = sdp.design(DOMAIN, sdp.hold(), sdp.PureDP(1.0))
    release = mechanism.release_to(tmp_path / "out", TABLE.counts, store="npy", seed=1)
    assert str(release) == repr(release)
    assert release._repr_html_() is None


@pytest.mark.parametrize(
    ("label", "end"),
    [("1", "; did you mean 1?"), ("<P4>", "; did you mean '<p4>'?"), ("zzzz", ".")],
)
def test_a_label_that_is_not_there_is_answered_with_one_that_is(label, end):
    name = "sex" if label == "1" else "place"
    with pytest.raises(DomainError) as caught:
        released().where(**{name: label})
    assert str(caught.value) == f"`{name}` has no label {label!r}{end}"


def test_a_frame_is_of_the_library_named_or_in_use():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    assert isinstance(released().to_frame(), pandas.DataFrame)
    assert isinstance(released().to_frame("polars"), polars.DataFrame)
    assert released().margin("place").to_frame("pyarrow", level=0.95).num_rows == 30


def test_labels_of_others_move_no_cursor_and_forge_no_line(monkeypatch):
    label = "evil\x1b[1A\x1b[2K\n0  0  exact\x9b2J"
    domain = sdp.Domain([sdp.Axis("place", [label, "b"]), sdp.Axis("sex", ["F", "M"])])
    design = sdp.design(domain, sdp.hold("sex"), sdp.PureDP(1.0), decimals=0)
    release = design.release(sdp.Table([[1, 2], [3, 4]], domain), seed=1)
    for said in (str(release), str(release.margin("place"))):
        assert r"evil\x1b[1A\x1b[2K\n0  0  exact\x9b2J" in said
        assert "\x1b" not in said
    monkeypatch.setattr(estimates, "visible", lambda text: text)
    assert label in str(release)
