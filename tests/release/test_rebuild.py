"""A design that is read back states no more privacy than its noise gives, whatever was altered."""

import copy
import json
from fractions import Fraction

import numpy as np
import pytest
from tests.release.brute import overspent
from tests.release.fitted import CELLS, ENTRIES, FITTED
from tests.release.mutations import put, some

import subspacedp as sdp
from subspacedp.agents import AgentPlan, Partition, make_plan
from subspacedp.errors import AlteredError, ReleaseError, SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.mechanisms import extended, registry
from subspacedp.mechanisms.extended import Extended
from subspacedp.mechanisms.knorm.fitting import NORM_BALLS
from subspacedp.mechanisms.knorm.norm_balls import Box
from subspacedp.mechanisms.projected import Projected
from subspacedp.mechanisms.registry import MECHANISMS, mechanism_from
from subspacedp.mechanisms.strategies import BasisStrategy
from subspacedp.privacy.budgets import BUDGETS
from subspacedp.release import verify_folder
from subspacedp.stated import digest_of, first_difference

PER_DESIGN = 60
TRIED = 25  # neighbours of an altered design
ROUNDING = 1e-9  # of the loss in float64


def plain(design):
    return json.loads(json.dumps(design.as_dict()))


def outcome(data):
    """The rebuilt design, or None where it was refused in one sentence."""
    try:
        return mechanism_from(data)
    except SubspaceDPError as error:
        sentence = str(error)
    assert "\n" not in sentence
    assert len(sentence) < 500
    return None


def test_the_list_of_designs_is_complete():
    designs = [make().mechanism for make in FITTED.values()]
    assert {d.name for d in designs} == set(MECHANISMS)
    assert {d.query.as_dict()["kind"] for d in designs} == {
        "cells", "margins", "linear", "function", "clipped sums", "entries",
    }  # fmt: skip
    norm_balls = {d.choice.norm_ball for d in designs if d.name == "knorm"}
    assert {b.as_dict()["body"] for b in norm_balls} == set(NORM_BALLS)
    assert {d.budget.name for d in designs} == set(BUDGETS)
    assert any(isinstance(d, Extended) and d.basis is not None and d.basis.drop for d in designs)
    assert any(d.capped for d in designs)


@pytest.mark.parametrize("name", FITTED)
def test_every_design_comes_back_and_is_private(name):
    design = FITTED[name]().mechanism
    again = mechanism_from(plain(design))
    assert first_difference(plain(again), plain(design)) is None
    assert again.sensitivity == design.sensitivity
    assert overspent(again) <= 1 + ROUNDING


def check_mutations(name, number, seed):
    data, kept = plain(FITTED[name]().mechanism), 0
    for place, value in some(data, number, seed):
        made = outcome(put(data, place, value))
        if made is not None:
            kept += 1
            assert first_difference(plain(made), put(data, place, value)) is None
            assert overspent(made, TRIED) <= 1 + ROUNDING, (place, value)
    return kept


@pytest.mark.parametrize("name", FITTED)
def test_no_alteration_states_more_privacy_than_its_noise_gives(name):
    check_mutations(name, PER_DESIGN, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("name", FITTED)
def test_none_of_all_alterations_does(name):
    check_mutations(name, 10**9, seed=1)


def test_some_alterations_are_honest_designs_of_their_own():
    """Else the tests above would hold for a reader that refuses everything."""
    assert check_mutations("projected cells", 10**9, seed=1) > 5
    assert check_mutations("extended entries", 10**9, seed=1) > 5


def test_parts_of_other_designs_are_refused():
    """Every part of every design, put into every other one, and every mechanism's name."""
    designs = {name: plain(make().mechanism) for name, make in FITTED.items()}
    optional = {"capped", *(key for kind in MECHANISMS.values() for key in kind.keys_in_files)}
    for name, data in designs.items():
        for other in designs.values():
            for key in optional & set(other) - set(data):
                made = outcome({**data, key: other[key]})
                # Counts may be measured in a basis where they need not be.
                fits = key == "capped" or (name, key) == ("extended cells", "basis")
                assert made is None or fits, (name, key)
                assert made is None or overspent(made, TRIED) <= 1 + ROUNDING
        for mechanism in MECHANISMS:
            made = outcome({**data, "mechanism": mechanism})
            assert made is None or overspent(made, TRIED) <= 1 + ROUNDING, (name, mechanism)


@pytest.mark.parametrize("name", FITTED)
def test_a_field_that_a_design_does_not_have_is_refused_at_every_level(name):
    data = plain(FITTED[name]().mechanism)

    def objects(inner, at=()):
        if isinstance(inner, dict):
            yield at
            for key, value in inner.items():
                yield from objects(value, (*at, key))
        elif isinstance(inner, list):
            for i, value in enumerate(inner[:3]):
                yield from objects(value, (*at, i))

    for place in objects(data):
        altered = copy.deepcopy(data)
        inner = altered
        for key in place:
            inner = inner[key]
        inner["note"] = 1
        assert outcome(altered) is None, place


# ------------------------------------------------------------------------------------ broken twins


def hostile_entries():
    """Weights multiplied by 2**20: what is measured is 2**20 times as sensitive."""
    data = plain(
        sdp.design(ENTRIES, sdp.hold("ward"), sdp.PureDP(0.1), mechanism="extended").mechanism
    )
    data["basis"]["weights"] = [[w << 20 for w in row] for row in data["basis"]["weights"]]
    return data


def trusting_basis(data, problem):
    return BasisStrategy(problem.space, np.asarray(data["weights"], np.int64), int(data["bits"]))


def trusting_norm(self):
    k, n = self.weights.shape
    return Fraction(2**self.bits + k * n) ** 2


def test_weights_times_a_million_are_refused():
    with pytest.raises(ReleaseError, match="larger than its grid allows"):
        mechanism_from(hostile_entries())


def test_the_norm_is_that_of_the_weights_even_if_their_size_is_not_looked_at(monkeypatch):
    monkeypatch.setattr(extended, "basis_from", trusting_basis)
    assert overspent(mechanism_from(hostile_entries())) <= 1 + ROUNDING


def test_a_reader_that_believes_the_norm_is_caught(monkeypatch):
    monkeypatch.setattr(extended, "basis_from", trusting_basis)
    monkeypatch.setattr(BasisStrategy, "_squared_norm", property(trusting_norm))
    assert overspent(mechanism_from(hostile_entries())) > 10**5


def test_the_norm_of_any_weights_is_not_understated():
    """Against singular values; and close for what honest designs have."""
    rng = np.random.default_rng(7)
    space = sdp.design(CELLS, None, sdp.PureDP(1.0)).mechanism.space
    for size in (1, 5, 10**3, 2**30):
        for _ in range(20):
            weights = rng.integers(-size, size + 1, (4, 4))
            basis = BasisStrategy(space, weights, 1)
            largest = np.linalg.svd(weights.astype(float), compute_uv=False)[0]
            assert basis._squared_norm >= Fraction(largest) ** 2 * (1 - Fraction(1, 10**12))
    for make in FITTED.values():
        basis = getattr(make().mechanism, "basis", None)
        if basis is not None and make().mechanism.query.contributions is None:
            assert basis._squared_norm == trusting_norm(basis)


def stray_basis():
    """Beside "projected": Δ₁ = 1 of the stray coordinate would stand for Δ₁ = 2 of the cells."""
    data = plain(sdp.design(CELLS, None, sdp.PureDP(0.5)).mechanism)
    weights = [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    return {**data, "basis": {"bits": 1, "weights": weights}}


def test_a_stray_basis_is_refused():
    assert outcome(stray_basis()) is None
    honest = sdp.design(CELLS, None, sdp.PureDP(0.5), mechanism="extended").mechanism
    assert outcome({**stray_basis(), "basis": plain(honest)["basis"]}) is None


@frozen(eq=False, repr=False)
class Strayed(Projected):
    """Noise on every cell, for the sensitivity of whatever basis stands beside it."""

    basis: BasisStrategy = None
    keys_in_files = ("basis",)

    @property
    def sensitivity(self):
        return self.basis.sensitivity(self.query, self.neighbours)

    def fitted(self):
        return {"basis": self.basis.as_dict()}

    @classmethod
    def from_dict(cls, problem, data):
        return cls(problem, basis=trusting_basis(data["basis"], problem))


def test_a_reader_that_takes_a_stray_basis_is_caught(monkeypatch):
    monkeypatch.setitem(registry.MECHANISMS, "projected", Strayed)
    assert overspent(mechanism_from(stray_basis())) == 2


def no_basis():
    """Laplace noise on Π_N·counts, for Δ₁ of the counts: the projection can have a larger one."""
    domain = sdp.Domain([sdp.Axis("a", range(2)), sdp.Axis("b", range(2))])
    held = sdp.hold("a") & sdp.hold("b")
    data = plain(sdp.design(domain, held, sdp.ZCDP(0.5), mechanism="extended").mechanism)
    return {**data, "budget": {"name": "pure", "epsilon": 0.5}}


def test_laplace_noise_needs_a_basis(monkeypatch):
    assert outcome(no_basis()) is None
    clipped = plain(FITTED["extended sums"]().mechanism)
    clipped.pop("basis")
    assert outcome(clipped) is None
    monkeypatch.setattr(extended, "whole_counts", lambda problem: True)
    made = mechanism_from(clipped)  # Δ₂ of counts, for sums of up to ten units a record
    assert overspent(made) > 10


def tiny_box():
    """Widths whose float is zero: 0/0 is no number, and no comparison with it holds."""
    data = plain(FITTED["knorm box"]().mechanism)
    data["body"]["widths"] = [f"1/{10**400}"] * len(data["body"]["widths"])
    return data


def test_a_norm_ball_that_floats_cannot_measure_is_decided_exactly():
    assert outcome(tiny_box()) is None
    tiny = Box((Fraction(1, 10**400),) * 2)
    with np.errstate(all="ignore"):
        assert np.isnan(tiny.lengths(np.array([[1.0, 0.0]]))).all()  # the twin would skip this row
        assert not tiny.holds([[1, 0]])


def capped_exchanges():
    data = plain(FITTED["knorm exchanges"]().mechanism)
    return {**data, "capped": True}


def test_whole_counts_have_no_bound_on_records():
    """Their digits have the total of what was measured, not that of all records."""
    assert outcome(capped_exchanges()) is None


# ------------------------------------------------------------------------------------ certificates


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    out = {}
    home = tmp_path_factory.mktemp("releases")
    for name in (
        "projected cells",
        "marginals cells pure",
        "marginals",
        "knorm polytope alone",
        "optimal",
    ):
        mechanism = FITTED[name]()
        size = mechanism.mechanism.query
        domain = size.axes or sdp.Domain([sdp.Axis("cell", range(size.contributions.shape[1]))])
        table = sdp.Table(np.arange(domain.size).reshape(domain.shape) + 3, domain)
        mechanism.release(table).save(home / name)
        out[name] = home / name
    return out


def altered_folder(source, target, change, *, digest=False):
    import shutil

    shutil.copytree(source, target)
    path = target / "certificate.json"
    data = json.loads(path.read_text("utf-8"))
    change(data["design"])
    if digest:
        data["design_sha256"] = digest_of(data["design"])
    path.write_text(json.dumps(data), "utf-8")
    return target


def verifies(folder):
    try:
        return verify_folder(folder).ok
    except SubspaceDPError:
        return False


def exactly(design):
    design["neighbours"]["exactly"] = not design["neighbours"]["exactly"]


def weights(design):
    design["marginals"]["weights"][0] += 1.0


def goal(design):
    design["marginals"]["goal"] *= 2.0


def bound(design):
    design["marginals"]["bound"] *= 1.002


def answers_importance(design):
    design["optimality"]["importance"][0] += 1.0


def offset(design):
    facet = design["body"]["facets"][0]
    facet["offset"] = str(int(facet["offset"]) + 1)


ALTERED = [
    ("projected cells", exactly),
    ("marginals cells pure", exactly),
    ("marginals cells pure", weights),
    ("marginals", weights),
    ("marginals", goal),
    ("marginals", bound),
    ("knorm polytope alone", offset),
    ("knorm polytope alone", exactly),
    ("optimal", answers_importance),
]


@pytest.mark.parametrize(("name", "change"), ALTERED)
def test_fields_without_a_figure_of_their_own_are_checked_too(folders, tmp_path, name, change):
    assert verifies(folders[name])
    folder = altered_folder(folders[name], tmp_path / "altered", change)
    assert not verifies(folder)
    with pytest.raises(SubspaceDPError):
        sdp.Release.load(folder)


@pytest.mark.parametrize("name", ["marginals", "marginals cells pure"])
@pytest.mark.parametrize("change", [goal, bound])
def test_goal_and_bound_are_proved_from_the_shares_again(folders, tmp_path, name, change):
    folder = altered_folder(folders[name], tmp_path / "same", lambda design: None, digest=True)
    sdp.Release.load(folder)
    folder = altered_folder(folders[name], tmp_path / "altered", change, digest=True)
    with pytest.raises(ReleaseError, match="prove the bound"):
        sdp.Release.load(folder)


def test_an_offset_is_that_of_its_corners_even_with_a_new_digest(folders, tmp_path):
    name = "knorm polytope alone"
    folder = altered_folder(folders[name], tmp_path / "altered", offset, digest=True)
    with pytest.raises(ReleaseError, match="does not touch its corners"):
        sdp.Release.load(folder)


@pytest.mark.parametrize("name", ["projected cells", "marginals", "knorm polytope alone"])
def test_no_altered_design_verifies(folders, tmp_path, name):
    data = json.loads((folders[name] / "certificate.json").read_text("utf-8"))
    for number, (place, value) in enumerate(some(data["design"], 25, seed=2)):
        design = put(data["design"], place, value)
        if first_difference(design, data["design"]) is None:
            continue

        def change(inner, design=design):
            inner.clear()
            inner.update(design)

        folder = altered_folder(folders[name], tmp_path / f"{number}", change)
        assert not verifies(folder), (place, value)


# ------------------------------------------------------------------------------------------- plans


def test_a_plan_with_weights_times_a_million_is_refused():
    mechanism = sdp.design(ENTRIES, sdp.hold("ward"), sdp.PureDP(0.1), mechanism="extended")
    plan = make_plan(mechanism, Partition.by(ENTRIES.domain, "ward"))
    data = json.loads(json.dumps({**plan.content(), "sha256": plan.digest}))
    assert AgentPlan.from_dict(data).digest == plan.digest
    data["design"] = hostile_entries()
    data.pop("sha256")
    with pytest.raises(ReleaseError, match="larger than its grid allows"):
        AgentPlan.from_dict({**data, "sha256": digest_of(data)})
    with pytest.raises(AlteredError):
        AgentPlan.from_dict({**data, "sha256": plan.digest})
