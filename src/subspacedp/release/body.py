"""The strategy of the k-norm mechanism: noise in the shape of a body around what one record does.

Several ways to have integers. A histogram of which only the total is held, and no neighbouring
change alters that: the counts are measured with noise that adds up to zero. The totals of disjoint
groups: differences of counts within each group are measured. Everything else: coordinates in a
basis of the null space on a public grid, or the answers themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.noise import DiscreteLaplace, JointNoise, NoiseModel
from subspacedp.noise.bodies import (
    Body,
    CrossPolytope,
    Deviations,
    Ellipsoid,
    Exchanges,
    Fit,
    as_body,
)
from subspacedp.noise.knorm import GroupedNoise, KNormLaw, KNormNoise
from subspacedp.privacy import PureDP
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.release.changes import changes
from subspacedp.release.strategy import Strategy
from subspacedp.stated import stated_fraction
from subspacedp.subspace import Digits
from subspacedp.subspace.groups import HeldGroups
from subspacedp.tables import Cells, Sensitivity

if TYPE_CHECKING:
    from subspacedp.release.design import Design

__all__ = ["OWN", "BodyStrategy", "cell_norm"]

OWN = Fraction(1, 10**6)  # by which rounding may widen the sensitivity body itself
TOO_SMALL = "The body of the noise does not hold what one record changes: too little noise."


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class BodyStrategy(Strategy):
    """Noise with P(z) ∝ exp(−rate·‖z‖) on all measured integers at once.

    Parameters
    ----------
    fitted
        The body, whether it is the sensitivity body itself, and the price if it is not.

    Guarantees
    ----------
    1. `check` refuses a body that does not hold, `within` times, every change of the measured
       integers by one record; it is decided in whole numbers (docs/proofs/knorm.md).
    """

    fitted: Fit

    key: ClassVar[str] = "body"
    proof: ClassVar[str] = "knorm.md"

    def rate(self, design: Design) -> Fraction:
        """ε over what all records of a person change: each is within so many times the body."""
        if not isinstance(design.budget, PureDP):
            raise BudgetError(
                "The k-norm mechanism is for pure budgets: use PureDP(...), or another mechanism."
            )
        most = design.neighbours.records * self.fitted.within
        return exact_decimal(design.budget.epsilon) / most

    def law(self, design: Design) -> KNormLaw:
        """The law of the noise on the vector that is measured, in units of `unit`."""
        return KNormLaw(self.fitted.body, self.rate(design))

    def unit(self, design: Design) -> Fraction:
        """One unit of the integer noise."""
        grid = design.query.grid
        return grid if design.basis is None else grid * design.basis.step

    def digits(self, design: Design) -> Digits | None:
        """None: whole counts stay whole, and everything else is published as real values."""
        return None

    def sensitivity(self, design: Design) -> Sensitivity:
        """Δ₁ and Δ₂² of the numbers that are measured, for comparison."""
        if design.basis is None:
            return design.query.sensitivity(design.neighbours)
        return design.basis.sensitivity(design.query, design.neighbours)

    def noise(self, design: Design) -> JointNoise:
        """The law of release minus truth."""
        law, unit = self.law(design), float(self.unit(design))
        if design.basis is not None:
            return KNormNoise(law=law, unit=unit, back=design.basis.back, shape=design.query.shape)
        if isinstance(law.body, CrossPolytope):
            each = DiscreteLaplace(law.rate / law.body.widths[0])
            return NoiseModel(law=each, unit=unit, space=design.space)
        return GroupedNoise(law=law, groups=HeldGroups.of(design.held))

    def measured(self, design: Design) -> str:
        """What gets noise, in words."""
        if design.basis is not None:
            what = (
                "all coordinates of the answers in a basis of the null space at once, the basis "
                f"on a grid of 2**-{design.basis.bits}"
            )
        elif isinstance(self.fitted.body, Exchanges):
            what = "all answers at once, with noise that adds up to zero"
        elif isinstance(self.fitted.body, Deviations):
            what = "the differences of answers within every held group, at once"
        else:
            what = "every answer, independently, before projection onto the null space"
        return f"{what}; {self.price_in_words()}"

    def price_in_words(self) -> str:
        """Whose noise it is, and at what price relative to the sensitivity body."""
        fitted = self.fitted
        kind = fitted.body.as_dict()["body"]
        if fitted.own:
            return f"noise of the sensitivity body itself ({kind})"
        price = math.ceil(fitted.price * 1000 - 1e-6) / 1000
        most = "at most " if fitted.bound else ""
        return (
            f"noise of a body around the sensitivity body ({kind}), with {most}{price:,.4g} times "
            "the expected squared error of that body's own noise on a fine grid"
        )

    def check(self, design: Design) -> None:
        """Refuse a body that does not hold what one record changes; exact, in whole numbers."""
        self.rate(design)
        body, within = self.fitted.body, self.fitted.within
        query, relation = design.query, design.neighbours
        if design.basis is not None:
            moves = changes(design.basis, query, relation)
            fits = body.entries == body.dimension == moves.shape[1]
            # What is rounded off two measurements differs by at most one in every number.
            room = within - (2 * cell_norm(body) if design.basis.drop else 0)
            held = fits and room > 0 and body.holds(moves, room * 2**design.basis.drop)
        elif isinstance(body, CrossPolytope):
            # The widths are one, so the norm is the sum of sizes.
            fits = set(body.widths) == {Fraction(1)} and body.entries == query.size
            held = fits and within * relation.records >= query.sensitivity(relation).l1
        elif isinstance(body, Exchanges):
            # Digits have the total of what is measured, which a bound on records makes another one.
            fits = isinstance(query, Cells) and body.cells == query.size
            fits = fits and (design.decimals is None or not design.capped)
            held = fits and design.space.rank == 1 and relation.keeps_total and within >= 1
            held = held and HeldGroups.of(design.held).sizes == (body.cells,)
        else:
            fits = isinstance(query, Cells) and isinstance(body, Deviations)
            held = fits and HeldGroups.of(design.held).sizes == getattr(body, "groups", ())
            held = held and within >= relation.persons
        if not held:
            raise ReleaseError(TOO_SMALL)
        if design.decimals is not None and not isinstance(body, Exchanges):
            raise ReleaseError("Only whole counts whose noise adds up to zero have digits.")

    def as_dict(self) -> dict[str, Any]:
        """The body, how it holds what a record does, and the price."""
        fitted = self.fitted
        return {
            **fitted.body.as_dict(),
            "own": fitted.own,
            "within": str(fitted.within),
            "price": fitted.price,
            "bound": fitted.bound,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], design: Design) -> BodyStrategy:
        """From plain data; the body is not fitted again, and what privacy rests on is checked."""
        if design.mechanism != "knorm":
            raise ReleaseError("a norm body belongs to the k-norm mechanism.")
        own, bound, price = data["own"], data["bound"], data["price"]
        within = stated_fraction(data["within"])
        usable = isinstance(own, bool) and isinstance(bound, bool) and isinstance(price, float)
        if not usable or not math.isfinite(price) or price <= 0 or within <= 0:
            raise ReleaseError("what is said of its norm body is out of range.")
        if own and (not 1 <= within <= 1 + OWN or price != 1.0 or bound):
            raise ReleaseError("the sensitivity body itself has no price.")
        basis = design.basis
        body = as_body(data, design.query.size if basis is None else len(basis.weights))
        if own and isinstance(body, Ellipsoid) and body.dimension > 1:
            raise ReleaseError("an ellipsoid is no hull of what records change.")
        made = cls(fitted=Fit(body=body, own=own, within=within, price=price, bound=bound))
        made.check(design)
        return made


def cell_norm(body: Body) -> Fraction:
    """At least the norm of half a cell, in the body and in its cover."""
    return max(body.half_cell, body.cover.half_cell)
