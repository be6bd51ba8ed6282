"""Drawings as text: where marks stand, and that any label makes a drawing."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.report.charts import WIDTH, estimates_chart
from subspacedp.report.plots import (
    ACCENT,
    Look,
    Plot,
    bands,
    drawing,
    fitted,
    linear,
    on_paper,
    powers,
    short,
)
from subspacedp.report.rows import cell_estimates

HOSTILE = ["<script>alert(1)</script>", "a\"b'c", "&amp;", "\x00\x08 \ud800 \ufffe", "", "é" * 300]


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(on_paper(svg))  # noqa: S314 - our own


def lines(svg: str) -> list[dict[str, float]]:
    """The lines in the colour of intervals."""
    return [
        {name: float(part.attrib[name]) for name in ("x1", "x2", "y1", "y2")}
        for part in parsed(svg).iter()
        if part.tag.endswith("line") and part.attrib["stroke"] == ACCENT
    ]


def one_axis(counts: list[int]) -> sdp.Release:
    domain = sdp.Domain([sdp.Axis("place", [f"p{i}" for i in range(len(counts))])])
    table = sdp.Table(counts, domain)
    return sdp.design(domain, None, sdp.PureDP(0.5), decimals=0).release(table, seed=1)


def charted(counts: list[int], width: int = WIDTH) -> tuple[str, sdp.Release]:
    release = one_axis(counts)
    labels = [f"p{i}" for i in range(len(counts))]
    chart = estimates_chart(labels, cell_estimates(release), "Every place", (0, 1))
    return chart.svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1), release


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 10, ["0", "2", "4", "6", "8", "10"]),
        (-150, 150, ["−150", "−100", "−50", "0", "50", "100", "150"]),
        (0.84, 0.98, ["0.86", "0.88", "0.9", "0.92", "0.94", "0.96", "0.98"]),
        (0, 7_000_000, ["0", "1M", "2M", "3M", "4M", "5M", "6M", "7M"]),
    ],
)
def test_ticks_are_round_and_within_the_axis(low, high, ticks):
    axis = linear(low, high, number=6)
    assert [text for _, text in axis.ticks][-len(ticks) :] == ticks
    assert all(0 <= axis.place(value) <= 1 + 1e-12 for value, _ in axis.ticks)


def test_a_nice_axis_ends_at_round_numbers():
    axis = linear(-3, 17, nice=True)
    assert (axis.place(axis.ticks[0][0]), axis.place(axis.ticks[-1][0])) == (0, 1)


def test_powers_of_ten_hold_all_values():
    for values in ([3.0], [0.02, 7.0], [1.0, 10.0], [1e-5, 1e9]):
        axis = powers(values, "x")
        assert all(-1e-12 <= axis.place(value) <= 1 + 1e-12 for value in values)
        assert 3 <= len(axis.ticks) <= 10


@pytest.mark.parametrize("number", [0, 1e-4, -0.5, 999, 9_999, 12_345, 4.2e6, 7e12])
def test_short_numbers_are_short(number):
    assert len(short(number)) <= 8


def test_any_label_makes_a_drawing():
    plot = fitted(linear(0, 1), bands(HOSTILE, most=100), 300, 200, down=True, aside=HOSTILE)
    plot.words(0.5, 0, HOSTILE[0])
    svg = drawing([[plot]], keys=[Look(name=HOSTILE[3], colour=ACCENT)], heading=HOSTILE[1])
    texts = [part.text or "" for part in parsed(svg).iter() if part.tag.endswith("text")]
    assert HOSTILE[0] in texts
    assert "<script" not in svg


def test_names_that_are_cut_stay_apart():
    names = ["Relation to the householder", "Relation to the householder × Sex", "Sex"]
    shown = [name for _, name in bands(names, most=120).ticks]
    assert len(set(shown)) == 3
    assert shown[2] == "Sex"
    assert all("…" in name and name[:4] == "Rela" for name in shown[:2])
    assert [name for _, name in bands(names[:1], most=120).ticks] == ["Relation to the…"]


def test_the_same_figures_give_the_same_text():
    def drawn():
        plot = Plot(x=linear(0, 3), y=powers([1, 100], "y"), width=200, height=100, title="t")
        plot.line([(0, 1), (1, 10), (3, 100)], ACCENT, dash="4,3")
        plot.area([(0, 1), (1, 10), (3, 1)], ACCENT, 0.5)
        plot.ring(1, 10, 4, ACCENT)
        for shape in ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross"):
            plot.dot(2, 20, 4, ACCENT, shape=shape, edge="white")
        return drawing([[plot, plot], [plot]])

    assert drawn() == drawn()
    assert not re.search(r"nan|inf|e-\d", drawn())


def test_a_fitted_plot_is_as_wide_as_it_was_asked_to_be():
    plot = fitted(linear(0, 7e9), bands(["a long name of a place", "b"]), 420, 100, down=True)
    assert plot.left + plot.width + plot.right == pytest.approx(420)


@pytest.mark.parametrize("counts", [[30, 4, 55, 20], [9_400_000, 12, 310_000, 4_020]])
def test_every_interval_can_be_seen(counts):
    """Also those of large values, which on an axis from zero would be shorter than their mark."""
    svg, release = charted(counts)
    spans = [line for line in lines(svg) if line["y1"] == line["y2"]]
    assert len(spans) == len(counts)
    assert min(line["x2"] - line["x1"] for line in spans) > 12
    shown = "".join(parsed(svg).itertext())
    written = all(f"{int(value):,}" in shown for value in np.ravel(release.values))
    assert written == (max(counts) > 1000)
