"""The audit of finished releases: their own invariants, with the values they published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from subspacedp.disclosure.coverage import weakest
from subspacedp.disclosure.invariants import InvariantAudit, audit_invariants
from subspacedp.disclosure.values import stack
from subspacedp.errors import InvariantError
from subspacedp.release import Release

__all__ = ["audit_releases"]


def audit_releases(*releases: Release, **options: Any) -> InvariantAudit:
    """Find out what the invariants of releases of one table give away together.

    Parameters
    ----------
    releases
        One release or several, of one domain and for one neighbour relation.
    options
        `narrow`, `smallest_group`, `programs` and `progress` of `audit_invariants`.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> table = sdp.Table([[30, 0], [10, 0]], domain)
    >>> first = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0)).release(table, seed=1)
    >>> second = sdp.design(domain, sdp.hold("sex"), sdp.PureDP(1.0)).release(table, seed=2)
    >>> audit_releases(first, second).linkage.pinned
    2
    """
    if not releases:
        raise InvariantError("Give at least one release.")
    designs = [release.mechanism for release in releases]
    helds = [mechanism.held.asked() for mechanism in designs]
    stack(helds, [mechanism.domain for mechanism in designs])
    relations = {mechanism.neighbours for mechanism in designs}
    if len(relations) > 1:
        raise InvariantError(
            "Releases for different neighbour relations cannot be audited together; restate them "
            "for one."
        )
    single = len(releases) == 1
    audit = audit_invariants(
        designs[0].domain,
        helds[0] if single else helds,
        releases[0].exact if single else [release.exact for release in releases],
        neighbours=designs[0].neighbours,
        budget=designs[0].budget if single else None,
        on_counts=designs[0].measures_counts,
        capped=any(mechanism.capped for mechanism in designs),
        **options,
    )
    kind = weakest([mechanism.guarantee.kind for mechanism in designs])
    capped = any(
        mechanism.capped for mechanism in designs
    )  # then totals count records beyond the bound
    return replace(
        audit,
        kind=kind,
        free=tuple(words for words in audit.free if not (capped and words == "the grand total")),
        loss=None if audit.loss is None else replace(audit.loss, kind=kind),
    )
