"""A plan, the secret of its agents, and counts of theirs."""

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.agents import Partition, Secret, make_plan

SECRET = Secret(bytes(range(100, 132)))


def plan_of(decimals=0, epsilon=0.5, mechanism="projected"):
    county = sdp.Axis("county", range(30), levels={"state": [i % 3 for i in range(30)]})
    domain = sdp.Domain([county, sdp.Axis("sex", ["F", "M"])])
    budget = sdp.PureDP(epsilon) if mechanism == "projected" else sdp.ZCDP(0.1)
    made = sdp.design(
        domain, sdp.hold("state") & sdp.hold("sex"), budget, decimals=decimals, mechanism=mechanism
    )
    return make_plan(made, Partition.by(domain, "state"))


@pytest.fixture
def plan():
    return plan_of()


def own(plan, name, seed=1):
    cells = plan.partition.cells(name)
    return np.random.default_rng(seed).integers(0, 60, plan.mechanism.query.size)[cells]
