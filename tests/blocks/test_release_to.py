"""A release in blocks is the release in memory, bit for bit, and keeps every invariant."""

import json
import os
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.blocks.tables import (
    COUNTS,
    DOMAIN,
    PAIRS,
    designed,
    digest_of,
    in_memory,
    same,
    saved,
)  # fmt: skip
from tests.strategies import domains, families, using

import subspacedp as sdp
from subspacedp.blocks import memory, passes, runners
from subspacedp.blocks.sources import ArraySource
from subspacedp.mechanisms import projected
from subspacedp.mechanisms.block_view import CountFacts
from subspacedp.noise import CellNoise, Keystream, ReleaseKeys
from subspacedp.release import drawing, verify_folder
from subspacedp.tables.domain import Box

HELD = {
    "pairs": PAIRS,
    "nested": sdp.hold("part", "c") & sdp.hold("kind"),
    "unordered": sdp.hold("kind", "part"),
    "total": sdp.hold(),
    "nothing": None,
}
MORE = COUNTS + np.random.default_rng(2).integers(0, 3, COUNTS.shape)


@pytest.mark.parametrize("decimals", [None, 0, 2])
@pytest.mark.parametrize("budget", [sdp.PureDP(0.5), sdp.ZCDP(0.1), sdp.PureDP(1e-4)], ids=str)
@pytest.mark.parametrize("held", HELD)
def test_blocks_give_the_release_in_memory(tmp_path, blocks_of, held, budget, decimals):
    blocks_of(9_001)
    design = designed(HELD[held], budget, decimals)
    drawn = design.release_to(tmp_path / "out", COUNTS, seed=7, store="npy")
    assert same(drawn, in_memory(design))
    assert drawn.verify().ok
    steps = np.rint(np.asarray(drawn.values) * 10 ** (decimals or 0)).astype(np.int64)
    if decimals is not None:
        for margin, total in zip(design.mechanism.held.margins, drawn.exact, strict=True):
            assert np.array_equal(margin.exact_sum(steps), total.astype(object) * 10**decimals)


@pytest.mark.parametrize("decimals", [None, 0, 2])
@pytest.mark.parametrize("held", HELD)
def test_a_contribution_bound_takes_two_tables(tmp_path, held, decimals):
    design = designed(HELD[held], None, decimals, capped=True)
    drawn = design.release_to(tmp_path / "out", COUNTS, everything=MORE, seed=7, store="npy")
    assert same(drawn, in_memory(design, COUNTS, MORE))
    assert drawn.verify().ok


def test_a_bound_and_the_number_of_tables_must_agree(tmp_path):
    for design, options in [
        (designed(capped=True), {}),
        (designed(), {"everything": COUNTS}),
    ]:
        with pytest.raises(sdp.SubspaceDPError, match="capped=True"):
            design.release_to(tmp_path / "out", COUNTS, **options)
    assert list(tmp_path.iterdir()) == []


@given(st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_domain_any_margins_any_blocks(tmp_path_factory, blocks_of, data):
    domain = data.draw(domains())
    try:
        design = sdp.design(
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
    store = data.draw(st.sampled_from(["csv", "npy", "parquet"]))
    with using(data.draw(st.sampled_from(["numpy", "compiled"]))):
        wanted = design.release(sdp.Table(counts, domain), seed=1)
        blocks_of(data.draw(st.integers(1, 80)))
        drawn = design.release_to(folder, counts, seed=1, store=store)
        assert same(drawn, wanted)
        assert verify_folder(folder).ok


OTHERS = {
    "extended": (DOMAIN, sdp.hold("a"), sdp.ZCDP(0.1), "extended"),
    "discrete": (DOMAIN, sdp.hold("a"), sdp.ZCDP(0.1), "discrete"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_mechanisms_go_the_same_way(tmp_path, case):
    domain, held, budget, name = OTHERS[case]
    design = sdp.design(domain, held, budget, mechanism=name)
    drawn = design.release_to(tmp_path / "out", COUNTS, seed=7, store="npy")
    assert same(drawn, in_memory(design))
    assert verify_folder(tmp_path / "out").ok


SMALL = sdp.Domain([sdp.Axis("x", range(3)), sdp.Axis("y", range(2))])
FEW = np.arange(6).reshape(3, 2)
ONE_PIECE = {
    "margins": (sdp.Margins(SMALL, [["x"], ["y"]]), None, "marginals"),
    "tables": (SMALL, sdp.hold("x"), "marginals"),
    "rows": (SMALL, sdp.LinearInvariants(np.array([[1, 2, 0, 0, 0, 1]])), "projected"),
    "zeros": (SMALL, sdp.hold("x") & sdp.zeros(FEW == 0), "projected"),
}


@pytest.mark.parametrize("store", ["csv", "npy"])
@pytest.mark.parametrize("case", ONE_PIECE)
def test_designs_that_are_made_as_one_piece(tmp_path, case, store):
    query, held, name = ONE_PIECE[case]
    design = sdp.design(query, held, sdp.PureDP(1.0), mechanism=name)
    table = sdp.Table(FEW, SMALL)
    drawn = design.release_to(tmp_path / "out", table, seed=7, store=store)
    assert same(drawn, design.release(table, seed=7))
    assert verify_folder(tmp_path / "out").ok
    assert same(sdp.load(tmp_path / "out"), drawn)


def test_a_matrix_query(tmp_path):
    design = sdp.design(sdp.LinearQuery(np.eye(3)), None, sdp.PureDP(1.0), mechanism="projected")
    table = sdp.Table([1, 2, 3], sdp.Domain([sdp.Axis("x", range(3))]))
    drawn = design.release_to(tmp_path / "out", table, seed=7)
    assert same(drawn, design.release(table, seed=7))
    with pytest.raises(sdp.SubspaceDPError, match="query of its cells"):
        design.release_to(tmp_path / "other", np.array([1, 2, 3]))


def test_the_certificate_is_that_of_the_release_in_memory(tmp_path):
    design = designed()
    wanted = in_memory(design).certificate()
    drawn = design.release_to(tmp_path / "out", COUNTS, seed=7, store="npy")
    written = json.loads((tmp_path / "out" / "certificate.json").read_text("utf-8"))
    assert written["values"].pop("store") == "npy"
    for stated, tree in ((wanted, False), (written, True)):
        digest = stated["values"].pop("sha256")
        assert digest == digest_of(saved(drawn.values), tree=tree)
    assert json.loads(json.dumps(wanted)) == written
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["certificate.json", "digests.json", "error-model.json", "values.npy"]
    again = sdp.load(tmp_path / "out")
    assert again.sha256 == drawn.sha256
    assert isinstance(again.values, np.memmap)


def test_the_store_is_chosen_by_the_number_of_figures_alone(tmp_path, monkeypatch):
    design = designed()
    assert design.release_to(tmp_path / "rows", COUNTS, seed=7).stored is None
    in_memory(design).save(tmp_path / "saved")
    rows, saved = ((tmp_path / name) for name in ("rows", "saved"))
    for name in ("values.csv", "values.parquet", "certificate.json", "digests.json"):
        assert (rows / name).read_bytes() == (saved / name).read_bytes()
    monkeypatch.setattr(drawing, "MAX_LABELLED", COUNTS.size - 1)
    assert design.release_to(tmp_path / "npy", COUNTS, seed=7).stored.kind == "npy"


@pytest.mark.parametrize("store", ["csv", "npy", "parquet", "zarr"])
def test_files_do_not_depend_on_memory_or_threads(tmp_path, monkeypatch, store):
    design, files = designed(decimals=None), []
    for threads, limit in [("1", 1 << 20), ("2", None), ("5", 1 << 30)]:
        monkeypatch.setenv("SUBSPACEDP_THREADS", threads)
        out = tmp_path / threads
        design.release_to(out, COUNTS, seed=1, store=store, memory=limit)
        files.append(
            {p.relative_to(out): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}
        )
    assert files[0] == files[1] == files[2]


@pytest.mark.parametrize("store", ["csv", "npy"])
def test_files_do_not_depend_on_the_number_of_blocks(tmp_path, blocks_of, store):
    design, files = designed(decimals=2), []
    for cells in (1_000, 9_900, COUNTS.size):
        blocks_of(cells)
        out = tmp_path / str(cells)
        design.release_to(out, COUNTS, seed=1, store=store)
        files.append({p.name: p.read_bytes() for p in sorted(out.iterdir())})
    assert files[0] == files[1] == files[2]


def test_fresh_keys_give_fresh_noise(tmp_path):
    first, second = (designed().release_to(tmp_path / name, COUNTS) for name in ("one", "two"))
    assert first.release_id != second.release_id
    assert not np.array_equal(first.values, second.values)
    assert not first.seeded


# ----------------------------------------------------------------------------- broken twins


@pytest.mark.parametrize("twin", ["dither restarts with a block", "noise restarts with a block"])
def test_a_twin_that_counts_words_from_the_block_is_caught(tmp_path, monkeypatch, twin):
    """Words by the number in the block: held totals may still fit, the release does not."""
    if twin.startswith("noise"):
        add = CellNoise.add

        def shifted(self, starts, length, base, out):
            add(self, starts - starts[0], length, base, out)

        monkeypatch.setattr(CellNoise, "add", shifted)
    else:
        subtract = projected.Correction.subtract

        class Restarted:
            def __init__(self, dither):
                self.dither = dither

            def words(self, start, count, scratch=None):
                return self.dither.words(start % 9_900, count, scratch)

        monkeypatch.setattr(
            projected.Correction,
            "subtract",
            lambda self, noisy, box, dither: subtract(self, noisy, box, Restarted(dither)),
        )
    drawn = designed().release_to(tmp_path / "o", COUNTS, seed=7, store="npy")
    assert not same(drawn, in_memory(designed()))


def test_a_twin_that_forgets_the_entries_before_a_block_breaks_totals(tmp_path, monkeypatch):
    from subspacedp.rounding import merged

    def alone(positions, places, inside):
        return merged.AxisRange(
            positions - positions[0], places, np.ones(len(positions), bool), tuple(inside)
        )

    monkeypatch.setattr(merged, "_with_predecessors", alone)
    drawn = designed().release_to(tmp_path / "out", COUNTS, seed=7, store="npy")
    assert not drawn.verify().ok


def test_a_twin_that_takes_the_residual_of_one_table_breaks_totals(tmp_path, monkeypatch):
    """With a contribution bound C·noise is not the residual: c counts other records."""
    monkeypatch.setattr(projected.ProjectedBlocks, "reads_first", False)
    design = designed(capped=True)
    drawn = design.release_to(tmp_path / "out", COUNTS, everything=MORE, seed=7, store="npy")
    assert not drawn.verify().ok


# ------------------------------------------------------------------------- the data are read


class Watched(ArraySource):
    """Counts that may be others from the n-th reading on."""

    def __init__(self, counts, changes_at=None):
        super().__init__(counts)
        self.reads, self.changes_at, self.lock = [], changes_at, threading.Lock()

    def read(self, box, shape, out):
        super().read(box, shape, out)
        with self.lock:
            self.reads.append(box)
            if self.changes_at is not None and len(self.reads) > self.changes_at:
                out[0] += 1


def test_the_noise_is_measured_without_the_data(tmp_path, monkeypatch):
    """The first pass reads nothing: the residual depends on the keys alone."""
    watched, before = Watched(COUNTS), []
    shared = projected.ProjectedBlocks.shared
    monkeypatch.setattr(
        projected.ProjectedBlocks,
        "shared",
        lambda self, *a: (before.append(len(watched.reads)), shared(self, *a))[1],
    )
    designed().release_to(tmp_path / "out", watched)
    blocks = len(set(watched.reads))
    assert before == [blocks]  # looked at, and no more
    assert len(watched.reads) == 2 * blocks


@pytest.mark.parametrize("late", [0, 3, 8])
def test_a_table_that_changes_while_it_is_read_is_refused(tmp_path, late):
    watched = Watched(COUNTS, changes_at=9 + late)  # after the survey of nine blocks
    with pytest.raises(sdp.SubspaceDPError, match="same noise must not serve other data") as told:
        designed().release_to(tmp_path / "out", watched)
    assert told.value.changed
    assert list(tmp_path.iterdir()) == []


def test_the_first_pass_over_two_tables_compares_too(tmp_path):
    watched = Watched(COUNTS, changes_at=9)
    with pytest.raises(sdp.SubspaceDPError, match="same noise must not serve other data"):
        designed(capped=True).release_to(tmp_path / "out", watched, everything=MORE)


def test_a_twin_without_tags_releases_a_mixture(tmp_path, monkeypatch):
    """Why blocks are tagged: values of one table, held totals of another."""
    monkeypatch.setattr(passes.BlockTags, "of", lambda *a: bytes(16))
    drawn = designed().release_to(tmp_path / "out", Watched(COUNTS, changes_at=9), store="npy")
    assert not drawn.verify().ok


def test_the_tag_of_a_survey_is_of_the_data_and_says_nothing_without_its_key():
    design = designed(capped=True)
    tables = [ArraySource(t) for t in (COUNTS, MORE)]
    known = drawing.look_at(design, *tables)
    again = drawing.look_at(design, *tables, tag_key=known.tag_key)
    assert again.tag == known.tag
    assert drawing.look_at(design, *tables).tag != known.tag  # another key
    for which in (0, 1):
        changed = [t.copy() for t in (COUNTS, MORE)]
        changed[which][40, 29, 65] += 1
        other = drawing.look_at(design, *map(ArraySource, changed), tag_key=known.tag_key)
        assert other.tag != known.tag
    assert "hidden" in repr(known)
    assert known.tag_key.hex() not in repr(known)


def test_tags_are_of_a_place_and_a_content():
    one, two = (passes.BlockTags(bytes([i]) * 32) for i in (1, 2))
    content = np.arange(1000)
    tag = one.of(0, 3, content)
    assert tag == one.of(0, 3, content.copy())
    assert len({tag, two.of(0, 3, content), one.of(0, 4, content), one.of(1, 3, content)}) == 4
    content[500] += 1
    assert tag != one.of(0, 3, content)
    assert "hidden" in repr(one)


# --------------------------------------------------------------------------------- refusals

REFUSED = {
    "negative": (
        np.where(np.arange(41 * 30 * 66) == 70_000, -1, 1).reshape(41, 30, 66),
        "1 count is negative",
    ),
    "too large": (np.full((41, 30, 66), 2**50), "2..62"),
    "wide": (np.full((41, 30, 66), 2**63, np.uint64), "2..62"),
    "floats": (np.zeros((41, 30, 66)), "whole numbers"),
    "shape": (np.zeros((41, 30, 65), int), "shape"),
    "nothing like a table": ({"a": 1}, "Table"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_tables_are_refused_in_one_sentence_and_leave_nothing(tmp_path, case):
    source, words = REFUSED[case]
    with pytest.raises(sdp.SubspaceDPError, match=words) as told:
        designed().release_to(tmp_path / "out", source)
    assert str(told.value).count(".") <= 2
    assert list(tmp_path.iterdir()) == []


def test_counts_beyond_real_numbers_are_refused(tmp_path):
    with pytest.raises(sdp.SubspaceDPError, match="decimals=0"):
        designed(decimals=None).release_to(tmp_path / "out", np.full(DOMAIN.shape, 2**44))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("in_blocks", [False, True])
def test_totals_that_cannot_be_met_are_refused_before_noise_is_drawn(
    tmp_path, monkeypatch, in_blocks
):
    """Totals of all records, with decimals: a correction to them would leave 64 bits."""
    design, more = designed(sdp.hold(), None, 2, capped=True), COUNTS + 2**41

    def release():
        if in_blocks:
            return design.release_to(tmp_path / "out", COUNTS, everything=more, store="npy")
        return design.release(sdp.Table(COUNTS, DOMAIN), everything=sdp.Table(more, DOMAIN))

    def no_noise(*_arguments):
        raise AssertionError

    monkeypatch.setattr(Keystream, "words", no_noise)
    with pytest.raises(sdp.SubspaceDPError, match="totals are too large for 2 decimals"):
        release()
    assert list(tmp_path.iterdir()) == []


def test_filled_cells_that_must_be_empty_are_refused(tmp_path):
    design = sdp.design(SMALL, sdp.zeros(FEW == 3), sdp.PureDP(1.0), mechanism="projected")
    with pytest.raises(sdp.SubspaceDPError, match="1 of the cells declared empty"):
        design.release_to(tmp_path / "out", FEW)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"store": "xml"}, "store"),
        ({"memory": "2GiB"}, "memory"),
        ({"memory": 1000}, "MB may be taken"),
        ({"seed": "x"}, "seed"),
    ],
)
def test_bad_options(tmp_path, options, words):
    with pytest.raises(sdp.SubspaceDPError, match=words):
        designed().release_to(tmp_path / "out", COUNTS, **options)
    assert list(tmp_path.iterdir()) == []


def test_one_piece_that_does_not_fit_is_refused_before_anything_is_drawn(tmp_path, monkeypatch):
    design = sdp.design(DOMAIN, sdp.hold("a"), sdp.ZCDP(0.1), mechanism="extended")
    with pytest.raises(sdp.SubspaceDPError, match="made as one block"):
        design.release_to(tmp_path / "out", COUNTS, memory=1 << 20)
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 20)
    monkeypatch.setattr(memory, "LEAST_MEMORY", 1 << 20)
    with pytest.raises(sdp.SubspaceDPError, match="made as one block"):
        design.release_to(tmp_path / "out", COUNTS)


def test_an_existing_folder_is_never_touched(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(sdp.SubspaceDPError, match="exists already"):
        designed().release_to(tmp_path / "out", COUNTS)
    assert list((tmp_path / "out").iterdir()) == []


def test_too_little_room_is_told_before_anything_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: Room)
    with pytest.raises(sdp.SubspaceDPError, match="room"):
        designed().release_to(tmp_path / "out", COUNTS, store="npy")
    assert list(tmp_path.iterdir()) == []


class Room:
    free = 1000


# -------------------------------------------------------------------------- how it goes on


def test_progress_tells_how_long_it_takes(tmp_path):
    reports = []
    designed().release_to(tmp_path / "out", COUNTS, progress=reports.append)
    assert list(dict.fromkeys(p.stage for p in reports)) == ["reading", "first pass", "second pass"]
    assert reports[-1].done == reports[-1].total == DOMAIN.size
    assert reports[-1].left == 0
    assert all(p.left is not None for p in reports if p.done)
    assert "second pass: 100 %, 0 s left" in str(reports[-1])
    assert str(COUNTS.sum()) not in " ".join(map(repr, reports))


@pytest.mark.parametrize("stage", ["reading", "first pass", "second pass"])
def test_an_interrupt_leaves_no_thread_and_no_file(tmp_path, stage):
    def stop(progress):
        if progress.stage == stage and progress.done:
            raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        designed().release_to(tmp_path / "out", COUNTS, progress=stop)
    assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_one_thread_ends_all(tmp_path, monkeypatch):
    values, lock, calls = projected.ProjectedBlocks.values, threading.Lock(), []

    def scarce(self, *arguments):
        with lock:
            calls.append(1)
            if len(calls) == 3:
                raise MemoryError
        return values(self, *arguments)

    monkeypatch.setattr(projected.ProjectedBlocks, "values", scarce)
    with pytest.raises(MemoryError):
        designed().release_to(tmp_path / "out", COUNTS)
    assert list(tmp_path.iterdir()) == []


def test_memory_bounds_the_blocks_that_are_worked_on(monkeypatch):
    view = designed().mechanism.blocks()
    each = 9_900 * view.bytes_per_cell
    monkeypatch.setattr(memory, "thread_count", lambda: 64)
    assert memory.blocks_at_once(view, 9_900, each) == 1
    assert memory.blocks_at_once(view, 9_900, 5 * each) == 5
    monkeypatch.setattr(memory, "MOST_AT_ONCE", 3 * each)
    assert memory.blocks_at_once(view, 9_900, 1 << 40) == 3


def test_results_come_in_order_and_memory_is_used_again():
    boxes = designed().mechanism.blocks().boxes(5_000)
    rooms = set()

    def task(number, box, room):
        rooms.add(room.__array_interface__["data"][0])
        room[:] = number
        return int(room[-1])

    results = runners.Threads(3).each(task, list(enumerate(boxes)))
    assert list(results) == list(range(len(boxes)))
    assert len(rooms) <= 3


def done_for_nobody(number):
    """Pieces that two threads do for somebody who asks for one result."""
    pieces = list(enumerate(Box((at,), (at + 1,)) for at in range(number)))
    done, last = [], threading.Event()

    def task(piece, box, room):
        done.append(piece)
        if piece == number - 1:
            last.set()

    results = runners.Threads(2).each(task, pieces)
    next(results)
    last.wait(0.5)
    results.close()
    return len(done)


def test_results_that_nobody_asks_for_are_few(monkeypatch):
    assert done_for_nobody(2_000) <= 2 * runners.AHEAD
    monkeypatch.setattr(runners, "AHEAD", 2_000)  # a twin that begins them all
    assert done_for_nobody(2_000) == 2_000


def test_no_file_stays_open(tmp_path):
    np.save(tmp_path / "table.npy", COUNTS)
    before = len(os.listdir("/proc/self/fd"))
    designed().release_to(tmp_path / "out", tmp_path / "table.npy", store="npy")
    assert len(os.listdir("/proc/self/fd")) <= before


# ---------------------------------------------------------------------------- what is shown


def test_altered_values_and_certificates_are_found(tmp_path):
    designed().release_to(tmp_path / "out", COUNTS, seed=7, store="npy")
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
    assert failed == {
        "digests", "the certificate follows from its design", "error-model.json"
    }  # fmt: skip
    with pytest.raises(sdp.SubspaceDPError, match="altered"):
        sdp.load(tmp_path / "out")


def test_totals_that_wrap_64_bits_are_not_believed():
    from subspacedp.release.verify import _Totals

    totals = _Totals(designed(sdp.hold("a")).mechanism.held)
    values = np.full(DOMAIN.shape, 2**62)
    totals.add(Box((0, 0, 0), DOMAIN.shape), values.reshape(-1))
    assert totals.result()[0].ravel().tolist() == [2**62 * 30 * 66] * 41


def test_confidential_facts_are_not_shown():
    assert "987654321" not in repr(CountFacts.of(np.array([3, 987_654_321])))
    keys = ReleaseKeys.from_seed(1, b"x")
    shown = repr(CellNoise(designed().mechanism.law, keys))
    assert keys.subkey("noise/0").hex() not in shown


def test_figures_of_values_in_a_store(tmp_path):
    """Margins are added up block by block; whole numbers are the same, real ones to rounding."""
    for decimals, name in [(0, "whole"), (None, "real")]:
        design = designed(decimals=decimals)
        drawn = design.release_to(tmp_path / name, COUNTS, seed=7, store="npy")
        wanted = in_memory(design)
        for margin in (["part", "c"], ["kind"], []):
            found, known = drawn.margin(*margin), wanted.margin(*margin)
            assert found.values == pytest.approx(known.values, rel=1e-12, abs=1e-9)
            assert np.array_equal(found.stderr, known.stderr)
        assert np.array_equal(drawn.stderr(), wanted.stderr())
        ours, theirs = (r.estimate(r.where(part=1, c=3)) for r in (drawn, wanted))
        assert float(ours.values) == pytest.approx(float(theirs.values))
