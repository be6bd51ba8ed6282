"""Accounts, reservations and what they add up to, in SQLite and in PostgreSQL."""

import json
import math
import stat
import tempfile
import threading
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.errors import SubspaceDPError
from subspacedp.ledger import (
    DamageError,
    LedgerError,
    LimitError,
    Reservation,
    State,
    invariants_of,
    open_ledger,
    spend_of,
)
from subspacedp.privacy import AddRemoveOne, ReplaceOne
from subspacedp.privacy.composition import Spend

ONE = ReplaceOne()
DOMAIN = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])


def spend(budget, neighbours=ONE, **more):
    return Spend(budget=budget, neighbours=neighbours, **more)


@pytest.fixture
def ledger(address):
    with open_ledger(address, patience=2.0) as ledger:
        ledger.create("census", sdp.PureDP(1.0), ONE, note="2010")
        yield ledger


def done(ledger, account, *spends, **more):
    reservation = ledger.reserve(account, list(spends), **more)
    reservation.drawing()
    ids = [f"{reservation.number:030x}{k:02x}" for k in range(len(spends))]
    reservation.commit(ids, "folder", ["0" * 64] * len(spends))
    return reservation


# -------------------------------------------------------------------------------------- spending


def test_an_account_pays_until_nothing_is_left(ledger):
    done(ledger, "census", spend(sdp.PureDP(0.3)), spend(sdp.PureDP(0.4)), note="two tables")
    assert ledger.totals("census").pure == 0.7
    assert ledger.left("census") == "ε = 0.3"
    with pytest.raises(LimitError) as caught:
        ledger.reserve("census", [spend(sdp.PureDP(0.31))])
    assert str(caught.value) == (
        "The account `census` has ε = 0.3 left of ε = 1, and this release would take what is "
        "spent from ε = 0.7 to ε = 1.01. Nothing was spent."
    )
    assert caught.value.left == "ε = 0.3"
    assert ledger.totals("census").pure == 0.7
    assert len(ledger.history("census")) == 1
    done(ledger, "census", spend(sdp.PureDP(0.3)))
    assert ledger.left("census") == "nothing"
    with pytest.raises(LimitError, match="has nothing left of ε = 1"):
        ledger.reserve("census", [spend(sdp.PureDP(1e-9))])


def test_several_releases_are_reserved_together_or_not_at_all(ledger):
    with pytest.raises(LimitError, match="these 3 releases"):
        ledger.reserve("census", [spend(sdp.PureDP(0.4))] * 3)
    assert ledger.history("census") == ()


@pytest.mark.parametrize(
    ("limit", "one", "fit", "left"),
    [
        (sdp.PureDP(1.0), sdp.PureDP(0.1), 10, "ε = 0.1"),
        (sdp.ZCDP(1.0), sdp.ZCDP(0.1), 10, "ρ = 0.1"),
        (sdp.GaussianDP(1.0), sdp.GaussianDP(0.5), 4, "μ = 0.5"),
        (sdp.ZCDP(0.02), sdp.PureDP(0.1), 4, "ρ = 0.005"),
    ],
)
def test_the_limit_says_how_spending_adds_up(tmp_path, limit, one, fit, left):
    ledger = open_ledger(tmp_path / "budget.db")
    ledger.create("a", limit, ONE)
    for _ in range(fit - 1):
        done(ledger, "a", spend(one))
    assert ledger.left("a") == left
    done(ledger, "a", spend(one))
    with pytest.raises(LimitError):
        ledger.reserve("a", [spend(one)])


def test_an_approximate_limit_composes_exactly_and_takes_all_kinds(tmp_path):
    ledger = open_ledger(tmp_path / "budget.db")
    ledger.create("a", sdp.ApproxDP(1.0, 1e-6), ONE)
    part = sdp.ApproxDP(0.25, 2.5e-7)
    for _ in range(4):  # what adds up to the limit always fits, and more than that does
        done(ledger, "a", spend(part))
    assert ledger.totals("a").epsilon(1e-6) < 0.6
    for kind in (
        spend(sdp.PureDP(0.05)),
        spend(sdp.ZCDP(0.001)),
        spend(sdp.ApproxDP(0.05, 1e-8), stated=True),
        spend(sdp.PureDP(0.01), AddRemoveOne()),
    ):
        done(ledger, "a", kind)
    total = ledger.totals("a")
    assert total.delta(1.0) <= 1e-6
    with pytest.raises(LimitError, match=r"left of ε = 1, δ = 1e-06") as caught:
        ledger.reserve("a", [spend(part)] * 30)
    assert "at δ = 1e-06" in caught.value.left
    assert caught.value.spent == pytest.approx(total.epsilon(1e-6))


@pytest.mark.parametrize(
    ("limit", "kind", "words"),
    [
        (sdp.PureDP(9.0), spend(sdp.ZCDP(0.1)), "counts ε of pure releases alone"),
        (sdp.GaussianDP(9.0), spend(sdp.PureDP(0.1)), "counts Gaussian noise alone"),
        (
            sdp.ZCDP(9.0),
            spend(sdp.ApproxDP(0.1, 1e-9), stated=True),
            r"cannot count a release of which only \(ε, δ\) is known",
        ),
    ],
)
def test_a_kind_that_the_accounting_cannot_count_is_refused(tmp_path, limit, kind, words):
    ledger = open_ledger(tmp_path / "budget.db")
    ledger.create("a", limit, ONE)
    with pytest.raises(LedgerError, match=words):
        ledger.reserve("a", [kind])
    assert ledger.history("a") == ()


def test_neighbour_relations_do_not_mix(ledger):
    ledger.create("events", sdp.PureDP(1.0), AddRemoveOne(), unit="household")
    with pytest.raises(
        LedgerError, match=r"The account `events` is for one person's record added "
    ):
        ledger.reserve("events", [spend(sdp.PureDP(0.1))])
    with pytest.raises(LedgerError, match="replacing a person says nothing about adding one"):
        ledger.check("events", [spend(sdp.PureDP(0.1))])
    assert ledger.totals("events").releases == 0
    done(ledger, "census", spend(sdp.PureDP(0.1), AddRemoveOne()))
    assert ledger.totals("census").pure == 0.2  # counts twice
    assert ledger.account("events").unit == "household"


def test_checking_spends_nothing(ledger):
    ledger.check("census", [spend(sdp.PureDP(1.0))])
    with pytest.raises(LimitError):
        ledger.check("census", [spend(sdp.PureDP(1.1))])
    assert ledger.history("census") == ()


# --------------------------------------------------------------------------------------- states


def test_an_entry_is_found_by_the_releases_it_pays_for(ledger):
    one = spend(sdp.PureDP(0.1))
    ids = ["a" * 32, "b" * 32]
    with pytest.raises(LedgerError, match="one item for each of the 1 releases; got 2"):
        ledger.reserve("census", [one], release_ids=ids)
    assert ledger.paid_for("census", ids) is None
    first = ledger.reserve("census", [one, one], release_ids=ids)
    ledger.reserve("census", [one])
    assert ledger.paid_for("census", ids).number == first.number
    assert ledger.paid_for("census", ids[:1]) is None
    assert ledger.paid_for("census", ids[::-1]) is None
    first.cancel()
    assert ledger.paid_for("census", ids) is None


def test_a_reservation_counts_until_it_is_cancelled(ledger):
    reservation = ledger.reserve("census", [spend(sdp.PureDP(0.6))], note="a")
    assert reservation.state is State.RESERVED
    assert ledger.left("census") == "ε = 0.4"
    reservation.cancel()
    assert reservation.state is State.CANCELLED
    assert ledger.left("census") == "ε = 1"
    assert [entry.state.words for entry in ledger.history("census")] == [
        "cancelled before noise was drawn"
    ]
    with pytest.raises(LedgerError, match="no noise may be drawn for it"):
        reservation.drawing()
    with pytest.raises(LedgerError, match="is cancelled: only one for which noise is being drawn"):
        reservation.commit(["0" * 32], "f", ["0" * 64])


def test_once_noise_may_be_drawn_nothing_is_given_back(ledger):
    reservation = ledger.reserve("census", [spend(sdp.PureDP(0.6))])
    reservation.drawing()
    with pytest.raises(LedgerError, match="what was drawn stays spent"):
        reservation.cancel()
    with pytest.raises(LedgerError, match="pays for one run"):
        reservation.drawing()
    assert [entry.state.words for entry in ledger.history("census")] == [
        "noise drawn, never committed"
    ]
    assert ledger.left("census") == "ε = 0.4"
    reservation.commit(["0" * 32], "f", ["0" * 64])
    with pytest.raises(LedgerError, match="is committed: only a reservation"):
        reservation.cancel()
    with pytest.raises(LedgerError, match="is committed: only one for which noise"):
        reservation.commit(["1" * 32], "f", ["0" * 64])
    assert ledger.history("census")[0].release_ids == ("0" * 32,)


def test_commit_wants_one_item_for_each_release(ledger):
    reservation = ledger.reserve("census", [spend(sdp.PureDP(0.1))] * 2)
    with pytest.raises(LedgerError, match="only one for which noise is being drawn"):
        reservation.commit(["0" * 32] * 2, "f", ["0" * 64] * 2)
    reservation.drawing()
    with pytest.raises(LedgerError, match="`release_ids` must have one item for each of the 2"):
        reservation.commit(["0" * 32], "f", ["0" * 64] * 2)
    with pytest.raises(LedgerError, match="`certificate_digests` must have"):
        reservation.commit(["0" * 32] * 2, "f", ["0" * 64])
    with pytest.raises(LedgerError, match="`held` must have one item"):
        reservation.commit(["0" * 32] * 2, "f", ["0" * 64] * 2, held=[])
    assert reservation.state is State.DRAWING


def test_a_reservation_of_a_process_that_died_can_be_cancelled_by_its_number(ledger, address):
    number = ledger.reserve("census", [spend(sdp.PureDP(0.6))]).number
    with open_ledger(address) as other:
        assert other.history("census")[0].state.words == "reserved, never committed"
        other.reservation(number).cancel()
    assert ledger.left("census") == "ε = 1"
    with pytest.raises(LedgerError, match="has no entry 999"):
        ledger.reservation(999)


def contest(ledger, kind, rounds):
    """How many of `drawing` and `cancel`, called at once on one entry, were allowed; each time."""
    allowed = []
    for _ in range(rounds):
        number = ledger.reserve("census", [spend(sdp.PureDP(0.001))]).number
        barrier, done = threading.Barrier(2), []

        def call(step, number=number, barrier=barrier, done=done):
            reservation = kind(ledger._database, number, 1)
            barrier.wait()
            try:
                getattr(reservation, step)()
            except LedgerError:
                return
            done.append(step)

        threads = [threading.Thread(target=call, args=(step,)) for step in ("drawing", "cancel")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        allowed.append(done)
        left_as = ledger.reservation(number).state
        if len(done) == 1:
            assert left_as is (State.DRAWING if done == ["drawing"] else State.CANCELLED)
    return allowed


class LookThenWrite(Reservation):
    """The broken twin: the state is looked at, and written in a second step."""

    def _step(self, before, after, also=None, **columns):
        from sqlalchemy import update

        from subspacedp.ledger.book import book_with, write_seal
        from subspacedp.ledger.database import tables

        if self.state is not before:
            raise LedgerError("No.")
        time.sleep(0.05)
        entries = tables().entries
        change = update(entries).where(entries.c.id == self.number).values(state=after.value)

        def write(con):
            book = book_with(con, self.number, lock=True)
            con.execute(change)
            write_seal(con, book.number)

        self._database.write(write)


def test_of_drawing_and_cancelling_at_once_one_wins(ledger):
    ledger._database.patience = 30.0
    assert all(len(done) == 1 for done in contest(ledger, Reservation, 12))
    assert any(len(done) == 2 for done in contest(ledger, LookThenWrite, 4))


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reserve", "reserve", "drawing", "commit", "cancel", "limit"]),
            st.integers(0, 5),
            st.integers(1, 40),
        ),
        max_size=20,
    )
)
def test_any_course_of_events_is_what_a_simple_model_says(steps):
    with tempfile.TemporaryDirectory() as folder, open_ledger(Path(folder) / "b.db") as ledger:
        ledger.create("a", sdp.PureDP(1.0), ONE)
        limit, entries, handles = 100, [], []  # hundredths of ε; [amount, state]
        for step, which, amount in steps:
            spent = sum(entry[0] for entry in entries if entry[1] != "cancelled")
            try:
                if step == "reserve":
                    fits = spent + amount <= limit
                    handles.append(ledger.reserve("a", [spend(sdp.PureDP(amount / 100))]))
                    entries.append([amount, "reserved"])
                elif step == "limit":
                    fits = amount * 4 >= spent
                    ledger.change_limit("a", sdp.PureDP(amount * 4 / 100))
                    limit = amount * 4
                elif which < len(entries):
                    before = "drawing" if step == "commit" else "reserved"
                    fits = entries[which][1] == before
                    if step == "commit":
                        handles[which].commit(["0" * 32], "f", ["0" * 64])
                    else:
                        getattr(handles[which], step)()
                    after = {"commit": "committed", "cancel": "cancelled", "drawing": "drawing"}
                    entries[which][1] = after[step]
                else:
                    continue
            except LedgerError:
                assert not fits
            else:
                assert fits
        assert [entry.state.value for entry in ledger.history("a")] == [e[1] for e in entries]
        spent = sum(entry[0] for entry in entries if entry[1] != "cancelled")
        assert ledger.totals("a").exact_pure == Fraction(spent, 100) <= Fraction(limit, 100)


def test_a_correction_is_linked_and_paid_for(ledger):
    first = done(ledger, "census", spend(sdp.PureDP(0.3)))
    release = ledger.history("census")[0].release_ids[0]
    second = done(ledger, "census", spend(sdp.PureDP(0.3)), replaces=first.number, note="fix")
    third = done(ledger, "census", spend(sdp.PureDP(0.3)), replaces=release)
    history = ledger.history("census")
    assert [entry.replaces for entry in history] == [None, first.number, first.number]
    assert history[0].replaced_by == (second.number, third.number)
    assert ledger.totals("census").pure == 0.9
    ledger.create("other", sdp.PureDP(1.0), ONE)
    for account, what, words in (
        ("other", first.number, f"has no entry {first.number} to replace"),
        ("census", 999, "has no entry 999 to replace"),
        ("census", "f" * 32, "has no release `f"),
    ):
        with pytest.raises(LedgerError, match=words):
            ledger.reserve(account, [spend(sdp.PureDP(0.1))], replaces=what)
    assert ledger.totals("census").pure == 0.9


# --------------------------------------------------------------------------------------- looking


def test_limits_change_but_not_below_what_is_spent(ledger):
    done(ledger, "census", spend(sdp.PureDP(0.3)))
    with pytest.raises(LimitError, match=r"has spent ε = 0.3: its limit cannot be ε = 0.2\."):
        ledger.change_limit("census", sdp.PureDP(0.2))
    with pytest.raises(LedgerError, match="counts Gaussian noise alone"):
        ledger.change_limit("census", sdp.GaussianDP(5.0))
    assert ledger.account("census").limit == sdp.PureDP(1.0)
    assert ledger.change_limit("census", sdp.PureDP(0.3), note="less").limit == sdp.PureDP(0.3)
    assert ledger.left("census") == "nothing"
    ledger.change_limit("census", sdp.ApproxDP(2.0, 1e-6), note="more")
    limits = ledger.export("census")["accounts"][0]["limits"]
    assert [limit["note"] for limit in limits] == ["opened", "less", "more"]
    assert limits[-1]["limit"] == {"name": "approximate", "epsilon": 2.0, "delta": 1e-6}


def test_the_invariants_of_all_releases_are_remembered(ledger):
    mechanism = sdp.design(DOMAIN, sdp.hold("age"), sdp.PureDP(0.25), decimals=0)
    other = sdp.design(DOMAIN, sdp.hold("sex"), sdp.PureDP(0.25))
    assert spend_of(mechanism.mechanism) == spend(sdp.PureDP(0.25))
    early = ledger.reserve(
        "census", [spend_of(mechanism.mechanism)], held=[invariants_of(mechanism.mechanism)]
    )
    early.drawing()  # and never committed: its totals may be out
    late = ledger.reserve("census", [spend_of(other.mechanism)])
    late.drawing()
    late.commit(["0" * 32], "f", ["0" * 64], held=[invariants_of(other.mechanism)])
    ledger.reserve("census", [spend_of(other.mechanism)]).cancel()
    unknown = ledger.reserve("census", [spend_of(other.mechanism)])
    found = ledger.invariants("census")
    assert [one["entry"] for one in found] == [early.number, late.number, unknown.number]
    assert [one["held"] for one in found] == [
        mechanism.mechanism.held.as_list(),
        other.mechanism.held.as_list(),
        None,
    ]
    assert found[0]["query"] == json.loads(
        json.dumps(DOMAIN and mechanism.mechanism.query.as_dict())
    )
    assert [one["release_id"] for one in found] == [None, "0" * 32, None]


def test_export_is_json_and_complete(ledger):
    done(ledger, "census", spend(sdp.PureDP(0.25)), note="first ☂")
    ledger.create("gauss", sdp.ApproxDP(1.0, 1e-6), ONE)
    done(ledger, "gauss", spend(sdp.ZCDP(0.01)))
    data = json.loads(json.dumps(ledger.export(), allow_nan=False))
    assert data["format"] == "subspacedp ledger 1"
    assert [account["name"] for account in data["accounts"]] == ["census", "gauss"]
    census, gauss = data["accounts"]
    assert census["totals"]["epsilon"] == 0.25
    assert census["totals"]["rho"] == 0.03125
    assert census["totals"]["mu"] is None
    assert gauss["totals"]["epsilon"] is None
    assert gauss["totals"]["mu"] == pytest.approx(math.sqrt(0.02), rel=1e-15)
    assert gauss["totals"]["epsilon_at_delta_1e-6"] < gauss["totals"]["epsilon_at_delta_1e-9"]
    assert census["entries"][0]["note"] == "first ☂"
    assert census["entries"][0]["status"] == "committed"
    assert census["note"] == "2010"
    assert [a["name"] for a in ledger.export("gauss")["accounts"]] == ["gauss"]


# ---------------------------------------------------------------------------------------- errors


def test_an_unknown_account_is_met_with_the_nearest_name(ledger):
    for call in (ledger.account, ledger.totals, ledger.history, ledger.left, ledger.invariants):
        with pytest.raises(LedgerError, match="no account `cencus`; did you mean `census`"):
            call("cencus")
    with pytest.raises(LedgerError, match="did you mean `census`"):
        ledger.reserve("Census", [spend(sdp.PureDP(0.1))])
    with pytest.raises(LedgerError, match=r"no account `zzz`; there is `census`\."):
        ledger.change_limit("zzz", sdp.PureDP(1.0))


def test_bad_arguments(ledger):
    with pytest.raises(LedgerError, match="has an account `census` already"):
        ledger.create("census", sdp.PureDP(2.0), ONE)
    with pytest.raises(LedgerError, match="`account` must be a text"):
        ledger.create(" ", sdp.PureDP(2.0), ONE)
    with pytest.raises(LedgerError, match="`limit` must be PureDP"):
        ledger.create("a", 1.0, ONE)
    with pytest.raises(LedgerError, match="`neighbours` must be"):
        ledger.create("a", sdp.PureDP(1.0), "replace-one")
    with pytest.raises(LedgerError, match="at least one Spend"):
        ledger.reserve("census", [])
    with pytest.raises(LedgerError, match="at least one Spend"):
        ledger.reserve("census", [sdp.PureDP(0.1)])
    with pytest.raises(LedgerError, match="`held` must have one item"):
        ledger.reserve("census", [spend(sdp.PureDP(0.1))], held=[])
    assert issubclass(LedgerError, SubspaceDPError)
    assert [account.name for account in ledger.accounts()] == ["census"]


def test_a_ledger_of_a_newer_version_is_left_alone(ledger, address):
    from sqlalchemy import update

    from subspacedp.ledger.database import tables

    def newer(con):
        con.execute(
            update(tables().meta).values(value="3").where(tables().meta.c.name == "version")
        )

    ledger._database.write(newer)
    with open_ledger(address) as other:
        for call in (
            lambda: other.accounts(),
            lambda: other.reserve("census", [spend(sdp.PureDP(0.1))]),
            lambda: other.create("b", sdp.PureDP(1.0), ONE),
        ):
            with pytest.raises(LedgerError, match="written by a newer version of subspacedp"):
                call()


def test_an_altered_entry_is_told(ledger):
    from sqlalchemy import update

    from subspacedp.ledger.database import tables

    ledger.reserve("census", [spend(sdp.PureDP(0.1))])
    ledger._database.write(lambda con: con.execute(update(tables().spends).values(spend="{}")))
    with pytest.raises(DamageError, match=r"is damaged \(an account is not as it was last written"):
        ledger.reserve("census", [spend(sdp.PureDP(0.1))])


def test_mode_of_a_new_file(tmp_path):
    ledger = open_ledger(tmp_path / "budget.db")
    assert not (tmp_path / "budget.db").exists()  # opening makes nothing
    ledger.create("census", sdp.PureDP(1.0), ONE)
    assert stat.S_IMODE((tmp_path / "budget.db").stat().st_mode) == 0o600
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
