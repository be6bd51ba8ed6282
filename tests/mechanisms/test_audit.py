"""Privacy audits: no event shows a larger loss than is claimed; half the noise is found out.

For two neighbouring tables many releases of each are made. On one half of them the event that tells
the tables apart best is chosen; on the other half its two probabilities are bounded (each bound
fails with probability at most ALPHA), and so is the loss ln((P(E|x) − δ)/P(E|y)) from below.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from tests.mechanisms.contract import Family
from tests.mechanisms.test_projected import HalfTheSensitivity
from tests.statistical import proportion_bounds, z_limit

from subspacedp import AddRemoveOne, ApproxDP, Axis, PureDP, ReplaceOne, design
from subspacedp.release import Design

TWO = [Axis("a", range(2))]
SQUARE = [Axis("row", range(2)), Axis("column", range(2))]
MARGINS = [("row",), ("column",)]


@dataclass(frozen=True, eq=False)
class Claim:
    """Two tables, what is looked at, and the loss that is claimed for them."""

    name: str
    axes: list
    margins: list
    x: list
    y: list
    relation: object
    decimals: int | None
    kind: str
    steps: int = 1  # neighbouring changes between the two tables
    budget: object = PureDP(1.0)

    def __str__(self):
        return self.name

    @property
    def epsilon(self):
        return self.steps * self.budget.epsilon

    @property
    def delta(self):
        return getattr(self.budget, "delta", 0.0)

    def outputs(self, counts, number, twin, seed):
        """One integer a release that stands for what the claim is about."""
        family = Family(self.name, self.axes, self.margins, np.array(counts))
        domain, held, table = family.replicated(number)
        made = design(domain, held, self.budget, neighbours=self.relation, decimals=self.decimals)
        assert made.guarantee.kind in (self.kind, "S")  # a replicated total is no longer the total
        audited = made if twin is None else Design(twin(made.problem))
        values = audited.release(table, seed=seed).values
        flat = np.rint(values.reshape(number, -1)[:, :2] * 2).astype(np.int64)  # halves at most
        if self.margins or self.delta:
            return flat[:, 0] - flat[:, 1]
        return flat.clip(-6, 6) @ [100, 1]  # beyond that the ratio is constant


CLAIMS = [
    Claim("plain, nothing held", TWO, [], [1, 0], [0, 1], ReplaceOne(), 0, "plain"),
    Claim("S, real values, total changes", TWO, [()], [1, 0], [0, 0], AddRemoveOne(), None, "S"),
    Claim("G, whole numbers, equal total", TWO, [()], [1, 0], [0, 1], ReplaceOne(), 0, "G"),
    Claim(
        "G, two margins", SQUARE, MARGINS, [[1, 0], [0, 1]], [[0, 1], [1, 0]], ReplaceOne(), 0, "G",
        steps=2,
    ),
    Claim(
        "Gaussian, nothing held", TWO, [], [1, 0], [0, 1], ReplaceOne(), 0, "plain",
        budget=ApproxDP(1.0, 0.05),
    ),
]  # fmt: skip


def best_event(first, second, delta):
    """The outputs of largest ratio, as many as make the loss stand out most."""
    outputs, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    a = np.bincount(place[: first.size], minlength=outputs.size)
    b = np.bincount(place[first.size :], minlength=outputs.size)
    order = np.argsort(-(a + 1) / (b + 1), kind="stable")
    a_sum, b_sum = np.cumsum(a[order]) + 1, np.cumsum(b[order]) + 1
    # A lower bound on the loss, roughly: the estimate less z standard errors.
    slack = z_limit() * np.sqrt(1 / a_sum + 1 / b_sum)
    score = np.log(np.maximum(a_sum - delta * first.size, 1) / b_sum) - slack
    return outputs[order[: int(np.argmax(score)) + 1]]


def audited_loss(first, second, delta):
    """A loss that is exceeded by the true one, except with probability 2·ALPHA."""
    half = first.size // 2
    event = best_event(first[:half], second[:half], delta)
    hits = [int(np.isin(values[half:], event).sum()) for values in (first, second)]
    low, high = (proportion_bounds(h, first.size - half) for h in hits)
    return math.log(max(low[0] - delta, 1e-12) / high[1])


def replicates(margin):
    """Releases of each table after which a loss is known to within `margin`.

    For an event of probabilities p and q the error of ln(p/q) is about z√((1/p + 1/q)/n). The
    events here have p and q above 1/20, and half of the releases choose the event.
    """
    return 2 * math.ceil((z_limit() / margin) ** 2 * (20 + 20))


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_no_audit_exceeds_the_claim_and_half_the_noise_is_caught(claim):
    number = replicates(0.1)
    both = [claim.outputs(c, number, None, seed) for seed, c in enumerate((claim.x, claim.y))]
    losses = [audited_loss(*pair, claim.delta) for pair in (both, both[::-1])]
    assert max(losses) <= claim.epsilon
    assert max(losses) > 0.5 * claim.epsilon  # the audit sees something
    twins = [
        claim.outputs(c, number, HalfTheSensitivity, seed)
        for seed, c in enumerate((claim.x, claim.y))
    ]
    assert audited_loss(*twins, claim.delta) > claim.epsilon


def test_the_audit_of_a_mechanism_without_noise_sees_it_at_once():
    first, second = np.zeros(1000, np.int64), np.ones(1000, np.int64)
    assert audited_loss(first, second, 0.0) > 3.0


def test_the_audit_of_equal_laws_sees_nothing():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 50, (2, 20_000))
    assert audited_loss(first, second, 0.0) <= 0.0
