"""A mechanism that a curator already trusts, with invariants put on what it releases."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.balls import ball, round_up
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.invariants import Held, LinearInvariants, StructuralZeros, as_held, bind
from subspacedp.mechanisms.impose import Imposed, check_something_left
from subspacedp.noise import DeclaredNoise
from subspacedp.privacy import ZCDP, ApproxDP, Budget, Neighbours, PureDP, ReplaceOne
from subspacedp.problem import Problem
from subspacedp.queries import Query, as_query
from subspacedp.release.designs import Design
from subspacedp.tables import Domain


def impose_on(
    domain: Domain | Query,
    held: Held | LinearInvariants | StructuralZeros | None,
    mechanism: Any,
    *,
    budget: Budget | None = None,
    neighbours: Neighbours | None = None,
    description: str = "",
    variance: float | None = None,
) -> Design:
    """Wrap an existing mechanism so that what it releases has the exact values.

    Parameters
    ----------
    domain, held
        The answers, and what is to be exact.
    mechanism
        A function from the integer answers to noisy ones, or an OpenDP measurement on vectors of
        integers.
    budget
        What the mechanism guarantees. For an OpenDP measurement it is asked of its privacy map.
    neighbours
        What one person may change; `ReplaceOne()` by default.
    description
        The mechanism in words, for the certificate.
    variance
        The variance of its noise, if it is independent and the same for every answer; then the
        release has standard errors, and none otherwise.

    Examples
    --------
    >>> import numpy as np, subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "middle", "old"])])
    >>> def geometric(x):
    ...     rng, q = np.random.default_rng(), np.exp(-0.5)
    ...     return x + rng.geometric(1 - q, x.shape) - rng.geometric(1 - q, x.shape)
    >>> wrapped = impose_on(
    ...     domain, sdp.hold(), geometric, budget=sdp.PureDP(1.0), description="double geometric"
    ... )
    >>> release = wrapped.release(sdp.Table([5, 7, 8], domain))
    >>> round(float(release.values.sum()), 9)
    20.0
    """
    query, relation = as_query(domain), ReplaceOne() if neighbours is None else neighbours
    if query.workload is not None:
        raise ReleaseError(
            "A wrapped mechanism releases cells or answers; wrap it on the cells of the domain, or "
            "take the marginals mechanism for a workload of margins."
        )
    if not isinstance(relation, Neighbours) or type(relation) is Neighbours:
        raise BudgetError("`neighbours` must be ReplaceOne(...) or AddRemoveOne(...).")
    function = mechanism
    if _is_opendp(mechanism):
        if budget is not None:
            raise BudgetError("An OpenDP measurement states its own budget; leave `budget` out.")
        budget = _opendp_budget(mechanism, query, relation)
        description = description or "OpenDP measurement"
        function = _opendp_function(mechanism)
    elif not callable(mechanism):
        raise ReleaseError(
            "The mechanism must be a function or an OpenDP measurement; got a "
            f"{type(mechanism).__name__}."
        )
    if not isinstance(budget, Budget):
        raise BudgetError("Say what the mechanism guarantees: budget=PureDP(...) or another.")
    if variance is not None and not (
        isinstance(variance, int | float) and math.isfinite(variance) and variance >= 0
    ):
        raise ReleaseError(f"`variance` must be a number of at least 0; got {variance!r}.")
    bound = bind(as_held(held), query)
    check_something_left(bound)
    problem = Problem(query=query, held=bound, budget=budget, neighbours=relation)
    declared = DeclaredNoise(description or "a function of its owner", variance)
    return Design(Imposed(problem, declared, function))


def _is_opendp(mechanism: Any) -> bool:
    kind = type(mechanism)
    return kind.__module__.split(".")[0] == "opendp" and kind.__name__ == "Measurement"


def _opendp_function(measurement: Any) -> Callable[[Int64Array], Any]:
    def call(answers: Int64Array) -> AnyArray:
        values = answers.ravel().tolist()
        if not measurement.input_domain.member(values):
            raise ReleaseError(
                "The answers are not in the input domain of the OpenDP measurement, where alone "
                "its guarantee holds."
            )
        return np.asarray(measurement(values))

    return call


def _opendp_budget(measurement: Any, query: Query, neighbours: Neighbours) -> Budget:
    """The budget that the measurement's own privacy map states for this sensitivity."""
    sensitivity = query.sensitivity(neighbours)
    metric, measure = str(measurement.input_metric), str(measurement.output_measure)
    if metric.startswith("L1Distance"):
        distance: float = math.ceil(sensitivity.l1)
    elif metric.startswith("L2Distance"):
        distance = round_up(lambda: ball(sensitivity.l2_squared).sqrt())
    else:
        raise ReleaseError(
            f"The OpenDP measurement must take L1 or L2 distances of vectors; it takes {metric}."
        )
    whole = metric.endswith(("i64)", "i32)", "u64)", "u32)"))
    loss = measurement.map(math.ceil(distance) if whole else float(distance))
    if measure.startswith("MaxDivergence"):
        return PureDP(loss)
    if measure.startswith("ZeroConcentratedDivergence"):
        return ZCDP(loss)
    if measure.startswith("Approximate(MaxDivergence"):
        return ApproxDP(*loss)
    raise ReleaseError(
        f"The privacy measure {measure} of the OpenDP measurement is not known here."
    )
