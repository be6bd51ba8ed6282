"""What leaves a party says nothing but the noisy measurement and the held figures.

Two data sets with the same of both are published to the last byte alike, by every mechanism, by
agents, in blocks, and as whole publications with margins and report.
"""

import numpy as np
import pytest
from tests.attacks.designs import PAIRS, random_design
from tests.attacks.interception import Sampler, intercepted, numbers
from tests.attacks.test_neighbours import AGENTS, each_pair, plans
from tests.attacks.test_ways import BLOCK, streamable
from tests.attacks.views import answers, both, content, figures, unseen_change
from tests.strategies import using

from subspacedp.agents import Secret, collect, privatize
from subspacedp.noise import ReleaseKeys
from subspacedp.queries import LocalEntries

PER_PAIR, MOST_SEEDS = 2, 30


def pairs_of(case, seed):
    """Two data sets with the same held figures, or None."""
    rng = np.random.default_rng(seed)
    change = unseen_change(case, rng)
    if change is None:
        return None
    x = case.numbers(rng)
    query = case.mechanism.query
    if isinstance(query, LocalEntries):
        width = query.upper - query.lower
        if width <= 2 * np.abs(change).max():
            return None
        x = np.full(case.size, query.lower + width // 2)
    other = x + change
    if np.array_equal(answers(case, x), answers(case, other)):
        return None  # nothing to tell apart
    if case.mechanism.capped:
        return x, other
    assert figures(case, x) == figures(case, other)
    return x, other


def attacked(name, query, number=PER_PAIR, seeds=range(MOST_SEEDS)):
    """Random designs with two data sets that they must not tell apart."""
    done = 0
    for seed in seeds:
        case = random_design(seed, name, query)
        pair = pairs_of(case, seed)
        if pair is None:
            continue
        yield case, *pair
        done += 1
        if done == number:
            return
    assert done, f"{name} for {query.__name__} has no pair of data sets"


@pytest.fixture(autouse=True)
def same_id(monkeypatch):
    """Release ids are random; here they are the same for all."""
    monkeypatch.setattr(ReleaseKeys, "fresh", lambda context: ReleaseKeys.from_seed(1, context))


def saved(case, x, other, home):
    """The folders of both releases."""
    most = np.maximum(x, other)

    def work(numbers):
        if case.mechanism.capped:
            release = case.design.release(case.data(numbers), everything=case.data(most), seed=1)
        else:
            release = case.release(None, numbers)
        folder = home / str(len(list(home.iterdir())))
        release.save(folder)
        return content(folder), repr(release), str(release.verify())

    return both(case, x, other, work)


def check_saved(attacks, tmp_path):
    for number, (case, x, other) in enumerate(attacks):
        home = tmp_path / str(number)
        home.mkdir()
        one, two = saved(case, x, other, home)
        assert one == two, case.mechanism


@each_pair
def test_a_saved_release_says_nothing_else(name, query, tmp_path):
    check_saved(attacked(name, query), tmp_path)


@pytest.mark.soak
@each_pair
def test_hundreds_of_saved_releases_say_nothing_else(name, query, tmp_path):
    check_saved(attacked(name, query, 15, range(MOST_SEEDS, 10 * MOST_SEEDS)), tmp_path)


def test_noise_has_to_hide_the_pairs():
    """With the same noise on both, every one of them is told apart."""
    for name, query in PAIRS:
        case, x, other = next(attacked(name, query, 1))
        with intercepted(Sampler(numbers(6))):
            one, two = (case.release(None, numbers_).values for numbers_ in (x, other))
        assert one.tobytes() != two.tobytes(), case.mechanism


@pytest.mark.parametrize(("name", "query"), AGENTS)
def test_a_release_of_agents_says_nothing_else(name, query, tmp_path):
    """Parts of the projected mechanism too; masked parts: tests/attacks/test_dealer_bits.py."""
    done = 0
    for at, (case, plan) in enumerate(plans(name, query, range(MOST_SEEDS))):
        pair = None if plan is None else pairs_of(case, at)
        if pair is None:
            continue
        if done == PER_PAIR:
            break
        done += 1
        home, secret = tmp_path / str(at), Secret.fresh()
        home.mkdir()

        def work(x, plan=plan, home=home, secret=secret):
            record = home / f"record{len(list(home.iterdir()))}"
            parts = [
                privatize(plan, n, x[plan.partition.cells(n)], secret, record=record).part
                for n in plan.partition.names
            ]
            folder = home / f"folder{len(list(home.iterdir()))}"
            collect(plan, parts).save(folder)
            shown = [] if plan.masked else [p.values.tobytes() for p in parts]
            return shown, content(folder)

        one, two = both(case._replace(mechanism=plan.mechanism), *pair, work)
        assert one == two, plan.mechanism
    assert done


def test_a_release_in_blocks_says_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr("subspacedp.blocks.memory.LARGEST", BLOCK)
    done = 0
    for number, case in enumerate(streamable(8)):
        pair = pairs_of(case, number)
        if pair is None:
            continue
        done += 1

        def work(x, case=case):
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            counts = x.reshape(case.mechanism.query.shape)
            with using("compiled"):
                case.design.release_to(folder, counts, seed=1, store="npy")
            return content(folder)

        one, two = both(case, *pair, work)
        assert one == two
    assert done >= 2
