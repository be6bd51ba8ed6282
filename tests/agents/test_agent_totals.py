"""Held totals of large counts: read off the parts exactly, or refused before anything is made."""

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.agents import Partition, Secret, collect, make_plan, privatize
from subspacedp.errors import ReleaseError, SubspaceDPError

SECRET = Secret(bytes(range(1, 33)))
SIZE = 20_000


@pytest.mark.parametrize("bits", [20, 33, 36, 38, 40, 42])
@pytest.mark.parametrize("form", ["margin", "matrix"])
def test_totals_of_real_values_are_exact_or_refused_beforehand(bits, form, tmp_path):
    domain = sdp.Domain([sdp.Axis("cell", range(SIZE))])
    held = sdp.hold() if form == "margin" else sdp.LinearInvariants(np.ones((1, SIZE), int))
    mechanism = sdp.design(domain, held, sdp.PureDP(0.3), mechanism="projected")
    rules = {"x": {"cells": [[0, SIZE // 2]]}, "y": {"cells": [[SIZE // 2 + 1, SIZE - 1]]}}
    plan = make_plan(mechanism, Partition.from_dict(domain, rules))
    x = np.random.default_rng(bits).integers(2 ** (bits - 1), 2**bits, SIZE)
    own = {name: x[plan.partition.cells(name)] for name in "xy"}
    if SIZE * 2**bits * 2.0**-52 > 0.25:
        with pytest.raises(ReleaseError, match="decimals=0"):
            privatize(plan, "x", own["x"], SECRET, record=tmp_path / "r")
        assert not (tmp_path / "r").exists()
        return
    parts = [privatize(plan, n, own[n], SECRET, record=tmp_path / "r").part for n in "xy"]
    assert int(collect(plan, parts).exact[0].reshape(-1)[0]) == int(x.sum())


def test_a_total_beyond_the_largest_whole_number_is_refused(tmp_path):
    domain = sdp.Domain([sdp.Axis("cell", range(5))])
    mechanism = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0), decimals=0)
    plan = make_plan(mechanism, Partition.by(domain, "cell"))
    parts = [
        privatize(plan, name, [2**61 + 2**60], SECRET, record=tmp_path / "r").part
        for name in plan.partition.names
    ]
    with pytest.raises(SubspaceDPError, match=r"beyond 2\*\*62"):
        collect(plan, parts)
