"""Publications that an account pays for, what they leave protected, and audits beforehand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import subspacedp as sdp
from subspacedp.cli.app import app
from subspacedp.errors import InvariantError, SubspaceDPError
from subspacedp.invariants import as_held, bind
from subspacedp.ledger import LimitError, certificate_digest, open_ledger
from subspacedp.noise import ReleaseKeys
from subspacedp.privacy.composition import Spend
from subspacedp.publication.accounts import (
    account_covers,
    held_together,
    read_labels,
    union_domain,
    values_on,
)
from subspacedp.publication.auditing import WITH_ACCOUNT
from subspacedp.queries.functions import ClippedSums
from subspacedp.queries.linear import as_query
from subspacedp.release import verify_folder

COUNTS = np.array([[5, 0], [7, 9], [1, 1]])


@pytest.fixture
def office(tmp_path):
    """A folder with counts, a ledger with ε = 1, and specifications that it pays for."""
    rows = [f"{c},{s},{COUNTS[i, j]}" for i, c in enumerate("abc") for j, s in enumerate("FM")]
    (tmp_path / "counts.csv").write_text("county,sex,n\n" + "\n".join(rows) + "\n", "utf-8")
    with open_ledger(tmp_path / "budget.db") as ledger:
        ledger.create("people", sdp.PureDP(1.0), sdp.ReplaceOne())

    def specification(hold, epsilon=0.4, **more):
        return {
            "data": {"counts": {"source": str(tmp_path / "counts.csv"), "value": "n"}},
            "axes": {"county": {"labels": list("abc")}, "sex": {"labels": ["F", "M"]}},
            "hold": hold,
            "privacy": {"epsilon": epsilon},
            "budget": {"ledger": str(tmp_path / "budget.db"), "account": "people"},
            **more,
        }

    return tmp_path, specification


def spent(folder):
    with open_ledger(folder / "budget.db") as ledger:
        return [(entry.state.value, len(entry.release_ids)) for entry in ledger.history("people")]


def test_an_account_pays_until_nothing_is_left(office):
    folder, specification = office
    for number in (1, 2):
        made = sdp.run(specification([["county"]]), out=folder / f"r{number}")
        assert made.folder.is_dir()
    assert spent(folder) == [("committed", 1), ("committed", 1)]
    with pytest.raises(LimitError, match="left"):
        sdp.run(specification([["county"]]), out=folder / "r3")
    assert not (folder / "r3").exists()
    assert spent(folder) == [("committed", 1), ("committed", 1)]


def test_a_dry_run_spends_nothing_and_sees_what_is_left(office):
    folder, specification = office
    sdp.run(specification([[]]), dry_run=True)
    assert spent(folder) == []
    with pytest.raises(LimitError, match="left"):
        sdp.run(specification([[]], epsilon=1.5), dry_run=True)


def test_what_fails_before_the_noise_spends_nothing_and_after_it_everything(office, monkeypatch):
    folder, specification = office
    bad = specification([["county"]])
    bad["axes"]["sex"]["labels"] = ["F", "X"]
    with pytest.raises(SubspaceDPError, match="not among its labels"):
        sdp.run(bad, out=folder / "r")
    assert spent(folder) == []

    def dies(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("subspacedp.publication.running.write_rest", dies)
    with pytest.raises(KeyboardInterrupt):
        sdp.run(specification([["county"]]), out=folder / "r")
    assert [state for state, _ in spent(folder)] == ["drawing"]
    assert not (folder / "r").exists()


def test_budget_is_reserved_before_the_first_random_word(office, monkeypatch):
    folder, specification = office
    seen = []
    fresh = ReleaseKeys.fresh

    def watched(context):
        seen.append(spent(folder))
        return fresh(context)

    monkeypatch.setattr(ReleaseKeys, "fresh", watched)
    sdp.run(specification([["county"]]), out=folder / "r")
    assert seen
    assert all(entries and entries[-1][0] == "drawing" for entries in seen)


def test_no_account_pays_for_a_seeded_release(office):
    folder, specification = office
    with pytest.raises(SubspaceDPError, match="seed"):
        sdp.run(specification([[]]), out=folder / "r", seed=1)
    assert spent(folder) == []


def test_releases_with_different_margins_are_stacked(office):
    folder, specification = office
    sdp.run(specification([["county"]]), out=folder / "r1")
    ledger = folder / "budget.db"
    alone = account_covers(ledger, "people", sex="M")
    assert 0 < alone.share_exposed < 1
    sdp.run(specification([["sex"]]), out=folder / "r2")
    both = account_covers(ledger, "people", sex="M")
    assert both.share_exposed == 1.0
    assert "published exactly" in str(both)
    together = held_together(ledger, "people")
    assert len(together.helds) == 2
    assert read_labels(ledger, "people", ["sex=M", "county=b"]) == {"sex": "M", "county": "b"}
    with pytest.raises(InvariantError, match="name=label"):
        read_labels(ledger, "people", ["sex"])
    with pytest.raises(InvariantError, match="has an axis or level `colour`"):
        account_covers(ledger, "people", colour="red")


COUNTY = sdp.Axis("county", ["Kent", "Sussex", "Cook"], levels={"state": ["DE", "DE", "IL"]})
SEX = sdp.Axis("sex", ["F", "M"])
AGE = sdp.Axis("age", ["x", "y"])


@pytest.fixture
def paid(tmp_path):
    """An account, and a function that enters a release with what it holds."""
    with open_ledger(tmp_path / "paid.db") as ledger:
        ledger.create("people", sdp.PureDP(9.0), sdp.ReplaceOne())

        def enter(asked, held=None):
            query = as_query(asked)
            spend = Spend(budget=sdp.PureDP(0.5), neighbours=sdp.ReplaceOne())
            says = {
                "query": query.as_dict(),
                "held": bind(as_held(held), query).as_list(),
                "capped": False,
                "decimals": None,
            }
            ledger.reserve("people", [spend], held=[says]).drawing()

        yield ledger, enter


def test_releases_of_fewer_axes_count_on_the_axes_of_all(paid):
    ledger, enter = paid
    enter(sdp.Domain([COUNTY, SEX, AGE]))
    asked = {"county": "Kent", "sex": "M", "age": "y"}
    assert "by ordinary differential privacy" in str(account_covers(ledger, "people", **asked))
    enter(sdp.Domain([SEX, COUNTY]), sdp.hold("county"))
    found = account_covers(ledger, "people", **asked)
    assert found.kind != "plain"
    assert found.share_exposed == pytest.approx(1 / 4)
    assert found.alone == (0.0, found.share_exposed)
    assert account_covers(ledger, "people", county="Kent").fixed
    assert account_covers(ledger, "people", state="DE").fixed
    assert not account_covers(ledger, "people", county="Kent", age="y").fixed
    enter(sdp.Domain([AGE, COUNTY]), sdp.hold("age", "county"))
    assert account_covers(ledger, "people", county="Kent", age="y").fixed
    assert not account_covers(ledger, "people", county="Kent", sex="F").fixed
    together = held_together(ledger, "people")
    assert [axis.name for axis in together.domain.axes] == ["county", "sex", "age"]
    enter(sdp.Domain([SEX, COUNTY]), sdp.hold("county", "sex"))
    assert account_covers(ledger, "people", county="Kent", sex="F").fixed
    assert not account_covers(ledger, "people", **asked).fixed


def test_what_two_releases_of_different_axes_fix_together(paid):
    ledger, enter = paid
    enter(sdp.Domain([COUNTY, SEX]), sdp.hold("county"))
    enter(sdp.Domain([AGE, SEX]), sdp.hold("sex"))
    weights = np.zeros((3, 2, 2))
    weights[0] += 1
    weights[:, 1] -= 1
    found = account_covers(ledger, "people", weights)
    assert found.only_jointly


def test_held_sums_are_no_held_counts(paid):
    ledger, enter = paid
    sums = ClippedSums(sdp.Domain([COUNTY, SEX]), "income", 0, 10, 1)
    enter(sums, sdp.hold("county"))
    with pytest.raises(InvariantError, match="no release of counts yet"):
        account_covers(ledger, "people", county="Kent")
    enter(sdp.Domain([COUNTY, SEX]))
    found = account_covers(ledger, "people", county="Kent")
    assert found.share_exposed == 0.0
    assert found.left_out == 1 == found.as_dict()["left_out"]
    assert "1 release of sums or other questions holds figures not looked at" in str(found)


@pytest.mark.parametrize(
    ("domains", "helds", "message"),
    [
        (([COUNTY], [sdp.Axis("county", ["Kent", "Cook"])]), None, "^Axis `county` has other"),
        (([COUNTY], [sdp.Axis("county", COUNTY.labels)]), None, "^Axis `county` has other"),
        (([COUNTY], [sdp.Axis("state", ["DE", "IL"])]), None, "on axis `state`"),
        (([sdp.Axis("a", range(10**4))], [sdp.Axis("b", range(10**4))]), None, "100,000,000 cells"),
        (([COUNTY, SEX], [SEX]), (sdp.hold(), sdp.zeros(np.array([True, False]))), "^Linear inv"),
    ],
)
def test_what_has_no_common_domain_is_refused(domains, helds, message):
    both = [as_held(held) for held in helds or (sdp.hold(), sdp.hold())]
    with pytest.raises(InvariantError, match=message) as caught:
        union_domain([sdp.Domain(axes) for axes in domains], both)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_empty_cells_are_kept_where_the_union_is_their_own_domain():
    whole, part = sdp.Domain([COUNTY, SEX]), sdp.Domain([SEX])
    empty = as_held(sdp.zeros(np.eye(3, 2, dtype=bool)))
    assert union_domain([part, whole], [sdp.hold("sex"), empty]).matches(whole)


def test_held_values_are_the_same_figures_on_the_union():
    counts = np.arange(12).reshape(2, 3, 2)  # sex, county, age
    own, union = sdp.Domain([SEX, COUNTY]), sdp.Domain([COUNTY, AGE, SEX])
    held = sdp.hold("sex", "state") & sdp.hold("county", "sex") & sdp.hold()
    before = held.on(own).sums(counts.sum(axis=2))
    after = held.on(union).sums(counts.transpose(1, 2, 0))
    moved = values_on(union, own, held, before)
    assert len(moved) == 3
    assert all(np.array_equal(a, b) for a, b in zip(moved, after, strict=True))
    # A twin that only reshapes mixes up sexes and states.
    assert not np.array_equal(before[1].reshape(after[1].shape), after[1])


def test_an_empty_account_covers_nothing_yet(office):
    folder, _ = office
    with pytest.raises(InvariantError, match="no release yet"):
        account_covers(folder / "budget.db", "people", sex="M")


def test_the_audit_reads_held_values_alone(office):
    _, specification = office
    data = specification([["county"], ["sex"]])
    del data["budget"]
    found = sdp.audit(data)["table"]
    exact = (COUNTS.sum(axis=1, keepdims=True), COUNTS.sum(axis=0, keepdims=True))
    domain = sdp.Domain([sdp.Axis("county", list("abc")), sdp.Axis("sex", ["F", "M"])])
    same = sdp.audit_invariants(
        domain,
        sdp.hold("county") & sdp.hold("sex"),
        exact,
        neighbours=sdp.ReplaceOne(),
        budget=sdp.PureDP(0.4),
    )
    assert found.as_dict() == same.as_dict()
    structure = sdp.audit({**data, "data": {"counts": {"source": "gone.csv", "value": "n"}}},
                          structure=True)  # fmt: skip
    assert structure["table"].bounds is None


def test_records_beyond_the_bound_are_never_free(tmp_path):
    (tmp_path / "p.csv").write_text("id,sex\n1,F\n1,F\n2,M\n", "utf-8")
    data = {
        "data": {"source": str(tmp_path / "p.csv"), "unit": "id"},
        "axes": {"sex": {"labels": ["F", "M"]}},
        "hold": [[]],
        "privacy": {"epsilon": 1.0},
    }
    found = sdp.audit(data)["table"]
    assert found.kind != "plain"
    assert "the grand total" not in found.free
    rows = {**data, "data": {"source": str(tmp_path / "p.csv"), "unit": "row"}}
    assert "the grand total" in sdp.audit(rows)["table"].free


def test_the_report_says_what_the_held_figures_give_away(office):
    folder, specification = office
    made = sdp.run(specification([["county"], ["sex"]]), out=folder / "r")
    page = (made.folder / "report.html").read_text("utf-8")
    assert "give away by themselves" in page
    assert "must change together" in page


@pytest.fixture
def linked(tmp_path):
    """The paper's example: one table holds age, another holds zip."""
    people = [("young", "a")] * 4 + [("middle", "a")] * 2 + [("old", "a")]
    rows = "".join(f"{age},{place},F\n" for age, place in people)
    (tmp_path / "p.csv").write_text("age,zip,sex\n" + rows, "utf-8")

    def specification(**tables):
        return {
            "data": {"source": str(tmp_path / "p.csv"), "unit": "row"},
            "axes": {
                "age": {"labels": ["young", "middle", "old"]},
                "zip": {"labels": ["a", "b"]},
                "sex": {"labels": ["F", "M"]},
            },
            "privacy": {"epsilon": 1.0},
            "tables": {
                name: {"axes": axes, "hold": hold, "share": 1 / 4}
                for name, (axes, hold) in tables.items()
            },
        }

    return tmp_path, specification


def test_tables_are_audited_together(linked):
    _, specification = linked
    both = ["age", "zip"]
    data = specification(one=(both, [["age"]]), two=(both, [["zip"]]))
    found = sdp.audit(data)
    assert list(found) == ["one", "two", "together"]
    assert found["one"].linkage is None
    linkage = found["together"].linkage
    assert (linkage.ranks, linkage.rank, linkage.pinned) == ((3, 2), 4, 3)
    same = sdp.audit(data, structure=True)["together"]
    assert same.bounds is None
    assert same.linkage.rank == 4
    alone = specification(one=(both, [["age"]]), two=(both, []))
    assert list(sdp.audit(alone)) == ["one", "two"]


def test_tables_of_other_axes_are_audited_on_the_axes_of_all(linked):
    _, specification = linked
    found = sdp.audit(
        specification(one=(["sex", "age"], [["age"]]), two=(["zip", "age"], [["zip"]]))
    )
    domain = sdp.Domain(
        [SEX, sdp.Axis("age", ["young", "middle", "old"]), sdp.Axis("zip", ["a", "b"])]
    )
    same = sdp.audit_invariants(
        domain,
        [sdp.hold("age"), sdp.hold("zip")],
        [[[[[4]], [[2]], [[1]]]], [[[[7, 0]]]]],
        neighbours=sdp.ReplaceOne(),
    )
    assert found["together"].as_dict()["linkage"]["rank"] == 4
    assert found["together"].as_dict()["worst"] == same.as_dict()["worst"]
    assert found["together"].pinned == same.pinned == 6
    # Cells by sex are wide, for nothing is held of it; those by age and zip alone are pinned.
    assert same.linkage.pinned == 0
    assert found["together"].linkage.pinned == 3
    assert any(cell.labels == ("old", "a") for cell in found["together"].linkage.examples)


def test_tables_too_large_together_are_audited_alone(linked, monkeypatch):
    _, specification = linked
    monkeypatch.setattr("subspacedp.publication.auditing.LARGEST_JOINT", 7)
    data = specification(
        one=(["age", "sex"], [["age"]]),
        two=(["zip", "age"], [["zip"]]),
        three=(["sex", "age"], [["sex"]]),
    )
    assert list(sdp.audit(data)) == ["one", "two", "three", "together: one and three"]


def test_what_the_account_holds_already_is_audited_with_the_tables(office):
    folder, specification = office
    data = specification([["sex"]])
    assert list(sdp.audit(data)) == ["table"]
    sdp.run(specification([["county"]]), out=folder / "r")
    found = sdp.audit(data)
    assert list(found) == ["table", WITH_ACCOUNT]
    joint = found[WITH_ACCOUNT]
    assert joint.bounds is None
    assert (joint.linkage.ranks, joint.linkage.rank) == ((2, 3), 4)
    gone = {**data, "budget": {"ledger": str(folder / "gone.db"), "account": "people"}}
    assert list(sdp.audit(gone)) == ["table"]


def test_the_report_says_what_tables_give_away_together(linked):
    folder, specification = linked
    data = specification(
        one=(["age", "sex"], [["age"]]), two=(["zip", "age"], [["zip"]]), three=(["sex"], [])
    )
    made = sdp.run(data, out=folder / "r")
    page = (made.folder / "report.html").read_text("utf-8")
    assert "Together with two:" in page
    assert "Pinned by all together and by none alone" in " ".join(page.split())
    assert "together with other tables is said of one." in page


def test_on_the_command_line(office):
    folder, specification = office
    data = specification([["county"], ["sex"]])
    path = folder / "publication.yaml"
    path.write_text(json.dumps(data), "utf-8")  # JSON is YAML
    run = CliRunner().invoke
    text = run(app, ["audit", str(path)])
    assert text.exit_code == 0
    assert "Held exact" in text.output
    found = run(app, ["audit", str(path), "--structure", "--json"])
    assert json.loads(found.output[found.output.index("{") :])["table"]["read_values"] is False
    done = run(app, ["release", str(path), "--out", str(folder / "r"), "--json"])
    assert done.exit_code == 0
    covered = run(app, ["ledger", "covers", str(folder / "budget.db"), "people", "sex=M"])
    assert "published exactly" in covered.output
    plain = run(app, ["ledger", "covers", str(folder / "budget.db"), "people", "sex=M", "--json"])
    assert json.loads(plain.output)["fixed"] is True


def test_an_account_has_one_unit(office, tmp_path):
    folder, specification = office
    (tmp_path / "p.csv").write_text("id,county,sex\n1,a,F\n2,b,M\n", "utf-8")
    records = {**specification([["county"]]), "data": {"source": str(tmp_path / "p.csv")}}
    by_person = {**records, "data": {**records["data"], "unit": "id"}}
    by_row = {**records, "data": {**records["data"], "unit": "row"}}
    sdp.run(by_person, out=folder / "r1")
    with pytest.raises(SubspaceDPError, match="one unit"):
        sdp.run(by_row, out=folder / "r2")
    assert len(spent(folder)) == 1


def test_a_correction_is_linked_to_what_it_replaces(office):
    folder, specification = office
    first = sdp.run(specification([["county"]]), out=folder / "r1")
    second = sdp.run(specification([["county"]]), out=folder / "r2", replaces=1)
    with open_ledger(folder / "budget.db") as ledger:
        assert [entry.replaces for entry in ledger.history("people")] == [None, 1]
    with pytest.raises(SubspaceDPError, match="no entry 99 to replace"):
        sdp.run(specification([["county"]], epsilon=0.1), out=folder / "r3", replaces=99)
    for corrected in (second.release, sdp.load(folder / "r2")):
        (replaced,) = corrected.facts.replaces
        assert replaced.release_id == first.release.release_id
        assert replaced.certificate_sha256 == certificate_digest(folder / "r1")
    assert verify_folder(folder / "r2").ok
    for name in ("certificate.json", "README.txt", "report.html"):
        assert first.release.release_id in (folder / "r2" / name).read_text("utf-8")
    assert "replaces" not in json.loads((folder / "r1" / "certificate.json").read_text("utf-8"))


def test_only_what_may_be_published_can_be_replaced(office):
    folder, specification = office
    free = specification([["county"]])
    del free["budget"]
    with pytest.raises(SubspaceDPError, match="name the account under `budget`"):
        sdp.run(free, out=folder / "r1", replaces=1)
    with open_ledger(folder / "budget.db") as ledger:
        ledger.reserve(
            "people", [Spend(budget=sdp.PureDP(0.1), neighbours=sdp.ReplaceOne())]
        ).cancel()
    with pytest.raises(SubspaceDPError, match="Entry 1 was cancelled"):
        sdp.run(specification([["county"]]), out=folder / "r1", replaces=1)
    assert not (folder / "r1").exists()


def test_a_release_says_what_it_cost_in_the_terms_of_the_account(office):
    folder, specification = office
    for number, (before, words) in enumerate(
        [
            (0.0, "Spent before: nothing; with it: ε = 0.4; left: ε = 0.6, of ε = 1."),
            (0.4, "Spent before: ε = 0.4; with it: ε = 0.8; left: ε = 0.2, of ε = 1."),
        ]
    ):
        made = sdp.run(specification([["county"]]), out=folder / f"r{number}")
        assert made.payment.as_dict() == {
            "entry": number + 1,
            "account": "people",
            "limit": {"name": "pure", "epsilon": 1.0},
            "spent_before": before,
            "spent": before + 0.4,
            "left": made.payment.as_dict()["left"],
        }
        assert words in str(made.payment)
    assert sdp.run(specification([[]], epsilon=0.1), dry_run=True).payment is None


def test_the_command_says_what_a_release_cost(office):
    folder, specification = office
    path = folder / "spec.json"
    path.write_text(json.dumps(specification([["county"]])), "utf-8")
    said = CliRunner().invoke(app, ["release", str(path), "--out", str(folder / "r1")]).stdout
    assert "Entry 1 of account `people` paid for it. Spent before: nothing" in said
    free = specification([["county"]])
    del free["budget"]
    path.write_text(json.dumps(free), "utf-8")
    said = CliRunner().invoke(app, ["release", str(path), "--out", str(folder / "r2")]).stdout
    assert "Spent: ε = 0.4. No account keeps count of it" in said
