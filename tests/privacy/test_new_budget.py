"""A budget of a new kind is one class: Rényi differential privacy at one order, written here."""

import json
from fractions import Fraction
from typing import ClassVar

import jsonschema
import pytest

import subspacedp as sdp
from subspacedp.balls import ball, round_down
from subspacedp.errors import BudgetError
from subspacedp.frozen import frozen
from subspacedp.ledger import LimitError, open_ledger, spend_of
from subspacedp.privacy import Budget, budgets
from subspacedp.privacy.budgets import Dominating
from subspacedp.privacy.numbers import decimal_above, exact_decimal

DOMAIN = sdp.Domain([sdp.Axis("a", ["x", "y", "z"])])


@frozen
class RenyiDP(Budget):
    """(α, ε)-Rényi differential privacy; buys Gaussian noise with αμ²/2 = ε."""

    epsilon: float
    order: float
    name: ClassVar[str] = "renyi"

    @property
    def _square(self) -> Fraction:
        return 2 * exact_decimal(self.epsilon) / exact_decimal(self.order)

    @property
    def gaussian_mu(self) -> float:
        return round_down(lambda: ball(self._square).sqrt())

    def dominating(self, people: int, *, stated: bool) -> Dominating:
        if stated:
            raise BudgetError("Of Rényi privacy at one order nothing else follows exactly.")
        return Dominating(square=people**2 * self._square)

    def _exact(self, total):
        return None if total.exact_rho is None else exact_decimal(self.order) * total.exact_rho

    def spent(self, total):
        exact = self._exact(total)
        return None if exact is None else decimal_above(exact)

    def allows(self, total):
        exact = self._exact(total)
        return None if exact is None else exact <= exact_decimal(self.epsilon)

    def meaning(self) -> str:
        return "One person moves the outcomes by a Rényi divergence of at most ε."

    def __str__(self) -> str:
        return f"ε = {self.epsilon} at order {self.order}"


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setitem(budgets.BUDGETS, RenyiDP.name, RenyiDP)


def test_it_designs_plans_releases_and_loads(tmp_path):
    design = sdp.design(DOMAIN, sdp.hold(), RenyiDP(0.4, 4.0))
    assert design.mechanism.law == sdp.design(DOMAIN, sdp.hold(), sdp.ZCDP(0.1)).mechanism.law
    release = design.release(sdp.Table([5, 6, 7], DOMAIN), seed=1)
    jsonschema.validate(release.certificate(), json.loads(sdp.certificate_schema()))
    release.save(tmp_path / "out")
    assert sdp.load(tmp_path / "out").mechanism.budget == RenyiDP(0.4, 4.0)
    needed = sdp.least_budget(DOMAIN, sdp.hold(), RenyiDP(1.0, 4.0), error=5.0).budget
    assert needed.order == 4.0
    assert needed.epsilon > 0.4


def test_an_account_counts_in_it(tmp_path):
    with open_ledger(tmp_path / "budget.db") as ledger:
        ledger.create("people", RenyiDP(1.0, 4.0), sdp.ReplaceOne())
        spends = [
            spend_of(sdp.design(DOMAIN, sdp.hold(), budget).mechanism)
            for budget in (RenyiDP(0.4, 4.0), sdp.ZCDP(0.1))
        ]
        ledger.reserve("people", spends)
        assert ledger.left("people") == "ε = 0.2"
        with pytest.raises(LimitError, match=r"ε = 0\.8 to ε = 1\.2"):
            ledger.reserve("people", spends[:1])
