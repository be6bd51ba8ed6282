"""Axes: labels, nested levels, groups without a label, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from tests import dense, strategies

from subspacedp.errors import DomainError
from subspacedp.tables import Axis


def sentence(*args, **kwargs) -> str:
    with pytest.raises(DomainError) as caught:
        Axis(*args, **kwargs)
    return str(caught.value)


def county() -> Axis:
    return Axis(
        "county",
        ["Kent", "Cook", "Sussex", "Lake", "Polk"],
        levels={
            "state": ["DE", "IL", "DE", "IL", "IA"],
            "region": ["South", "Midwest", "South", "Midwest", "Midwest"],
        },
        groups={"region": ["West", "Midwest", "South"]},
    )


def test_levels_in_order_of_first_appearance_or_of_the_list_given():
    axis = county()
    assert axis.level("state").labels == ("DE", "IL", "IA")
    assert axis.level("state").codes.tolist() == [0, 1, 0, 1, 2]
    assert axis.level("region").labels == ("West", "Midwest", "South")
    assert axis.level("region").codes.tolist() == [2, 1, 2, 1, 1]
    assert axis.level("county").codes.tolist() == [0, 1, 2, 3, 4]


def test_empty_groups_are_counted_and_have_size_zero():
    region = county().level("region")
    assert region.groups == 3
    assert region.nonempty == 2
    assert region.sizes.tolist() == [0, 3, 2]


def test_chain_and_steps_run_from_fine_to_coarse():
    axis = county()
    assert [level.name for level in axis.chain] == ["county", "state", "region"]
    assert axis.depth == 4
    assert [axis.step(s).groups for s in range(4)] == [5, 3, 3, 1]
    assert axis.step(3) is axis.all
    assert axis.parents(1, 2).tolist() == [2, 1, 1]
    assert axis.parents(2, 3).tolist() == [0, 0, 0]


def test_repr_names_sizes_and_levels():
    assert repr(county()) == "Axis('county', 5 labels, levels: state, region)"
    assert repr(Axis("sex", ["F", "M"])) == "Axis('sex', 2 labels)"
    assert repr(county().level("state")) == "Level('state', 3 groups)"


def test_a_range_is_kept_as_it_is():
    axis = Axis("cell", range(10**12, 10**12 + 3))
    assert axis.labels == range(10**12, 10**12 + 3)
    assert len(axis) == 3


def test_numpy_labels_become_plain():
    axis = Axis("year", np.array([2001, 2002]), levels={"half": [np.str_("a"), np.str_("b")]})
    assert [type(label) for label in axis.labels] == [int, int]
    assert [type(label) for label in axis.level("half").labels] == [str, str]


def test_later_changes_to_the_arguments_do_not_reach_the_axis():
    labels, members = ["x", "y"], ["p", "q"]
    levels = {"level": members}
    axis = Axis("a", labels, levels=levels)
    labels[0], members[0] = "z", "r"
    levels["more"] = ["s", "t"]
    assert axis.labels == ("x", "y")
    assert axis.level("level").labels == ("p", "q")
    assert axis.depth == 3


def test_an_axis_is_frozen():
    axis = county()
    with pytest.raises(AttributeError):
        axis.name = "other"
    with pytest.raises(ValueError, match="read-only"):
        axis.level("state").codes[0] = 1


@pytest.mark.parametrize("name", ["", None, 3])
def test_an_axis_needs_a_name(name):
    assert sentence(name, ["x"]) == "An axis needs a non-empty name."


@pytest.mark.parametrize("labels", [[], (), range(0), np.array([], int)])
def test_an_axis_needs_a_label(labels):
    assert sentence("a", labels) == "Axis `a` must have at least one label."


def test_labels_must_be_distinct():
    assert sentence("a", ["x", "y", "x"]) == (
        "Axis `a` has the label 'x' more than once; labels must be distinct."
    )


def test_one_string_is_not_a_list_of_labels():
    assert sentence("a", "xyz") == "Axis `a`: labels must be a list of labels, not one string."


@pytest.mark.parametrize(
    ("label", "kind"), [(1.5, "float"), (True, "bool"), (None, "NoneType"), (("x",), "tuple")]
)
def test_labels_are_strings_or_integers(label, kind):
    assert sentence("a", ["x", label]) == (
        f"Axis `a`: labels must be strings or integers; got one of type {kind}."
    )


def test_labels_are_of_one_kind():
    assert sentence("a", ["x", 1]) == "Axis `a`: labels must be all strings or all integers."


def test_integer_labels_fit_64_bits():
    assert sentence("a", [2**63]) == "Axis `a`: whole-number labels must fit 64 bits."
    assert Axis("a", [2**63 - 1, -(2**63)]).labels == (2**63 - 1, -(2**63))


def test_a_level_gives_one_group_a_label():
    assert sentence("a", ["x", "y"], levels={"b": ["p"]}) == (
        "Level `b` must give one group for each of the 2 labels of axis `a`; got 1."
    )


def test_a_level_needs_a_name():
    assert sentence("a", ["x"], levels={"": ["p"]}) == "Axis `a`: a level needs a non-empty name."


def test_a_level_may_not_take_the_name_of_its_axis():
    assert sentence("a", ["x", "y"], levels={"a": ["p", "p"]}) == (
        "Axis `a` uses the name `a` for two levels; names must be distinct."
    )


def test_levels_must_nest_and_the_error_says_where_they_do_not():
    levels = {"state": ["DE", "DE", "IL"], "region": ["S", "N", "N"]}
    with pytest.raises(DomainError) as caught:
        Axis("county", ["x", "y", "z"], levels=levels)
    assert str(caught.value) == (
        "Level `state` does not nest in level `region` on axis `county`: group 'DE' lies in more "
        "than one group of `region`. List levels from finest to coarsest."
    )
    assert (caught.value.fine, caught.value.coarse, caught.value.label) == (
        "state",
        "region",
        "DE",
    )


def test_levels_in_the_wrong_order_do_not_nest():
    levels = {"region": ["S", "S", "N"], "state": ["DE", "MD", "IL"]}
    assert "does not nest" in sentence("county", ["x", "y", "z"], levels=levels)


def test_groups_belong_to_a_level():
    assert sentence("a", ["x"], groups={"b": ["p"]}) == (
        "Axis `a`: groups are given for `b`, which is no level."
    )


def test_groups_are_complete():
    assert sentence("a", ["x", "y"], levels={"b": ["p", "q"]}, groups={"b": ["p"]}) == (
        "Level `b`: the group 'q' is not in its list of groups."
    )


def test_groups_are_distinct():
    assert sentence("a", ["x"], levels={"b": ["p"]}, groups={"b": ["p", "p"]}) == (
        "Level `b` lists the group 'p' more than once."
    )


def test_an_unknown_level_is_named():
    with pytest.raises(DomainError, match=r"^Axis `county` has no level `town`\.$"):
        county().level("town")


def test_matches_compares_labels_levels_and_groups():
    assert county().matches(county())
    plain = Axis("county", county().labels)
    assert not county().matches(plain)
    other = Axis("county", ["a", "b"], levels={"s": ["p", "q"]})
    assert not other.matches(Axis("county", ["a", "b"], levels={"s": ["p", "p"]}))
    assert not other.matches(Axis("county", ["b", "a"], levels={"s": ["p", "q"]}))
    assert not other.matches(Axis("county", ["a", "b"], levels={"t": ["p", "q"]}))
    assert not other.matches(
        Axis("county", ["a", "b"], levels={"s": ["p", "q"]}, groups={"s": ["p", "q", "r"]})
    )
    assert Axis("n", range(3)).matches(Axis("n", [0, 1, 2]))


@given(strategies.axes(max_labels=9))
def test_every_level_is_the_indicator_matrix_of_its_members(axis):
    for number, level in enumerate(axis.chain):
        expected = dense.indicator(axis, level.name)
        assert expected.shape == (level.groups, len(axis))
        assert (expected == (np.arange(level.groups)[:, None] == level.codes)).all()
        assert (expected.sum(axis=1) == level.sizes).all()
        assert level.is_identity == (
            expected.shape[0] == expected.shape[1] and bool((expected == np.eye(len(axis))).all())
        )
        for coarse in range(number, axis.depth):
            up = axis.parents(number, coarse)
            assert (up[level.codes] == axis.step(coarse).codes).all()


def test_titles_are_for_readers_and_change_nothing_that_is_asked():
    plain = Axis("county", ["a", "b"], levels={"state": ["x", "x"]})
    titled = Axis(
        "county", ["a", "b"], levels={"state": ["x", "x"]}, titles={"state": "State, 2020"}
    )
    assert (plain.title, titled.title) == ("county", "county")
    assert [level.title for level in titled.chain] == ["county", "State, 2020"]
    assert plain.matches(titled)
    assert titled.matches(plain)


@pytest.mark.parametrize("title", ["", "two\nlines", "\x1b[31m", 7, "\ud800"])
def test_a_title_is_one_line_of_text(title):
    with pytest.raises(DomainError, match="the title of `a` must be one line of text"):
        Axis("a", [1, 2], titles={"a": title})


def test_a_title_is_of_a_level():
    with pytest.raises(DomainError, match="a title is given for `b`, which is no level"):
        Axis("a", [1, 2], titles={"b": "B"})
    with pytest.raises(DomainError, match="must map names of levels to their titles"):
        Axis("a", [1, 2], titles="A")
