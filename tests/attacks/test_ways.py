"""Blocks and agents hand the sampler the laws and words of the release in memory, and no other."""

from collections import Counter

import numpy as np
import pytest
from tests.attacks.designs import random_design
from tests.attacks.interception import Sampler, intercepted, numbers
from tests.attacks.test_neighbours import AGENTS, plans
from tests.strategies import using

import subspacedp as sdp
from subspacedp.agents import (
    Secret,
    collect,
    privatize,
    privatize_share,
    read_share,
)
from subspacedp.agents.secret import deal_with
from subspacedp.invariants import HeldMargins
from subspacedp.queries import Cells
from subspacedp.release.designs import Design

BLOCK = 2  # cells


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of two cells."""
    monkeypatch.setattr("subspacedp.blocks.memory.LARGEST", BLOCK)


def streamable(number):
    """Random designs that can be released in blocks."""
    found = []
    for seed in range(20 * number):
        case = random_design(seed, "projected", Cells)
        if (
            isinstance(case.mechanism.held, HeldMargins)
            and not case.mechanism.capped
            and case.size > 4
        ):
            found.append(case)
        if len(found) == number:
            return found
    raise AssertionError("too few random designs can be released in blocks")


def check_blocks(case, in_blocks):
    """Every cell has the law and the word of memory, once in a pass; values are the same."""
    x = case.numbers(np.random.default_rng(case.size))
    with using("compiled"):
        with intercepted(Sampler(numbers(3))) as whole:
            memory = case.release(None, x)
        with intercepted(Sampler(numbers(3))) as blocks:
            values = in_blocks(x.reshape(case.mechanism.query.shape))
    assert set(blocks.drawn) == set(whole.drawn)
    assert set(Counter(blocks.drawn).values()) == {2 if case.mechanism.held.margins else 1}
    assert len(whole.drawn) == len(set(whole.drawn)) == case.size
    assert np.asarray(values).tobytes() == memory.values.tobytes()


@pytest.mark.usefixtures("small_blocks")
def test_blocks_have_the_laws_and_words_of_memory(tmp_path):
    for number, case in enumerate(streamable(8)):

        def in_blocks(counts, case=case, number=number):
            folder = tmp_path / str(number)
            return case.design.release_to(folder, counts, seed=1, store="npy").values

        check_blocks(case, in_blocks)


@pytest.mark.usefixtures("small_blocks")
def test_a_block_with_the_words_of_another_is_caught(tmp_path):
    """The twin: every block counts its words from zero."""
    from subspacedp.noise import CellNoise

    (case,) = streamable(1)

    def in_blocks(counts):
        add = CellNoise.add

        def again(self, starts, length, base, out):
            add(self, np.asarray(starts) % BLOCK, length, base, out)

        # Undone before the interception is: what it finds here is its own stand-in.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CellNoise, "add", again)
            return case.design.release_to(tmp_path / "x", counts, seed=1, store="npy").values

    with pytest.raises((AssertionError, sdp.SubspaceDPError)):
        check_blocks(case, in_blocks)


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
@pytest.mark.parametrize(("name", "query"), AGENTS)
def test_agents_have_the_laws_and_words_of_one_with_all_data(name, query, engine, tmp_path):
    number = 0
    for at, (case, plan) in enumerate(plans(name, query, range(5))):
        if plan is None:
            continue
        number += 1
        secret, home = Secret.fresh(), tmp_path / str(at)
        home.mkdir()
        x = case.numbers(np.random.default_rng(at))
        table, names = x.reshape(plan.mechanism.query.shape), plan.partition.names
        with using(engine):
            with intercepted(Sampler(numbers(4))) as central:
                design = Design(plan.mechanism)
                wanted = design.release_with(secret.keys(plan), table, table, seeded=False)
            with intercepted(Sampler(numbers(4))) as common:
                parts = [
                    privatize(plan, n, x[plan.partition.cells(n)], secret, record=home / "record")
                    for n in names
                ]
                made = collect(plan, [p.part for p in parts])
            with intercepted(Sampler(numbers(4))) as dealer:
                deal_with(plan, home / "shares", secret)
            with intercepted(Sampler()) as nobody:  # who has a share draws nothing
                shares = [read_share(home / "shares" / f"{n}.share") for n in names]
                dealt = collect(
                    plan,
                    [privatize_share(plan, s, x[plan.partition.cells(s.part)]).part
                     for s in shares],
                )  # fmt: skip
        assert not nobody.drawn
        assert set(common.drawn) == set(dealer.drawn)
        assert set(dealer.drawn) <= set(central.drawn)
        if plan.masked:  # noise goes to one agent alone
            assert sorted(d.word for d in common.drawn) == sorted(d.word for d in central.drawn)
        for release in (made, dealt):
            assert release.values.tobytes() == wanted.values.tobytes()
            held = zip(release.exact, wanted.exact, strict=True)
            assert all(np.allclose(a, b, rtol=1e-9, atol=0) for a, b in held)
            assert not plan.mechanism.held.exact or all(
                np.array_equal(a, b) for a, b in zip(release.exact, wanted.exact, strict=True)
            )
    assert number
