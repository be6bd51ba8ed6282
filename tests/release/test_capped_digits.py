"""Digits of a design whose held values count more records than are protected.

The residual that is rounded is then noise plus a shift, so a coin can have a variance above 1/6.
"""

import numpy as np

from subspacedp import AddRemoveOne, Axis, Domain, PureDP, Table, design, hold

DOMAIN = Domain([Axis("place", ["a", "b", "c"])])
PROTECTED, ALL = Table([5, 5, 5], DOMAIN), Table([6, 5, 5], DOMAIN)


def _made():
    return design(DOMAIN, hold(), PureDP(12.0), neighbours=AddRemoveOne(), decimals=0, capped=True)


def test_a_shifted_residual_has_larger_coins_than_noise_alone():
    mechanism = _made()
    cells = np.array(
        [mechanism.release(PROTECTED, everything=ALL, seed=s).values for s in range(3000)]
    )
    assert np.all(cells.sum(axis=1) == 16)
    found = cells.var(axis=0)
    stated = mechanism.expected_error().per_cell
    # A third of a record is spread to every cell: 2/9 for one coin, with hardly any noise. Of 3000
    # draws the variance is within 0.02 of that but for one time in 10**8.
    assert np.all(found < stated + 0.02)
    for_noise_alone = stated - mechanism.design.digits.variance() * (1 - (1 / 6) / (1 / 4))
    assert found[0] > for_noise_alone[0] + 0.02


def test_the_bound_of_noise_alone_stays_where_nothing_shifts():
    assert _made().design.digits.coin == 1 / 4
    assert design(DOMAIN, hold(), PureDP(12.0), decimals=0).design.digits.coin == 1 / 6
