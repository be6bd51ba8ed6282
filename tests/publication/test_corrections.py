"""Facts of a publication, the key that signs it, and corrections that point both ways."""

import json
import shutil
from datetime import date

import jsonschema
import pytest
from typer.testing import CliRunner

import subspacedp as sdp
from subspacedp.cli.app import app
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.ledger import open_ledger
from subspacedp.publication import run
from subspacedp.release import certificate_schema, verify_folder
from subspacedp.release.facts import Facts, Replaced
from subspacedp.release.signature import new_private_key
from subspacedp.release.successor import NAME

OFFICE = {"creator": "The Office", "licence": "CC-BY-4.0", "version": "1.0"}


@pytest.fixture
def office(tmp_path):
    rows = [f"{c},{s},{n}" for c, s, n in zip("aabbcc", "FMFMFM", (5, 3, 7, 2, 1, 9), strict=True)]
    (tmp_path / "counts.csv").write_text("\n".join(["county,sex,n", *rows, ""]), "utf-8")

    def specification(**more):
        return {
            "title": "Persons by county and sex",
            "data": {"counts": {"source": str(tmp_path / "counts.csv"), "value": "n"}},
            "axes": {"county": {"labels": list("abc")}, "sex": {"labels": ["F", "M"]}},
            "hold": [["county"]],
            "privacy": {"epsilon": 0.4},
            "publish": {"decimals": 0, "margins": [["sex"]]},
            "publication": OFFICE,
            **more,
        }

    return tmp_path, specification


@pytest.fixture
def key(office):
    folder, _ = office
    new_private_key(folder / "key.pem")
    return {"decimals": 0, "sign": str(folder / "key.pem")}


def certificate(folder):
    return json.loads((folder / "certificate.json").read_text("utf-8"))


def check_of(folder, name, **options):
    return next(check for check in verify_folder(folder, **options).checks if check.name == name)


# ------------------------------------------------------------------------------------------ facts


def test_facts_are_in_certificate_readme_report_and_catalogue_entry(office):
    folder, specification = office
    words = {"about": "All\nresidents.", "contact": "office@example.org"}
    run(specification(**words), out=folder / "r")
    stated = certificate(folder / "r")
    today = date.today().isoformat()
    assert stated["publication"] == {
        "title": "Persons by county and sex", "creator": "The Office", "date": today,
        "licence": "CC-BY-4.0", "version": "1.0",
    }  # fmt: skip
    jsonschema.validate(stated, json.loads(certificate_schema()))
    assert verify_folder(folder / "r").ok
    assert sdp.load(folder / "r").facts == Facts.from_dict(stated["publication"])
    readme = (folder / "r" / "README.txt").read_text("utf-8")
    for line in ("Published by: The Office", f"Date: {today}", "Version: 1.0", "Licence: CC-BY-4"):
        assert line in readme
    assert "\nAll residents.\n" in readme
    assert "\nQuestions to: office@example.org\n" in readme
    linked = json.loads((folder / "r" / "dataset.jsonld").read_text("utf-8"))
    assert (linked["@type"], linked["datePublished"]) == ("Dataset", today)
    for part in linked["distribution"]:
        assert (folder / "r" / part["contentUrl"]).is_file()
        assert len(part["sha256"]) == 64
    report = (folder / "r" / "report.html").read_text("utf-8")
    assert "Published by The Office" in report
    assert 'href="values.csv"' in report


def test_a_seeded_release_has_no_date_but_the_one_that_is_given(office):
    folder, specification = office
    run(specification(), out=folder / "a", seed=1)
    assert "date" not in certificate(folder / "a")["publication"]
    run(specification(publication={"date": "2026-03-31"}), out=folder / "b", seed=1)
    assert certificate(folder / "b")["publication"]["date"] == "2026-03-31"


@pytest.mark.parametrize("given", ["31.3.2026", "2026-02-30", "20260331"])
def test_a_date_is_a_day(office, given):
    _, specification = office
    with pytest.raises(SubspaceDPError, match="must be a day in quotes, such as '2026-03-31'"):
        run(specification(publication={"date": given}))


@pytest.mark.parametrize(
    "altered",
    [
        {"title": ""}, {"creator": 5}, {"date": "yesterday"}, {"more": "x"}, [], "text",
        {"replaces": []}, {"replaces": [{"release_id": "x", "certificate_sha256": "y"}]},
        {"title": "x" * 3000},
    ],
)  # fmt: skip
def test_facts_of_a_stranger_are_refused_in_one_sentence(office, altered):
    folder, specification = office
    run(specification(), out=folder / "r")
    stated = certificate(folder / "r") | {"publication": altered}
    (folder / "r" / "certificate.json").write_text(json.dumps(stated), "utf-8")
    with pytest.raises(ReleaseError, match="facts of its publication cannot be read"):
        sdp.load(folder / "r")


def test_facts_are_plain_data_and_back():
    facts = Facts(
        title="t",
        date="2026-03-31",
        replaces=(Replaced(release_id="0" * 32, certificate_sha256="a" * 64),),
    )
    assert Facts.from_dict(json.loads(json.dumps(facts.as_dict()))) == facts
    assert Facts.from_dict({}) == Facts()


def test_held_totals_are_files_of_their_own(office):
    folder, specification = office
    release = run(specification(), out=folder / "r").release
    lines = (folder / "r" / "margins" / "county.csv").read_text("utf-8").splitlines()
    values = [f'"{name}",{n},0,{n},{n}' for name, n in zip("abc", (8, 9, 10), strict=True)]
    assert lines[0] == '"county","value","stderr","lower","upper"'
    assert [line.replace(".0", "") for line in lines[1:]] == values
    assert release.exact[0].ravel().tolist() == [8, 9, 10]


# -------------------------------------------------------------------------------------------- key


def test_a_new_key_signs_and_its_public_half_verifies(office):
    folder, specification = office
    made = CliRunner().invoke(app, ["key", "new", str(folder / "office.pem")])
    assert made.exit_code == 0
    private, public = folder / "office.pem", folder / "office.public.pem"
    assert private.stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in public.read_text()
    run(specification(publish={"sign": str(private)}), out=folder / "r")
    check = check_of(folder / "r", "signature", public_key=public)
    assert check.ok
    fingerprint = check.detail.rpartition(" ")[2]
    assert fingerprint in made.output
    with pytest.raises(ReleaseError, match="exists already; no key is overwritten"):
        new_private_key(private)
    private.unlink()
    with pytest.raises(ReleaseError, match="exists already; no key is overwritten"):
        new_private_key(private)
    assert not private.exists()


# ------------------------------------------------------------------------------------ corrections


def test_a_correction_points_both_ways(office):
    folder, specification = office
    run(specification(), out=folder / "old")
    before = {p: p.read_bytes() for p in (folder / "old").rglob("*") if p.is_file()}
    old = certificate(folder / "old")
    run(specification(), out=folder / "new", replaces=folder / "old")
    (stated,) = certificate(folder / "new")["publication"]["replaces"]
    assert stated["release_id"] == old["release_id"]
    assert verify_folder(folder / "new").ok
    readme = (folder / "new" / "README.txt").read_text("utf-8")
    assert f"Replaces release: {old['release_id']}" in readme

    assert {p: p.read_bytes() for p in before} == before
    note = json.loads((folder / "old" / "replaced-by.json").read_text("utf-8"))
    assert note["replaced_by"]["folder"] == "../new"
    assert (
        note["replaced_by"]["releases"][0]["release_id"]
        == certificate(folder / "new")["release_id"]
    )
    found = verify_folder(folder / "old")
    assert found.ok
    assert found.notes[0].startswith("This publication was replaced by the one in `../new`")
    assert sdp.load(folder / "old").verify().ok


def test_a_note_that_was_altered_or_is_of_another_folder_fails(office):
    folder, specification = office
    run(specification(), out=folder / "old")
    run(specification(), out=folder / "other")
    run(specification(), out=folder / "new", replaces=folder / "old")
    note = folder / "old" / "replaced-by.json"
    text = note.read_text("utf-8")
    for altered in (text.replace("../new", "../x") + " ", text[:-5], "{}", "[]", text + "\n"):
        note.write_text(altered, "utf-8")
        assert not check_of(folder / "old", NAME).ok
    shutil.copy(folder / "old" / "replaced-by.json", folder / "other")
    (folder / "other" / "replaced-by.json").write_text(text, "utf-8")
    assert check_of(folder / "other", NAME).detail == "replaced-by.json is about other releases"
    assert not verify_folder(folder / "other").ok


def test_a_signed_release_is_replaced_by_the_same_key_alone(office, key):
    folder, specification = office
    run(specification(publish=key), out=folder / "old")
    new_private_key(folder / "other.pem")
    for publish in ({"decimals": 0}, {"sign": str(folder / "other.pem")}):
        with pytest.raises(ReleaseError, match="only the same key can say what replaces it"):
            run(specification(publish=publish), out=folder / "new", replaces=folder / "old")
    assert not (folder / "new").exists()
    run(specification(publish=key), out=folder / "new", replaces=folder / "old")
    public = folder / "key.public.pem"
    assert verify_folder(folder / "old", public_key=public).ok
    assert "signed by the key of the release" in check_of(folder / "old", NAME).detail
    note = folder / "old" / "replaced-by.json"
    stated = json.loads(note.read_text("utf-8"))
    bare = {name: stated[name] for name in ("format", "releases", "replaced_by")}
    note.write_text(json.dumps(bare, indent=1, ensure_ascii=False) + "\n", "utf-8")
    assert check_of(folder / "old", NAME).detail.endswith("is not signed by the key of the release")
    bare["replaced_by"]["folder"] = "../elsewhere"
    altered = stated | bare
    note.write_text(json.dumps(altered, indent=1, ensure_ascii=False) + "\n", "utf-8")
    assert not check_of(folder / "old", NAME).ok


def test_what_cannot_be_noted_is_refused_before_anything_is_drawn(office):
    folder, specification = office
    run(specification(), out=folder / "old")
    run(specification(), out=folder / "new", replaces=folder / "old")
    with pytest.raises(ReleaseError, match="was replaced before; name the publication"):
        run(specification(), out=folder / "third", replaces=folder / "old")
    with pytest.raises(ReleaseError, match=r"no folder .* to be replaced"):
        run(specification(), out=folder / "third", replaces=folder / "none")
    with pytest.raises(ReleaseError, match="cannot replace itself"):
        run(specification(), out=folder / "new", replaces=folder / "new")
    with pytest.raises(ReleaseError, match="under `budget`, or the folder that is corrected"):
        run(specification(), out=folder / "third", replaces=3)
    (folder / "empty").mkdir()
    with pytest.raises(ReleaseError, match=r"has no certificate\.json"):
        run(specification(), out=folder / "third", replaces=folder / "empty")
    assert not (folder / "third").exists()


def test_the_same_command_notes_what_an_interrupted_one_has_not(office):
    folder, specification = office
    run(specification(), out=folder / "old")
    run(specification(), out=folder / "new", replaces=folder / "old")
    (folder / "old" / "replaced-by.json").unlink()
    before = certificate(folder / "new")
    run(specification(), out=folder / "new", replaces=folder / "old")
    assert check_of(folder / "old", NAME).ok
    assert certificate(folder / "new") == before
    with pytest.raises(ReleaseError, match="exists already"):
        run(specification(), out=folder / "new", replaces=folder / "old")


def test_the_ledger_knows_the_folder_of_an_entry_and_the_entry_of_a_folder(office):
    folder, specification = office
    address = folder / "budget.db"
    with open_ledger(address) as ledger:
        ledger.create("people", sdp.PureDP(10.0), sdp.ReplaceOne())
    paying = specification(budget={"ledger": str(address), "account": "people"})
    run(paying, out=folder / "a")
    run(paying, out=folder / "b", replaces=1)
    run(paying, out=folder / "c", replaces=folder / "b")
    with open_ledger(address) as ledger:
        assert [entry.replaces for entry in ledger.history("people")] == [None, 1, 2]
    for old, new in (("a", "b"), ("b", "c")):
        assert f"replaced by `../{new}`" in check_of(folder / old, NAME).detail
        assert verify_folder(folder / old).ok
    with pytest.raises(SubspaceDPError, match="no entry 9 to replace"):
        run(paying, out=folder / "d", replaces=9)


def test_the_command_takes_a_folder(office):
    import yaml

    folder, specification = office
    (folder / "p.yaml").write_text(yaml.safe_dump(specification()), "utf-8")
    for out, more in (("old", []), ("new", ["--replaces", str(folder / "old")])):
        done = CliRunner().invoke(
            app, ["release", str(folder / "p.yaml"), "--out", str(folder / out), *more]
        )
        assert done.exit_code == 0, done.output
    told = CliRunner().invoke(app, ["verify", str(folder / "old")])
    assert told.exit_code == 0
    assert "replaced by the one in `../new`" in told.output.replace("\n", "")


def test_several_tables_are_replaced_together(office):
    folder, specification = office
    several = specification(
        hold=[],
        publish={"decimals": 0},
        tables={
            "one": {"axes": ["county"], "hold": [[]], "share": 0.5},
            "two": {"axes": ["county", "sex"], "share": 0.5},
        },
    )
    run(several, out=folder / "old")
    run(several, out=folder / "new", replaces=folder / "old")
    ids = {certificate(folder / "old" / name)["release_id"] for name in ("one", "two")}
    for name in ("one", "two"):
        stated = certificate(folder / "new" / name)["publication"]["replaces"]
        assert {one["release_id"] for one in stated} == ids
    assert verify_folder(folder / "old").ok
    assert verify_folder(folder / "new").ok
