"""Held totals of large counts, links to a secret, races, labels of any kind, entries in words."""

import os
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.distributed import (
    LocalEntries,
    Partition,
    Secret,
    collect,
    deal,
    make_plan,
    privatize,
    privatize_share,
    read_share,
)
from subspacedp.distributed.reading import answers_of_rows
from subspacedp.errors import DataError, DomainError, ReleaseError, SubspaceDPError

SECRET = Secret(bytes(range(1, 33)))


def halves(size, held, **more):
    domain = sdp.Domain([sdp.Axis("cell", range(size))])
    mechanism = sdp.design(domain, held, sdp.PureDP(0.3), mechanism="projected", **more)
    rules = {"x": {"cells": [[0, size // 2]]}, "y": {"cells": [[size // 2 + 1, size - 1]]}}
    return make_plan(mechanism, Partition.from_dict(domain, rules))


@pytest.mark.parametrize("bits", [20, 33, 36, 38, 40, 42])
@pytest.mark.parametrize("form", ["margin", "matrix"])
def test_held_totals_of_large_counts_are_exact_or_refused_beforehand(bits, form, tmp_path):
    size = 20_000
    held = sdp.hold() if form == "margin" else sdp.LinearInvariants(np.ones((1, size), int))
    plan = halves(size, held)
    x = np.random.default_rng(bits).integers(2 ** (bits - 1), 2**bits, size)
    try:
        parts = [
            privatize(plan, n, x[plan.partition.cells(n)], SECRET, record=tmp_path / "r").part
            for n in "xy"
        ]
    except ReleaseError:
        assert bits > 33
        assert not (tmp_path / "r").exists()
        return
    assert int(collect(plan, parts).exact[0].reshape(-1)[0]) == int(x.sum())


def test_totals_beyond_int64_are_one_sentence(tmp_path):
    domain = sdp.Domain([sdp.Axis("cell", range(5))])
    mechanism = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0), decimals=0)
    plan = make_plan(mechanism, Partition.by(domain, "cell"))
    parts = [
        privatize(plan, n, [2**61 + 2**60], SECRET, record=tmp_path / "r").part
        for n in plan.partition.names
    ]
    with pytest.raises(SubspaceDPError, match=r"beyond 2\*\*62"):
        collect(plan, parts)


def test_a_link_to_a_share_has_the_record_of_the_share(tmp_path):
    plan = halves(10, sdp.hold(), decimals=0)
    deal(plan, tmp_path / "shares")
    os.symlink(tmp_path / "shares" / "x.share", tmp_path / "link")
    own = np.arange(6)
    privatize_share(plan, read_share(tmp_path / "shares" / "x.share"), own)
    with pytest.raises(ReleaseError, match="privatised before"):
        privatize_share(plan, read_share(tmp_path / "link"), own + 1)


def test_of_many_at_once_one_is_served(tmp_path):
    plan = halves(10, sdp.hold(), decimals=0)

    def attempt(i):
        try:
            privatize(plan, "x", np.arange(6) + i, SECRET, record=tmp_path / "r")
        except ReleaseError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1


@pytest.mark.parametrize("label", [None, ["a"], {"a": 1}, True, 1.0])
def test_labels_of_any_kind_are_refused_in_one_sentence(label):
    domain = sdp.Domain([sdp.Axis("cell", [1, 2])])
    with pytest.raises(DomainError, match="has no label"):
        Partition.from_dict(domain, {"p": {"labels": {"cell": [label, 2]}}})


def test_fractions_and_axes_are_no_counts():
    domain = sdp.Domain([sdp.Axis("year", [2020, 2021])])
    mechanism = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0), decimals=0)
    plan = make_plan(mechanism, Partition.from_dict(domain, {"p": {"cells": [[0, 1]]}}))
    rows = {"year": [2020, 2021], "n": [Decimal("1.9"), Decimal("2")]}
    with pytest.raises(DataError, match="not a whole number"):
        answers_of_rows(plan, "p", rows)
    with pytest.raises(DataError, match="axis or level"):
        answers_of_rows(plan, "p", rows, value="year")


def test_entries_are_stated_for_a_person():
    people = sdp.Domain([sdp.Axis("person", range(4))])
    mechanism = sdp.design(LocalEntries(people, 0, 10), sdp.hold(), sdp.PureDP(1.0), decimals=0)
    assert "one person's own entry" in " ".join(mechanism.guarantee.sentences())
    certificate = mechanism.release(np.arange(4), seed=1).certificate()["guarantee"]
    assert "docs/proofs/agents.md" in certificate["proof"]
    assert any("Who has an entry is public" in line for line in certificate["not_protected"])
    assert not any("record" in line for line in certificate["not_protected"])
