"""Held values of all records over a bounded table, and `auto`."""

import json

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.errors import DataError, ReleaseError
from subspacedp.noise import ReleaseKeys
from subspacedp.release import Release, design, verify_folder
from subspacedp.release.designs import WORTH_WHILE

DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", list("abcde"), levels={"state": list("XXXYY")}),
        sdp.Axis("sex", ["F", "M"]),
    ]
)
ALL = np.arange(10).reshape(5, 2) * 3 + 4
BOUNDED = ALL - np.arange(10).reshape(5, 2)[::-1] % 4
EVERYTHING, TABLE = sdp.Table(ALL, DOMAIN), sdp.Table(BOUNDED, DOMAIN)
HELD = sdp.hold("state") & sdp.hold("sex")
RELATIONS = [sdp.ReplaceOne(), sdp.ReplaceOne(records=2), sdp.AddRemoveOne(records=3, per_cell=1)]


def capped(held=HELD, budget=None, **options):
    return design(DOMAIN, held, budget or sdp.PureDP(1.0), capped=True, **options)


def test_everything_is_needed_exactly_when_the_design_is_capped():
    with pytest.raises(ReleaseError, match="capped=True takes the bounded table and `everything`"):
        capped().release(TABLE)
    with pytest.raises(ReleaseError, match="other designs take one table"):
        design(DOMAIN, HELD, sdp.PureDP(1.0)).release(TABLE, everything=EVERYTHING)
    with pytest.raises(ReleaseError):
        capped().check(TABLE)
    with pytest.raises(ReleaseError):
        design(DOMAIN, HELD, sdp.PureDP(1.0)).check(TABLE, everything=EVERYTHING)


@pytest.mark.parametrize("held", [sdp.hold(), sdp.hold("state"), HELD])
@pytest.mark.parametrize("decimals", [None, 0, 2])
@pytest.mark.parametrize("relation", RELATIONS)
def test_held_totals_are_of_all_records_and_the_guarantee_is_not_plain(held, decimals, relation):
    mechanism = capped(held, decimals=decimals, neighbours=relation)
    assert mechanism.guarantee.kind != "plain"
    release = mechanism.release(TABLE, everything=EVERYTHING)
    for margin, exact in zip(release.mechanism.held.margins, release.exact, strict=True):
        assert np.array_equal(exact, margin.sum(ALL))
        if decimals == 0:
            assert np.array_equal(margin.sum(release.values), margin.sum(ALL))
    assert release.verify().ok
    said = " ".join(mechanism.guarantee.not_protected())
    assert "the held figures count all records" in said
    assert "is not protected at this budget" not in said


def test_a_total_that_neighbours_cannot_change_is_plain_without_a_cap_only():
    assert design(DOMAIN, sdp.hold(), sdp.PureDP(1.0)).guarantee.kind == "plain"
    assert capped(sdp.hold()).guarantee.kind == "S"
    assert capped(None).guarantee.kind == "plain"  # nothing is held, so nothing is exposed


@pytest.mark.parametrize("name", ["projected", "extended"])
def test_what_is_protected_comes_from_the_bounded_table_alone(name):
    """Two worlds with one bounded table and different held values: the noise part is the same."""
    other = sdp.Table(ALL + 5, DOMAIN)
    mechanism = capped(sdp.hold("state"), mechanism=name)
    one = mechanism.release(TABLE, everything=EVERYTHING, seed=3)
    two = mechanism.release(TABLE, everything=other, seed=3)
    space = mechanism.mechanism.space
    assert np.allclose(space.project(one.values), space.project(two.values), atol=1e-9)
    assert not np.allclose(one.values, two.values)
    # The twin: the same with another bounded table moves what is protected.
    three = mechanism.release(EVERYTHING, everything=EVERYTHING, seed=3)
    assert not np.allclose(space.project(one.values), space.project(three.values), atol=1e-9)


def test_the_mean_is_that_of_the_bounded_table_within_and_of_all_records_in_the_held_part():
    mechanism = capped(sdp.hold("state"), budget=sdp.PureDP(60.0))
    release = mechanism.release(TABLE, everything=EVERYTHING, seed=1)  # no noise: exp(−30) a cell
    space = mechanism.mechanism.space
    wanted = space.project(BOUNDED.astype(float)) + ALL - space.project(ALL.astype(float))
    assert np.allclose(release.values, wanted, atol=1e-9)


def test_a_capped_release_survives_its_files(tmp_path):
    release = capped(decimals=0).release(TABLE, everything=EVERYTHING)
    release.save(tmp_path / "r")
    loaded = Release.load(tmp_path / "r")
    assert loaded.mechanism.capped
    assert loaded.guarantee.not_protected() == release.guarantee.not_protected()
    assert verify_folder(tmp_path / "r").ok
    path = tmp_path / "r" / "certificate.json"
    data = json.loads(path.read_text("utf-8"))
    assert data["design"]["capped"] is True
    del data["design"]["capped"]  # the twin: a certificate that hides it
    path.write_text(json.dumps(data), "utf-8")
    assert not verify_folder(tmp_path / "r").ok


def test_an_uncapped_certificate_does_not_speak_of_it():
    certificate = design(DOMAIN, HELD, sdp.PureDP(1.0)).release(TABLE).certificate()
    assert "capped" not in certificate["design"]


def test_noise_does_not_know_about_the_other_design():
    """A cap enters the context, so a seed gives another stream."""
    plain = design(DOMAIN, HELD, sdp.PureDP(1.0))
    assert plain.mechanism.context != capped().mechanism.context


def test_check_refuses_without_noise(monkeypatch):
    def fresh(*_arguments):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(ReleaseKeys, "fresh", fresh)
    mechanism = capped()
    answers, full = mechanism.check(TABLE, everything=EVERYTHING)
    assert np.array_equal(answers, BOUNDED)
    assert np.array_equal(full, ALL)
    answers, full = design(DOMAIN, HELD, sdp.PureDP(1.0)).check(TABLE)
    assert answers is full
    big = sdp.Table(np.full((5, 2), 2**45), DOMAIN)
    with pytest.raises(ReleaseError, match="too large"):
        mechanism.check(big, everything=EVERYTHING)
    with pytest.raises(ReleaseError, match="too large"):
        mechanism.check(TABLE, everything=big)
    with pytest.raises(ReleaseError, match="too large"):
        mechanism.release(TABLE, everything=big)


def test_empty_cells_are_checked_in_both_tables():
    mask = np.zeros((5, 2), bool)
    mask[0, 0] = True
    mechanism = capped(sdp.hold("state") & sdp.zeros(mask))
    nobody = BOUNDED.copy()
    nobody[0, 0] = 0
    with pytest.raises(DataError, match="declared empty"):
        mechanism.check(sdp.Table(nobody, DOMAIN), everything=EVERYTHING)


def test_another_domain_is_refused():
    other = sdp.Table([1, 2], sdp.Domain([sdp.Axis("x", ["a", "b"])]))
    with pytest.raises(sdp.errors.SubspaceDPError):
        capped().check(TABLE, everything=other)
    with pytest.raises(sdp.errors.SubspaceDPError):
        capped().check(other, everything=EVERYTHING)


@pytest.mark.parametrize("budget", [sdp.PureDP(0.5), sdp.ZCDP(0.1)])
@pytest.mark.parametrize("held", [None, sdp.hold(), HELD])
def test_auto_takes_the_mechanism_with_the_narrower_intervals(budget, held):
    def width(designed):
        return float(np.mean(np.square(designed.accuracy().margin_of_error()))) ** 0.5

    widths = {
        name: width(design(DOMAIN, held, budget, mechanism=name))
        for name in ("projected", "extended", *(("knorm",) if budget.pure else ()))
    }
    chosen = design(DOMAIN, held, budget, mechanism="auto")
    assert width(chosen) == widths[chosen.mechanism.name] <= min(widths.values()) * WORTH_WHILE


def test_auto_leaves_out_what_does_not_apply_and_says_why_when_nothing_does():
    assert design(DOMAIN, HELD, sdp.ZCDP(0.1), mechanism="auto", decimals=0).mechanism.name == (
        "projected"
    )
    with pytest.raises(sdp.errors.InvariantError, match="nothing is left to protect"):
        design(DOMAIN, sdp.hold("county", "sex"), sdp.PureDP(1.0), mechanism="auto")
