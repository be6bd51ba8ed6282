"""A release in blocks is the release in memory, bit for bit, and keeps every invariant."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.distributed.streams import COUNTS, DOMAIN, PAIRS, mechanism, same
from tests.strategies import domains, families, using

import subspacedp as sdp
from subspacedp import distributed
from subspacedp.distributed import blocks as block_module
from subspacedp.distributed import passes, streaming
from subspacedp.noise import ReleaseKeys
from subspacedp.release import verify_folder

HELD = {
    "pairs": PAIRS,
    "nested": sdp.hold("part", "c") & sdp.hold("kind"),
    "unordered": sdp.hold("kind", "part"),
    "total": sdp.hold(),
    "nothing": None,
}


@pytest.mark.parametrize("decimals", [None, 0, 2])
@pytest.mark.parametrize("budget", [sdp.PureDP(0.5), sdp.ZCDP(0.1), sdp.PureDP(1e-4)], ids=str)
@pytest.mark.parametrize("held", HELD)
def test_blocks_give_the_release_in_memory(tmp_path, held, budget, decimals):
    made = mechanism(HELD[held], budget, decimals)
    memory = made.release(sdp.Table(COUNTS, DOMAIN), seed=7)
    streamed = distributed.stream_release(made, COUNTS, tmp_path / "out", seed=7, block_cells=9_001)
    assert same(streamed, memory)
    assert streamed.verify().ok
    steps = np.rint(np.asarray(streamed.values()) * 10 ** (decimals or 0)).astype(np.int64)
    if decimals is not None:
        for margin, total in zip(made.mechanism.held.margins, streamed.exact, strict=True):
            assert np.array_equal(margin.exact_sum(steps), total.astype(object) * 10**decimals)


@given(st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_domain_any_margins_any_blocks(tmp_path_factory, data):
    domain = data.draw(domains())
    try:
        made = sdp.design(
            domain,
            data.draw(families(domain)),
            sdp.PureDP(0.3),
            mechanism="projected",
            decimals=data.draw(st.sampled_from([None, 0, 1])),
        )
    except sdp.SubspaceDPError:
        return
    counts = np.arange(domain.size).reshape(domain.shape) % 17
    folder = tmp_path_factory.mktemp("any") / "out"
    engine = data.draw(st.sampled_from(["numpy", "compiled"]))
    with using(engine):
        memory = made.release(sdp.Table(counts, domain), seed=1)
        cells = data.draw(st.integers(1, 80))
        streamed = distributed.stream_release(made, counts, folder, seed=1, block_cells=cells)
        assert same(streamed, memory)
        assert streamed.verify().ok


def test_the_certificate_is_that_of_the_release_in_memory(tmp_path):
    made = mechanism()
    memory = made.release(sdp.Table(COUNTS, DOMAIN), seed=7).certificate()
    streamed = distributed.stream_release(made, COUNTS, tmp_path / "out", seed=7)
    written = json.loads((tmp_path / "out" / "certificate.json").read_text("utf-8"))
    errors = [c["values"].pop("expected_squared_error") for c in (memory, written)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-9)
    assert written["values"].pop("store") == "npy"
    assert json.loads(json.dumps(memory)) == written
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "certificate.json",
        "digests.json",
        "values.npy",
    ]
    again = distributed.load_stream(tmp_path / "out")
    assert again.sha256 == streamed.sha256


def test_fresh_keys_give_fresh_noise(tmp_path):
    made = mechanism()
    first, second = (
        distributed.stream_release(made, COUNTS, tmp_path / name) for name in ("one", "two")
    )
    assert first.release_id != second.release_id
    assert not np.array_equal(first.values(), second.values())
    assert not first.seeded


def test_threads_change_nothing(tmp_path, monkeypatch):
    made, digests = mechanism(decimals=None), set()
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("SUBSPACEDP_THREADS", threads)
        out = tmp_path / threads
        digests.add(distributed.stream_release(made, COUNTS, out, seed=1, block_cells=4000).sha256)
    assert len(digests) == 1


@pytest.mark.parametrize("twin", ["dither restarts with a block", "noise restarts with a block"])
def test_a_twin_that_counts_words_from_the_block_is_caught(tmp_path, monkeypatch, twin):
    """Words by the number in the block: held totals may still fit, the release does not."""
    made = mechanism()
    memory = made.release(sdp.Table(COUNTS, DOMAIN), seed=7)
    if twin.startswith("noise"):
        add = passes.CellNoise.add

        def shifted(self, starts, length, base, out):
            add(self, starts - starts[0], length, base, out)

        monkeypatch.setattr(passes.CellNoise, "add", shifted)
    else:
        words = passes.Reconstruction.apply

        class Restarted:
            def __init__(self, dither):
                self.dither = dither

            def words(self, start, count, scratch=None):
                return self.dither.words(start % 9_900, count, scratch)

        monkeypatch.setattr(
            passes.Reconstruction,
            "apply",
            lambda self, noisy, box, dither: words(self, noisy, box, Restarted(dither)),
        )
    streamed = distributed.stream_release(made, COUNTS, tmp_path / "o", seed=7, block_cells=9_900)
    assert not same(streamed, memory)


def test_a_twin_that_forgets_the_entries_before_a_block_breaks_totals(tmp_path, monkeypatch):
    from subspacedp.rounding import merged_parts

    def alone(positions, places, inside):
        return merged_parts.Stretch(
            positions - positions[0], places, np.ones(len(positions), bool), tuple(inside)
        )

    monkeypatch.setattr(merged_parts, "_with_predecessors", alone)
    streamed = distributed.stream_release(
        mechanism(), COUNTS, tmp_path / "out", seed=7, block_cells=9_900
    )
    assert not streamed.verify().ok


def test_the_noise_is_measured_without_the_data(tmp_path, monkeypatch):
    """The first pass reads nothing: the residual depends on the keys alone."""
    reads = []

    class Watched:
        shape, fingerprint = COUNTS.shape, "watched"

        def read(self, box, shape, out):
            reads.append(box)
            out[:] = COUNTS.reshape(-1)[: out.size] * 0

    seen = []
    first = streaming.first_pass
    monkeypatch.setattr(streaming, "first_pass", lambda *a: (first(*a), seen.append(len(reads)))[0])
    distributed.stream_release(mechanism(), Watched(), tmp_path / "out", block_cells=9_900)
    assert seen == [0]
    assert len(reads) == len(set(reads))  # and each block is read once


def test_progress_tells_how_long_it_takes(tmp_path):
    told = []
    distributed.stream_release(
        mechanism(), COUNTS, tmp_path / "out", block_cells=9_900, progress=told.append
    )
    assert {p.stage for p in told} == {"first pass", "second pass"}
    assert told[-1].done == told[-1].total == DOMAIN.size
    assert told[-1].left == 0
    assert all(p.left is not None for p in told if p.done)
    assert "second pass: 100 %, 0 s left" in str(told[-1])
    text = " ".join(map(repr, told))
    assert str(COUNTS.sum()) not in text


def test_altered_values_and_certificates_are_found(tmp_path):
    made = mechanism()
    distributed.stream_release(made, COUNTS, tmp_path / "out", seed=7)
    values = np.load(tmp_path / "out" / "values.npy", mmap_mode="r+")
    values[0, 0, 0] += 1
    values.flush()
    failed = {c.name for c in verify_folder(tmp_path / "out").checks if not c.ok}
    assert failed == {"digests", "files belong together", "values", "held totals are kept"}
    values[0, 0, 0] -= 1
    values.flush()
    path = tmp_path / "out" / "certificate.json"
    text = path.read_text("utf-8")
    path.write_text(text.replace('"epsilon": 0.5', '"epsilon": 0.4'), "utf-8")
    failed = {c.name for c in verify_folder(tmp_path / "out").checks if not c.ok}
    assert failed == {"digests", "the certificate follows from its design"}


def test_totals_that_wrap_64_bits_are_not_believed():
    held = mechanism(sdp.hold("a")).mechanism.held
    from subspacedp.release.kept_totals import _Totals
    from subspacedp.tables.boxes import Box

    totals = _Totals(held)
    values = np.full(DOMAIN.shape, 2**62)
    totals.add(Box((0, 0, 0), DOMAIN.shape), values.reshape(-1))
    assert totals.result()[0].ravel().tolist() == [2**62 * 30 * 66] * 41


REFUSED = {
    "negative": (
        np.where(np.arange(41 * 30 * 66) == 70_000, -1, 1).reshape(41, 30, 66),
        "negative",
    ),
    "too large": (np.full((41, 30, 66), 2**50), "2..62"),
    "wide": (np.full((41, 30, 66), 2**63, np.uint64), "2..62"),
    "floats": (np.zeros((41, 30, 66)), "whole numbers"),
    "shape": (np.zeros((41, 30, 65), int), "shape"),
    "nothing like a table": ({"a": 1}, "path"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_tables_are_refused_in_one_sentence_and_leave_nothing(tmp_path, case):
    source, words = REFUSED[case]
    with pytest.raises(sdp.SubspaceDPError, match=words) as told:
        distributed.stream_release(mechanism(), source, tmp_path / "out", block_cells=9_900)
    assert str(told.value).count(".") <= 2
    assert list(tmp_path.iterdir()) == []


def test_counts_beyond_real_numbers_are_refused(tmp_path):
    with pytest.raises(sdp.SubspaceDPError, match="decimals=0"):
        distributed.stream_release(
            mechanism(decimals=None), np.full(DOMAIN.shape, 2**44), tmp_path / "out"
        )
    assert list(tmp_path.iterdir()) == []


def test_designs_that_blocks_cannot_carry_out_are_refused(tmp_path):
    small = sdp.Domain([sdp.Axis("x", range(3))])
    query = sdp.design(sdp.LinearQuery(np.eye(3)), None, sdp.PureDP(1.0), mechanism="projected")
    rows = sdp.LinearInvariants(np.array([[1, 2, 0]]))
    cases = {
        "on its cells": [
            query,
            sdp.design(small, sdp.hold(), sdp.ZCDP(0.1), mechanism="extended"),
        ],
        "margins held": [sdp.design(small, rows, sdp.PureDP(1.0), mechanism="projected")],
        "capped": [
            sdp.design(small, sdp.hold(), sdp.PureDP(1.0), mechanism="projected", capped=True)
        ],
    }
    for words, designs in cases.items():
        for one in designs:
            with pytest.raises(sdp.SubspaceDPError, match=words):
                distributed.stream_release(one, np.zeros(3, int), tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "words"),
    [({"store": "csv"}, "store"), ({"block_cells": 0}, "block_cells"), ({"seed": "x"}, "seed")],
)
def test_bad_options(tmp_path, options, words):
    with pytest.raises(sdp.SubspaceDPError, match=words):
        distributed.stream_release(mechanism(), COUNTS, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_never_touched(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(sdp.SubspaceDPError, match="exists already"):
        distributed.stream_release(mechanism(), COUNTS, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_confidential_facts_are_not_shown():
    facts = block_module.BoxFacts.of(np.array([3, 987_654_321]))
    assert "987654321" not in repr(facts)
    keys = ReleaseKeys.from_seed(1, b"x")
    assert keys.subkey("noise/0").hex() not in repr(
        passes.CellNoise(mechanism().mechanism.law, keys)
    )
