"""Where parts of the mechanism meet: variances of only children, digits and their estimator."""

import numpy as np
import pytest

import subspacedp as sdp
import subspacedp.inference as inference
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms import mechanism_from


def only_children():
    levels = {"tract": [0, 1, 2, 3], "state": [0, 0, 0, 1]}
    return sdp.Domain([sdp.Axis("block", range(4), levels=levels)])


@pytest.mark.parametrize("held", [None, sdp.hold(), sdp.hold("state")], ids=str)
@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("objective", ["balanced", "sum", "largest"])
def test_an_only_child_has_its_parents_error(held, decimals, objective):
    """A table with next to nothing of a budget follows from the level above; it is not exact."""
    query = sdp.Margins(only_children(), [["tract"], ["block"], ["state"]])
    design = sdp.design(
        query,
        held,
        sdp.PureDP(1.0),
        decimals=decimals,
        mechanism=sdp.Marginals(objective=objective),
    )
    stderr = design.accuracy().stderr
    for i in range(query.size):
        one = np.zeros(query.size)
        one[i] = 1.0
        assert np.isclose(stderr[i], float(design.accuracy(one).stderr), rtol=1e-4, atol=1e-9)
    if held is None and decimals is None:
        assert np.allclose(stderr[:4], stderr[4:8])
        assert np.all(stderr > 0)


def test_only_children_with_extreme_weights_have_an_error():
    domain = sdp.Domain([sdp.Axis("county", range(4), levels={"state": [0, 1, 1, 1]})])
    query = sdp.Margins(domain, [["state"], ["county"]], [1e5, 1e-12])
    design = sdp.design(query, None, sdp.PureDP(1.0), neighbours=sdp.AddRemoveOne())
    stderr = design.accuracy().stderr
    assert np.isclose(stderr[2], stderr[0])


def test_a_node_that_is_its_held_one_is_exact():
    query = sdp.Margins(only_children(), [["block"], ["state"]])
    stderr = sdp.design(query, sdp.hold("state"), sdp.ZCDP(0.5)).accuracy().stderr
    assert np.all(stderr[:3] > 0)
    assert np.all(stderr[3:] == 0)


@pytest.mark.parametrize("names", [("g",), ("s",), ()])
@pytest.mark.parametrize("measured", ["contrasts", "tables"])
@pytest.mark.parametrize("relation", [sdp.ReplaceOne(), sdp.AddRemoveOne()], ids=repr)
def test_digits_are_taken_off_the_same_estimator(names, measured, relation):
    axes = [sdp.Axis("l", range(5), levels={"g": [0, 0, 1, 1, 1]}), sdp.Axis("s", range(2))]
    domain = sdp.Domain(axes)
    options = sdp.Marginals(margins=[["g"], ["s"]], measured=measured)
    design = sdp.design(
        domain, sdp.hold(*names), sdp.ZCDP(0.5), decimals=0, mechanism=options, neighbours=relation
    )
    before = design.mechanism.noise_before_rounding().cell_variance()
    after = design.mechanism.noise.cell_variance()
    draws = design.mechanism.noise.draws(domain.cells)
    assert np.allclose(after - before, np.where(before > 0, draws / 4, 0.0))
    table = sdp.Table(np.arange(10).reshape(5, 2) + 200, domain)
    found = inference.regress(design.release(table, seed=1), np.arange(10.0)[:, None])
    assert np.all(np.isfinite(np.asarray(found.coefficients, float)))


@pytest.mark.parametrize("measured", ["contrasts", "tables"])
def test_a_release_with_digits_cannot_be_relabelled(measured):
    """With digits the held totals enter the estimate (G); real values of it would not be S."""
    query = sdp.Margins(only_children(), [["block"], ["tract"]])
    options = sdp.Marginals(measured=measured)
    design = sdp.design(query, sdp.hold("state"), sdp.ZCDP(0.5), decimals=0, mechanism=options)
    data = design.mechanism.as_dict()
    assert mechanism_from(data).guarantee.kind == "G"
    with pytest.raises(ReleaseError):
        mechanism_from({**data, "decimals": None})
