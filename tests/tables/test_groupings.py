"""Groupings beside the levels of an axis: partitions with holes, what determines what, atoms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.errors import DomainError
from subspacedp.queries import query_from
from subspacedp.tables import RowPlan, finest_of, margin_sums

PLACE = sdp.Axis(
    "block", list("abcdef"), {"tract": [1, 1, 2, 3, 3, 3], "county": list("xxxyyy")},
    groupings={"grid": list("NNNSSN"), "school": [None, "p", "p", "q", "q", None]},
)  # fmt: skip
DOMAIN = sdp.Domain([sdp.Axis("sex", ["F", "M"]), PLACE])


def test_atoms_are_what_all_groups_share():
    assert PLACE.atoms.sum() == 6
    assert sorted(PLACE.atoms.tolist()) == [1, 1, 1, 1, 2]  # d and e share every group
    assert repr(PLACE) == (
        "Axis('block', 6 labels, levels: tract, county, groupings: grid, school; 5 atoms)"
    )
    assert repr(DOMAIN) == "Domain(sex: 2, block: 6 in 5 atoms; 12 cells)"


def test_a_margin_of_a_grouping_leaves_out_who_is_in_no_group():
    values = np.arange(12).reshape(2, 6)
    school = DOMAIN.margin("school")
    assert school.has_holes
    assert school.grouped
    assert school.shape == (1, 2)
    assert school.sum(values).tolist() == [[1 + 2 + 7 + 8, 3 + 4 + 9 + 10]]
    assert school.spread(np.array([[5, 7]])).tolist() == [[0, 5, 5, 7, 7, 0]]
    assert school.sizes.tolist() == [[4, 4]]
    assert school.inside.tolist() == [[False, True, True, True, True, False]]
    assert school.exact_sum(values).tolist() == [[18, 26]]


def test_kernels_and_blocks_sum_as_numpy_does():
    rng = np.random.default_rng(0)
    codes = [None if c == 7 else c for c in rng.integers(0, 8, 700).tolist()]
    place = sdp.Axis("block", range(700), groupings={"school": codes, "side": [0, 1] * 350})
    domain = sdp.Domain([sdp.Axis("age", range(100)), place])
    values = rng.integers(0, 9, domain.shape)
    margins = [domain.margin(*names) for names in (("school",), ("age", "school"), ("side",))]
    for margin, total in zip(margins, margin_sums(values, margins), strict=True):
        assert np.array_equal(total, margin.sum(values))
    turned = sdp.Domain([place, sdp.Axis("age", range(100))])
    margin = turned.margin("school")
    (total,) = margin_sums(np.ascontiguousarray(values.T), [margin])
    assert np.array_equal(total, margin.sum(values.T))
    assert RowPlan((margin,)).split(np.zeros(8))[0].shape == (7, 1)


@given(st.data())
def test_determines_is_what_the_groups_say(data):
    n = data.draw(st.integers(1, 6))
    labels = st.lists(st.sampled_from([None, 0, 1, 2]), min_size=n, max_size=n)
    one, other = data.draw(labels), data.draw(labels)
    if all(v is None for v in one) or all(v is None for v in other):
        return
    axis = sdp.Axis("x", range(n), groupings={"one": one, "other": other})
    fine, coarse = axis.step_of("one"), axis.step_of("other")
    unions = [
        {i for i, v in enumerate(one) if v is not None and v in chosen}
        for mask in range(8)
        for chosen in [{v for v in range(3) if mask >> v & 1}]
    ]
    groups = [{i for i, v in enumerate(other) if v == g} for g in set(other) - {None}]
    assert axis.determines(fine, coarse) == all(g in unions for g in groups)
    everything = axis.depth - 1
    assert axis.determines(0, fine)
    assert axis.determines(fine, everything) == (None not in one)
    assert not axis.determines(everything, fine) or set(one) == {one[0]}


def test_of_margins_with_the_same_groups_the_first_is_kept():
    again = {"alike": list("xxxyyy"), "all": [0] * 6, "grid": list("NNNSSN")}
    place = sdp.Axis("block", range(6), {"county": list("xxxyyy")}, groupings=again)
    domain = sdp.Domain([sdp.Axis("sex", ["F", "M"]), place])
    county, alike, everything, all_, grid, sex = (
        domain.margin(*m) for m in (["county"], ["alike"], [], ["all"], ["grid"], ["county", "sex"])
    )
    assert finest_of((county, alike)) == (county,)
    assert finest_of((everything, all_)) == (everything,)
    assert finest_of((all_, alike, everything, grid, county)) == (alike, grid)
    assert finest_of((county, all_, sex, alike)) == (sex,)
    held = sdp.hold("county") & sdp.hold("alike") & sdp.hold("all")
    assert held.on(domain).essential == (county,)


def test_groupings_have_no_meet():
    with pytest.raises(DomainError, match="cross"):
        DOMAIN.margin("grid").meet(DOMAIN.margin("county"))
    assert DOMAIN.margin("tract").determines(DOMAIN.margin("county"))
    assert not DOMAIN.margin("tract").determines(DOMAIN.margin("grid"))
    assert DOMAIN.cells.determines(DOMAIN.margin("grid"))


def test_a_domain_with_groupings_is_read_back():
    again = query_from(sdp.Cells(DOMAIN).as_dict()).axes
    assert again.matches(DOMAIN)
    assert not again.matches(sdp.Domain([DOMAIN.axes[0], sdp.Axis("block", list("abcdef"))]))
    assert "groupings" not in sdp.Cells(sdp.Domain([sdp.Axis("a", [1, 2])])).as_dict()["domain"][0]
    columns = DOMAIN.label_columns()
    assert columns["school"].tolist() == ["", "p", "p", "q", "q", ""] * 2
    assert columns["grid"].tolist() == list("NNNSSN") * 2


@pytest.mark.parametrize(
    ("groupings", "message"),
    [
        ({"grid": [1, 2]}, "one group or None for each of the 6 labels of axis `block`; got 2"),
        ({"grid": "abcdef"}, "not one string"),
        ({"grid": [None] * 6}, "at least one group"),
        ({"grid": [1, 2, "a", 1, 1, 1]}, "all strings or all integers"),
        ({"county": [1] * 6}, "two levels"),
        (["grid"], "`groupings` must map"),
    ],
)
def test_bad_groupings_are_refused(groupings, message):
    with pytest.raises(DomainError, match=message):
        sdp.Axis("block", list("abcdef"), {"county": list("xxxyyy")}, groupings=groupings)


def test_a_list_of_groups_may_have_empty_ones():
    axis = sdp.Axis("b", [1, 2], groupings={"grid": [None, "x"]}, groups={"grid": ["w", "x", "y"]})
    assert axis.level("grid").labels == ("w", "x", "y")
    assert axis.level("grid").sizes.tolist() == [0, 1, 0]
    with pytest.raises(DomainError, match="not in its list"):
        sdp.Axis("b", [1, 2], groupings={"grid": [None, "z"]}, groups={"grid": ["x"]})


def test_a_misspelt_grouping_is_named():
    with pytest.raises(
        DomainError, match=r"no level or grouping `gird`; did you mean `grid`\? Its"
    ):
        DOMAIN.margin("gird")
    release = sdp.design(DOMAIN, None, sdp.PureDP(1.0)).release(
        sdp.Table(np.ones(DOMAIN.shape, np.int64), DOMAIN)
    )
    with pytest.raises(
        DomainError, match=r"no axis, level or grouping `gird`; did you mean `grid`"
    ):
        release.where(gird="N")
