"""Independent draws of release minus truth, by running the mechanism itself on nothing.

The noise of a release does not depend on the data, and its law is public. A table of zeros with
held values of zero goes through the same measuring and the same reconstruction, controlled rounding
included, so what comes out has exactly the law of release minus truth.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.estimates import check_level
from subspacedp.noise import ReleaseKeys
from subspacedp.release import Design, PublishedValues

Statistic = Callable[[AnyArray], float]


def replicates(
    source: PublishedValues | Design, number: int, *, seed: int | None = None
) -> Iterator[AnyArray]:
    """Independent draws of release minus truth, one after another.

    Parameters
    ----------
    source
        A release, several combined, or a mechanism; only public designs are used.
    number
        How many draws.
    seed
        Makes them reproducible. By default each has a fresh key from the operating system. A seed
        never repeats the noise of a release made from the same seed.

    Returns
    -------
    Arrays in the shape of the values: int64 with `decimals=0`, otherwise float64. One is in memory
    at a time.

    Guarantees
    ----------
    1. Every draw has exactly the law of release minus truth, controlled rounding included; real
       values up to the rounding of float64. What putting a basis on its grid adds to an extended
       mechanism, a bias with a public bound, is not noise and is left out.
    2. Draws are independent of each other and of the release.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0), decimals=0)
    >>> [noise.sum(axis=1).tolist() for noise in replicates(mechanism, 2)]
    [[0, 0], [0, 0]]
    """
    check_draws(number, seed)
    if not isinstance(source, PublishedValues | Design):
        raise ReleaseError(f"Replicates need a release or a mechanism; got {_a(source)}.")
    for mechanism in source.designs:
        if mechanism.declared is not None:
            raise ReleaseError(
                "The invariants of this release were imposed on another mechanism, whose noise law "
                "is not known, so it has no replicates."
            )
    return (
        source.of_noise([drawn(m, _keys(m, seed, i, r)) for r, m in enumerate(source.designs)])
        for i in range(number)
    )


def check_draws(number: object, seed: object) -> None:
    """Refuse a number of draws, or a seed, that is none."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ReleaseError(f"`number` must be a whole number of at least 1; got {number!r}.")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise ReleaseError(f"`seed` must be a whole number; got {_a(seed)}.")


def replicate_quantiles(
    source: PublishedValues,
    statistic: Statistic,
    probabilities: Sequence[float] | float,
    number: int = 1000,
    *,
    seed: int | None = None,
) -> FloatArray:
    """Quantiles of T(values + noise*) − T(values) over replicates of the noise.

    A probability p means the order statistic number p·(number + 1), rounded away from the middle,
    so that a tail never holds more than it should; there must be enough replicates for that.
    """
    listed = probabilities if isinstance(probabilities, Iterable) else [probabilities]
    levels = [check_level(p) for p in listed]
    needed = max((math.ceil(1 / min(p, 1 - p) - 1e-9) - 1 for p in levels), default=1)
    moves = np.sort(_moved(source, statistic, number, seed))
    if moves.size < needed:
        raise ReleaseError(
            f"These quantiles need at least {needed:,} replicates; got {moves.size:,}.",
            needed=needed,
        )
    places = [
        math.floor(p * (moves.size + 1) + 1e-9) - 1
        if p <= 0.5
        else math.ceil(p * (moves.size + 1) - 1e-9) - 1
        for p in levels
    ]
    return np.asarray(moves[places], np.float64)


def replicate_interval(
    release: PublishedValues,
    statistic: Statistic,
    level: float = 0.95,
    number: int = 1000,
    *,
    seed: int | None = None,
) -> tuple[float, float]:
    """An interval for any statistic T of the true answers, by replicates of the noise.

    Parameters
    ----------
    release
        The release, or several combined.
    statistic
        From an array in the shape of the values to one finite number.
    level
        The probability that the interval covers T(truth), about.
    number
        How many replicates; at least 2/(1 − level) − 1.
    seed
        Makes the interval reproducible.

    Guarantees
    ----------
    1. For a linear statistic the interval covers with at least the stated probability, whatever the
       number of replicates: T(release) − T(truth) and its replicates are exchangeable.
    2. For any other statistic it is approximate. T(values + noise*) − T(values) stands for
       T(values) − T(truth), which is right as far as T is linear over a few standard errors; it
       corrects a bias of T to first order and no further.

    Notes
    -----
    The basic (reflected) interval [T − q(1 − α/2), T − q(α/2)], with the quantiles q of the moves.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0))
    >>> release = mechanism.release(sdp.Table([[300, 200], [100, 400]], domain), seed=1)
    >>> lower, upper = replicate_interval(release, lambda v: v[0, 0] / v[:, 0].sum(), seed=2)
    >>> lower < 0.75 < upper
    True
    """
    alpha = 1 - check_level(level)
    low, high = replicate_quantiles(
        release, statistic, [alpha / 2, 1 - alpha / 2], number, seed=seed
    )
    here = _value(statistic, np.asarray(release.values))
    # A statistic on a lattice must not lose its point to the rounding of float64.
    slack = 1e-9 * float(high - low) + 4 * float(np.spacing(abs(here)))
    return here - float(high) - slack, here - float(low) + slack


def _moved(
    source: PublishedValues, statistic: Statistic, number: int, seed: int | None
) -> FloatArray:
    """T(values + noise*) − T(values), one per replicate."""
    if not isinstance(source, PublishedValues):
        raise ReleaseError(f"Replicates of a statistic need a release; got {_a(source)}.")
    values = np.asarray(source.values)
    here = _value(statistic, values)
    draws = replicates(source, number, seed=seed)
    return np.array([_value(statistic, values + noise) - here for noise in draws])


def _value(statistic: Statistic, values: AnyArray) -> float:
    number = np.asarray(statistic(values))
    if number.size != 1 or number.dtype.kind not in "biuf" or not np.all(np.isfinite(number)):
        raise ReleaseError(
            "The statistic must give one finite number for the values with noise added too."
        )
    return float(number.reshape(()))


def _keys(mechanism: Mechanism, seed: int | None, place: int, release: int = 0) -> ReleaseKeys:
    context = mechanism.context
    if seed is None:
        return ReleaseKeys.fresh(context)
    # A context of its own for every draw: no words of a release, nor of another draw, nor of
    # another of several releases by one design.
    which = f" of release {release}" if release else ""
    draw_context = hashlib.sha256(context + f" replicate {place}{which}".encode()).digest()
    return ReleaseKeys.from_seed(seed, draw_context)


def drawn(mechanism: Mechanism, keys: ReleaseKeys) -> AnyArray:
    """One draw of release minus truth, from these keys."""
    zeros = mechanism.nothing()
    exact = mechanism.held.sums(zeros)
    noisy = mechanism.add_noise(zeros, keys)
    return mechanism.reconstruct(noisy, exact, keys.stream("dither"), overwrite=True)


def _a(value: object) -> str:
    return f"a {type(value).__name__}"
