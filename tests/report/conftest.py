"""Releases to report on. Seeds make them repeat; most are stamped as if they had none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.report import write_report

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><b>bold</b>",
    "{{ 7 * 7 }} {% raw %} &amp; 'one'",
    "http",
    "Ørsted – 北京 \u2028 line",
]


def published(release: sdp.Release) -> sdp.Release:
    """The same release as if its noise had come from a fresh key."""
    return replace(release, seeded=False)


def counties() -> sdp.Table:
    domain = sdp.Domain(
        [
            sdp.Axis(
                "county",
                [f"{state} county {i}" for state in ("DE", "IL", "TX") for i in range(20)],
                levels={"state": [state for state in ("DE", "IL", "TX") for _ in range(20)]},
            ),
            sdp.Axis("sex", ["F", "M"]),
        ]
    )
    return sdp.Table(np.random.default_rng(1).integers(0, 3000, domain.shape), domain)


def with_levels(table: sdp.Table, budget: sdp.Budget | None = None) -> sdp.Release:
    """Cells, with noise for their states too."""
    given = budget or sdp.ZCDP(0.05)
    mechanism = sdp.design(table.domain, sdp.hold(), given, mechanism="marginals", decimals=0)
    return published(mechanism.release(table, seed=5))


def margins_alone(table: sdp.Table, budget: sdp.Budget | None = None) -> sdp.Release:
    query = sdp.Margins(table.domain, [["county"], ["state", "sex"]], weights=[1, 3])
    given = budget or sdp.ZCDP(0.05)
    mechanism = sdp.design(query, sdp.hold("state"), given, mechanism="auto", decimals=0)
    return published(mechanism.release(table, seed=5))


@pytest.fixture(scope="session")
def table() -> sdp.Table:
    return counties()


@pytest.fixture(scope="session")
def seeded(table: sdp.Table) -> sdp.Release:
    mechanism = sdp.design(table.domain, sdp.hold("state"), sdp.PureDP(0.2), decimals=0)
    return mechanism.release(table, seed=5)


@pytest.fixture(scope="session")
def release(seeded: sdp.Release) -> sdp.Release:
    return published(seeded)


@pytest.fixture(scope="session")
def page(release: sdp.Release) -> str:
    return write_report(release, title="Counties")


@pytest.fixture(scope="session")
def hostile() -> sdp.Release:
    domain = sdp.Domain([sdp.Axis("<b>place</b>", HOSTILE, from_data=True)])
    table = sdp.Table([10, 200, 30, 40, 50, 6], domain)
    mechanism = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0), neighbours=sdp.AddRemoveOne())
    return published(mechanism.release(table, seed=5))


@pytest.fixture(scope="session")
def large() -> sdp.Release:
    domain = sdp.Domain(
        [
            sdp.Axis("place", range(100)),
            sdp.Axis("age", range(100), levels={"decade": [i // 10 for i in range(100)]}),
            sdp.Axis("sex", range(10)),
        ]
    )
    table = sdp.Table(np.random.default_rng(2).integers(0, 1000, domain.shape), domain)
    held = sdp.hold("place") & sdp.hold("decade", "sex")
    return published(sdp.design(domain, held, sdp.PureDP(1.0), decimals=0).release(table, seed=5))
