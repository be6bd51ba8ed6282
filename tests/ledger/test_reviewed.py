"""What a review tried to overspend with."""

from __future__ import annotations

import os

import pytest

import subspacedp as sdp
from subspacedp.errors import SubspaceDPError
from subspacedp.ledger import LedgerError, open_ledger, spend_of


def test_noise_for_exchanges_is_not_booked_for_a_person_who_leaves(tmp_path):
    """Along the null space of these invariants leaving costs ten times what an exchange does."""
    domain = sdp.Domain([sdp.Axis("a", range(4))])
    held = sdp.LinearInvariants([[1, -1, 0, 0], [0, 1, -1, 0], [0, 0, 9, -10]])
    extended = sdp.design(
        domain, held, sdp.GaussianDP(1.0), mechanism="extended", capped=True
    ).mechanism
    with open_ledger(tmp_path / "l.db") as ledger:
        ledger.create("people", sdp.GaussianDP(1.0), sdp.ReplaceOne(records=5))
        with pytest.raises(SubspaceDPError, match="can change the grand total"):
            ledger.reserve("people", [spend_of(extended)])
        # Noise on the counts themselves hides a leaving person as well as an exchanged one.
        projected = sdp.design(domain, sdp.hold(), sdp.GaussianDP(1.0), capped=True).mechanism
        ledger.reserve("people", [spend_of(projected)])


def test_a_ledger_with_two_names_is_refused(tmp_path):
    with open_ledger(tmp_path / "a.db") as ledger:
        ledger.create("people", sdp.PureDP(1.0), sdp.ReplaceOne())
    os.link(tmp_path / "a.db", tmp_path / "b.db")
    for name in ("a.db", "b.db"):
        with pytest.raises(LedgerError, match="second name"):
            open_ledger(tmp_path / name).account("people")


def test_a_loaded_release_spends_for_the_same_change(tmp_path):
    domain = sdp.Domain([sdp.Axis("a", range(4))])
    made = sdp.design(domain, sdp.hold(), sdp.PureDP(0.5)).release(sdp.Table([1, 2, 3, 4], domain))
    made.save(tmp_path / "r")
    loaded = sdp.Release.load(tmp_path / "r")
    assert sdp.compose([spend_of(made.mechanism), spend_of(loaded.mechanism)]).pure == 1.0
