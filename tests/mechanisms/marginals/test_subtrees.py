"""A large table piece by piece: runs of whole subtrees give the release in memory, bit for bit."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.statistical import ALPHA

import subspacedp as sdp
from subspacedp.blocks import memory
from subspacedp.errors import DataError
from subspacedp.mechanisms.block_view import CountFacts, OnePiece
from subspacedp.mechanisms.marginals import Marginals, subtrees
from subspacedp.mechanisms.marginals.cell_rounding import SubtreeRounding
from subspacedp.mechanisms.marginals.measurement import ContrastMeasurement
from subspacedp.noise import Keystream, ReleaseKeys

SIZES = [4, 2, 5, 3, 1, 6, 2, 4]
TRACT = np.repeat(np.arange(8), SIZES)
BLOCKS = sdp.Axis(
    "block", range(27), levels={"tract": TRACT, "county": TRACT // 2, "state": TRACT // 4}
)
SEX = sdp.Axis("sex", ["F", "M", "X"])
AGE = sdp.Axis("age", range(4), levels={"adult": [0, 0, 1, 1]})
DOMAIN = sdp.Domain([BLOCKS, SEX, AGE])
MARGINS = [["state", "sex"], ["sex"], ["age"], ["tract"]]
PER_LABEL = 12

HELD = {
    "nothing": None,
    "the total": sdp.hold(),
    "states": sdp.hold("state"),
    "blocks, states by sex": sdp.hold("block") & sdp.hold("state", "sex"),
    "tracts by age, sexes": sdp.hold("tract", "age") & sdp.hold("sex"),
    "counties by adults": sdp.hold("county", "adult") & sdp.hold("state", "sex"),
}


def data(domain, *, capped=False):
    rng = np.random.default_rng(5)
    counts = rng.poisson(20, domain.shape)
    return counts, counts + rng.poisson(3, domain.shape) if capped else counts


def design(held, *, decimals=None, capped=False, budget=None, margins=MARGINS, domain=DOMAIN):
    return sdp.design(
        domain,
        held,
        budget or sdp.ZCDP(0.2),
        neighbours=sdp.ReplaceOne(records=2) if capped else None,
        mechanism=sdp.Marginals(margins=margins),
        decimals=decimals,
        capped=capped,
    )


def by_pieces(mechanism, keys, counts, full, cells, seed=0):
    """All pieces of both passes, in any order."""
    view = mechanism.blocks()
    boxes = view.boxes(cells)
    order = np.random.default_rng(seed).permutation(len(boxes))

    def of(box):
        return counts[box.lower[0] : box.upper[0]].reshape(-1).copy()

    parts = [view.first(keys, boxes[i], of(boxes[i])) for i in order]
    total = parts[0]
    for part in parts[1:]:
        total = view.add(total, part)
    shared = view.shared(total, keys, mechanism.held.sums(full))
    out = {boxes[i]: view.values(shared, keys, boxes[i], of(boxes[i])) for i in order}
    return np.concatenate([out[box] for box in boxes]).reshape(counts.shape), len(boxes)


def cut_below(monkeypatch, cells):
    monkeypatch.setattr(subtrees, "MAX_SUBTREE_CELLS", cells)


CASES = [(sdp.ZCDP(0.2), held) for held in HELD]
CASES += [(sdp.PureDP(1.0), held) for held in ("nothing", "counties by adults")]


@pytest.mark.parametrize("decimals", [None, 0, 1])
@pytest.mark.parametrize(("budget", "held"), CASES, ids=str)
def test_pieces_give_the_release_in_memory(monkeypatch, budget, held, decimals):
    uncut = design(HELD[held], decimals=decimals, budget=budget).mechanism
    counts, _ = data(DOMAIN)
    exact = uncut.held.sums(counts)
    keys = ReleaseKeys.from_seed(1, uncut.context)
    noisy = uncut.add_noise(counts, keys)
    values = uncut.reconstruct(noisy, exact, keys.stream("dither"))
    assert uncut.cut is None
    for cells in (1, 14 * PER_LABEL):
        cut_below(monkeypatch, cells)
        mechanism = Marginals(uncut.problem, uncut.strategy)
        assert mechanism.cut is not None
        in_memory = mechanism.reconstruct(noisy, exact, keys.stream("dither"))
        for most in (1, 100, 200):
            pieces, number = by_pieces(mechanism, keys, counts, counts, most, seed=most)
            assert number > 1
            assert pieces.dtype == in_memory.dtype
            assert np.array_equal(pieces, in_memory)
        # Where a table is cut decides nothing but which sums of fractions are rounded when.
        assert np.array_equal(in_memory, values)


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("held", [h for h in HELD if h != "nothing"])
def test_with_a_contribution_bound(monkeypatch, held, decimals):
    cut_below(monkeypatch, 1)
    mechanism = design(HELD[held], decimals=decimals, capped=True).mechanism
    counts, full = data(DOMAIN, capped=True)
    keys = ReleaseKeys.from_seed(2, mechanism.context)
    values, _ = by_pieces(mechanism, keys, counts, full, 100)
    exact = mechanism.held.sums(full)
    noisy = mechanism.add_noise(counts, keys)
    assert np.array_equal(values, mechanism.reconstruct(noisy, exact, keys.stream("dither")))
    if decimals == 0:
        sums = mechanism.held.sums(values)
        assert all(np.array_equal(a, b) for a, b in zip(sums, exact, strict=True))


@pytest.mark.parametrize("decimals", [None, 0])
def test_from_file_to_file_in_blocks(monkeypatch, tmp_path, decimals):
    cut_below(monkeypatch, 9 * PER_LABEL)
    monkeypatch.setattr(memory, "SMALLEST", 100)
    made = design(HELD["states"], decimals=decimals)
    counts, _ = data(DOMAIN)
    np.save(tmp_path / "counts.npy", counts)
    blocks = made.release_to(tmp_path / "out", tmp_path / "counts.npy", store="npy", seed=7)
    in_memory = made.release(sdp.Table(counts, DOMAIN), seed=7)
    assert len(made.mechanism.blocks().boxes(memory.block_cells(counts.size))) > 1
    assert np.array_equal(blocks.values, in_memory.values)
    assert blocks.verify().ok


def test_boxes_are_runs_of_whole_subtrees(monkeypatch):
    cut_below(monkeypatch, 9 * PER_LABEL)
    view = design(None).mechanism.blocks()
    level = view.mechanism.cut.level
    starts = {*view.mechanism.cut.tree.starts[level].tolist(), 27}
    for cells in (1, 7 * PER_LABEL, 10**6):
        boxes = view.boxes(cells)
        assert boxes[0].lower[0] == 0
        assert [b.lower[0] for b in boxes[1:]] == [b.upper[0] for b in boxes[:-1]]
        assert boxes[-1].upper == DOMAIN.shape
        assert all(b.lower[0] in starts for b in boxes)
    assert len(boxes) == 1


def test_what_cannot_be_cut_is_one_piece(monkeypatch):
    cut_below(monkeypatch, 1)
    shuffled = np.random.default_rng(1).permutation(27)
    levels = {name: codes[shuffled] for name, codes in BLOCKS.levels.items()}
    out_of_order = sdp.Domain([sdp.Axis("block", range(27), levels=levels), SEX])
    empty = np.zeros(DOMAIN.shape, bool)
    empty[0, 0, 0] = True
    one_piece = [
        design(None, domain=sdp.Domain([SEX, AGE, BLOCKS])),
        design(None, domain=out_of_order, margins=[["state"]]),
        design(sdp.zeros(empty)),
        sdp.design(sdp.Margins(DOMAIN, [["block", "sex"], ["state"]]), None, sdp.ZCDP(0.2)),
    ]
    assert all(isinstance(d.mechanism.blocks(), OnePiece) for d in one_piece)


def test_totals_beyond_float64_are_refused_before_noise(monkeypatch):
    cut_below(monkeypatch, 1)
    view = design(None).mechanism.blocks()
    view.check(CountFacts(largest=2**40, total=2**42))
    with pytest.raises(DataError, match=r"totals below 2\*\*43"):
        view.check(CountFacts(largest=2**40, total=2**43))


def test_variances_of_all_cells_need_no_table_of_them():
    for held in HELD.values():
        for decimals in (None, 0):
            mechanism = design(held, decimals=decimals).mechanism
            error = mechanism.expected_error().total
            assert mechanism.total_error() == pytest.approx(error, rel=1e-12)


# ------------------------------------------------------------------------ twins


class FromItsOwnStart(ContrastMeasurement):
    """Every piece takes the first words of the noise: two pieces would share them."""

    def add_noise(self, number, first, totals, keys):
        return super().add_noise(number, 0, totals, keys)


def test_a_twin_whose_pieces_share_noise_is_caught(monkeypatch):
    cut_below(monkeypatch, 1)
    mechanism = design(None).mechanism
    counts, _ = data(DOMAIN)
    keys = ReleaseKeys.from_seed(1, mechanism.context)
    right, _ = by_pieces(mechanism, keys, counts, counts, 100)
    old = mechanism.measurement
    mechanism.__dict__["measurement"] = FromItsOwnStart(old.errors, old.budget_shares)
    twin, _ = by_pieces(mechanism, keys, counts, counts, 100)
    assert not np.array_equal(right, twin)


def rounding_of(monkeypatch, held):
    cut_below(monkeypatch, 1)
    mechanism = design(held, decimals=0).mechanism
    counts, _ = data(DOMAIN)
    exact = mechanism.held.sums(counts)
    noisy = mechanism.add_noise(counts, ReleaseKeys.from_seed(3, mechanism.context))
    total = noisy[-1] if mechanism.total_measured else None
    measured = mechanism.measurement.contrasts(dict(enumerate(mechanism.measurement.split(noisy))))
    return mechanism.rounding.by_subtree, mechanism.estimate_of(measured, exact, total)


def is_unbiased(rounding: SubtreeRounding, estimate, forget: bool = False) -> bool:
    """Hoeffding's inequality for the mean of the roundings of every cell, two subtrees alone.

    The rounding of a cell is a signed sum of at most 2^axes draws with a range of one.
    """
    cut, draws = rounding.cut, 3000
    cells = estimate.table(0)
    carried = rounding.carry(
        estimate.totals(cut.level, estimate.interactions.published[0].steps), estimate.held_totals
    )
    if forget:
        carried = replace(carried, fraction=np.zeros_like(carried.fraction))
    piece = cut.tree.subtrees(cut.level, 2, 4)
    rows = slice(*piece.range)
    mean = np.zeros(cells[rows].shape)
    for i in range(draws):
        words = Keystream(i.to_bytes(32, "big"))
        mean += rounding.round(carried, piece, cells[rows], words) / draws
    roundings = 2 ** len(rounding.plan.axes)
    bound = math.sqrt(roundings * math.log(2 * mean.size / ALPHA) / (2 * draws))
    return bool(np.abs(mean - cells[rows]).max() < bound)


@pytest.mark.parametrize("held", ["states", "counties by adults"])
def test_a_subtree_is_rounded_without_bias(monkeypatch, held):
    rounding, estimate = rounding_of(monkeypatch, HELD[held])
    assert is_unbiased(rounding, estimate)


def test_a_twin_that_forgets_what_it_begins_from_is_caught(monkeypatch):
    """Fractions of sums before a piece left out: entries at its borders are moved up to a half."""
    rounding, estimate = rounding_of(monkeypatch, HELD["states"])
    assert not is_unbiased(rounding, estimate, forget=True)


def test_large_counts_keep_their_totals(monkeypatch):
    """Float64 loses fractions of totals near 2**42; what is held stays exact all the same."""
    cut_below(monkeypatch, 1)
    for held in HELD.values():
        mechanism = design(held, decimals=0).mechanism
        counts = np.random.default_rng(1).integers(0, 2**42 // 400, DOMAIN.shape)
        keys = ReleaseKeys.from_seed(4, mechanism.context)
        values, _ = by_pieces(mechanism, keys, counts, counts, 100)
        noisy = mechanism.add_noise(counts, keys)
        exact = mechanism.held.sums(counts)
        assert np.array_equal(values, mechanism.reconstruct(noisy, exact, keys.stream("dither")))
        sums = mechanism.held.sums(values)
        assert all(np.array_equal(a, b) for a, b in zip(sums, exact, strict=True))
        assert np.abs(values - counts).max() < 1000
