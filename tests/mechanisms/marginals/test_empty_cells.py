"""Cells known to be empty, in the least squares of the marginals mechanism."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.errors import DataError, InvariantError, ReleaseError
from subspacedp.mechanisms.marginals import estimate
from subspacedp.noise import Keystream, ReleaseKeys


def _domain() -> sdp.Domain:
    county = sdp.Axis("county", list("abcdef"), levels={"state": ["P", "P", "Q", "Q", "Q", "R"]})
    return sdp.Domain([county, sdp.Axis("sex", ["F", "M"]), sdp.Axis("age", range(3))])


def _empty() -> np.ndarray:
    mask = np.zeros((6, 2, 3), bool)
    mask[0, 0] = mask[3, 1, 2] = mask[:, 1, 0] = mask[5] = True
    mask[5, 0, 0] = False
    return mask


def _design(held, budget=None, neighbours=None, **more):
    return sdp.design(
        _domain(),
        held,
        budget or sdp.ZCDP(0.1),
        neighbours=neighbours or sdp.AddRemoveOne(),
        mechanism=sdp.Marginals(margins=[["state"], ["sex", "age"]]),
        **more,
    )


def _table() -> sdp.Table:
    counts = np.arange(36).reshape(6, 2, 3) * ~_empty()
    return sdp.Table(counts, _domain())


HELD = {
    "nothing": lambda: sdp.zeros(_empty()),
    "total": lambda: sdp.hold() & sdp.zeros(_empty()),
    "states": lambda: sdp.hold("state") & sdp.zeros(_empty()),
    "two": lambda: sdp.hold("state") & sdp.hold("sex") & sdp.zeros(_empty()),
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("budget", [sdp.ZCDP(0.1), sdp.PureDP(1.0)])
@pytest.mark.parametrize("neighbours", [sdp.AddRemoveOne(), sdp.ReplaceOne()])
def test_covariance_is_that_of_the_estimate_given_the_zeros(held, budget, neighbours) -> None:
    design = _design(HELD[held](), budget, neighbours)
    noise, empty = design.mechanism.noise, _empty().reshape(-1)
    cells = np.eye(36).reshape(36, 6, 2, 3)
    free = replace(noise, empty=None).covariance(cells)
    inner = np.linalg.pinv(free[np.ix_(empty, empty)], rcond=1e-11, hermitian=True)
    expected = free - free[:, empty] @ inner @ free[empty]
    found = noise.covariance(cells)
    scale = free.max()
    np.testing.assert_allclose(found, expected, atol=1e-9 * scale)
    np.testing.assert_allclose(
        design.expected_error().per_cell.reshape(-1), np.diag(expected), atol=1e-9 * scale
    )
    margin = design.mechanism.domain.margin("sex", "age")
    sums = np.stack([noise.indicator(margin, place).reshape(-1) for place in np.ndindex(1, 2, 3)])
    np.testing.assert_allclose(
        design.margin_accuracy("sex", "age").stderr.reshape(-1) ** 2,
        np.diag(sums @ expected @ sums.T),
        atol=1e-8 * scale,
    )
    # The twin that puts zeros in alone undoes what the margin was measured for.
    twin = sums * ~empty
    if not budget.pure:
        assert np.trace(twin @ free @ twin.T) > 1.1 * np.trace(sums @ expected @ sums.T)


@pytest.mark.parametrize("held", HELD)
def test_zeros_and_totals_are_exact_and_the_certificate_can_be_read(held, tmp_path) -> None:
    design = _design(HELD[held]())
    release = design.release(_table(), seed=3)
    assert release.verify().ok
    assert not np.any(release.values[_empty()])
    if held in ("states", "two"):
        states = release.margin("state").value.reshape(-1)
        true = _table().counts.sum(axis=(1, 2))
        np.testing.assert_allclose(
            states, [true[:2].sum(), true[2:5].sum(), true[5]], rtol=0, atol=1e-8
        )
    release.save(tmp_path / "release")
    again = sdp.Release.load(tmp_path / "release")
    np.testing.assert_array_equal(again.values, release.values)
    np.testing.assert_allclose(again.stderr(), design.expected_error().per_cell ** 0.5)


def test_errors_have_the_stated_covariance() -> None:
    design = _design(HELD["states"]())
    mechanism, replicates = design.mechanism, 1000
    counts = np.asarray(_table().counts)
    exact = mechanism.held.sums(counts)
    errors = np.stack(
        [
            (
                mechanism.reconstruct(
                    mechanism.add_noise(counts, ReleaseKeys.from_seed(seed, b"zeros")),
                    exact,
                    Keystream(bytes(32)),
                )
                - counts
            ).reshape(-1)
            for seed in range(replicates)
        ]
    )
    covariance = design.mechanism.noise.covariance(np.eye(36).reshape(36, 6, 2, 3))
    spread = np.sqrt(np.diag(covariance))
    free = spread > 0
    # Means are normal with variance σ²/n; variances of normal numbers have 2σ⁴/n: 36 cells at 6σ.
    assert np.all(np.abs(errors.mean(axis=0)) <= 6 * spread / np.sqrt(replicates) + 1e-9)
    ratio = errors[:, free].var(axis=0) / spread[free] ** 2
    assert np.all(np.abs(ratio - 1) < 6 * np.sqrt(2 / replicates))
    # and twice the variance would not pass
    assert np.all(np.abs(2 * ratio - 1) > 6 * np.sqrt(2 / replicates))


def test_with_totals_that_neighbours_change_it_is_not_s() -> None:
    assert _design(HELD["nothing"]()).guarantee.kind == "plain"
    assert _design(HELD["total"](), neighbours=sdp.ReplaceOne()).guarantee.kind == "plain"
    design = _design(HELD["states"]())
    assert design.guarantee.kind == "G"
    mechanism = design.mechanism
    noisy = mechanism.add_noise(mechanism.nothing(), ReleaseKeys.from_seed(1, b"zeros"))
    dither = Keystream(bytes(32))
    exact = mechanism.held.sums(np.asarray(_table().counts))
    more = tuple(e.copy() for e in exact)
    more[0][0] += 5  # one more state total
    moved = mechanism.reconstruct(noisy, more, dither) - mechanism.reconstruct(noisy, exact, dither)
    # S would leave nothing of it in the null space of what is held.
    inside = mechanism.space.project(moved)
    assert np.abs(inside).max() > 1e-3


def test_people_in_empty_cells_are_refused() -> None:
    design = _design(HELD["nothing"]())
    with pytest.raises(DataError, match="declared empty"):
        design.release(sdp.Table(np.ones((6, 2, 3), int), _domain()), seed=1)


def test_what_is_not_supported_says_what_to_write(monkeypatch) -> None:
    for more in ({"decimals": 0}, {"capped": True}):
        with pytest.raises(ReleaseError, match="mechanism='projected'"):
            _design(HELD["nothing"](), **more)
    with pytest.raises(ReleaseError, match="mechanism='projected'"):
        _design(sdp.LinearInvariants(np.ones((1, 36), int)))
    with pytest.raises(InvariantError, match="ask for the cells of the table"):
        sdp.design(sdp.Margins(_domain(), [["sex"]]), sdp.zeros(_empty()), sdp.ZCDP(0.1))
    monkeypatch.setattr(estimate, "MAX_EMPTY_CELLS", 3)
    with pytest.raises(ReleaseError, match="too many for the least squares"):
        _design(HELD["nothing"]())
