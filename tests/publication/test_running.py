"""From a specification to a folder: every kind of source, and what the folder must keep."""

import csv
import json
import re
import shutil
import stat
from fractions import Fraction
from html import unescape

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.publication.conftest import pem

from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.microdata import verify_folder
from subspacedp.noise import ReleaseKeys
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.publication import plan, read_specification, run
from subspacedp.publication.releases import releases_of
from subspacedp.release import Release, write_digests

STATES = np.array([0, 0, 0, 1, 1])
QUIET = {"epsilon": 90.0}  # noise of rate above 20: not 0 with probability below 1e-7


def by_state(counts):
    return np.array([counts[s == STATES].sum() for s in (0, 1)])


def names(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def reconciled(protected, everything):
    """The projection by hand: what is protected, shifted in every state to the total of all."""
    out = protected.astype(float)
    for s in (0, 1):
        inside = s == STATES
        cells = inside.sum() * protected.shape[1]
        out[inside] += (everything[inside].sum() - protected[inside].sum()) / cells
    return out


# --------------------------------------------------------------------------------------- sources


def test_rows_that_are_persons(world):
    made = run(world.spec())
    release, truth = made.release, world.counts()
    assert made.folder == world.folder / "release"
    assert np.array_equal(release.exact[0].ravel(), by_state(truth))
    assert release.values.dtype == np.int64
    assert np.array_equal(by_state(release.values), by_state(truth))
    assert release.mechanism.capped is False
    result = verify_folder(made.folder)
    assert result.ok, str(result)
    assert result.stamp == ""
    assert names(made.folder) == {
        "values.csv",
        "values.parquet",
        "certificate.json",
        "error-model.json",
        "report.html",
        "README.txt",
        "dataset.jsonld",
        "dictionary.csv",
        "digests.json",
        "margins/state.csv",
        "margins/state.parquet",
    }
    assert world.listing().count("release") == 1
    assert not [name for name in world.listing() if name.startswith(".")]


def test_a_table_of_counts(world):
    truth = world.counts()
    rows = [[c, s, truth[i, j]] for i, c in enumerate("12345") for j, s in enumerate("FM")]
    rows = [[f"c{c}", s, n] for c, s, n in rows if n]  # a cell without a row has no one in it
    world.write("counts.csv", rows, ["county", "sex", "n"])
    data = {"counts": {"source": str(world.folder / "counts.csv"), "value": "n"}}
    release = run(world.spec(data=data, privacy=QUIET), seed=1).release
    assert np.array_equal(release.values, truth)
    assert np.array_equal(release.exact[0].ravel(), by_state(truth))


def test_a_wide_table(world):
    truth = world.counts()
    rows = [[f"c{i + 1}", *truth[i]] for i in range(5)]
    world.write("wide.csv", rows, ["county", "women", "men"])
    spec = world.spec(data={"counts": {"source": str(world.folder / "wide.csv")}}, privacy=QUIET)
    spec["axes"]["sex"] = {"columns": {"F": "women", "M": "men"}}
    release = run(spec, seed=1).release
    assert np.array_equal(release.values, truth)
    assert np.array_equal(release.exact[0].ravel(), by_state(truth))


@pytest.mark.parametrize("source", ["persons.csv", "persons.parquet", "persons.duckdb"])
def test_held_totals_count_all_records_and_noise_protects_the_bounded_table(world, source):
    world.write(source)
    data = {"source": str(world.folder / source), "unit": "person", "records": 2}
    if source.endswith("duckdb"):
        data["table"] = "records"
    spec = world.spec(
        data=data, privacy=QUIET, mechanism="projected", publish={"to": str(world.folder / "r")}
    )
    made = run(spec, seed=1)
    release, everything, bounded = made.release, world.counts(), world.counts(2)
    assert everything.sum() > bounded.sum()
    assert np.array_equal(release.exact[0].ravel(), by_state(everything))  # in integers
    assert release.exact[0].dtype == np.int64
    assert np.allclose(release.values, reconciled(bounded, everything), atol=1e-9)
    # Twins: noise on the table of all records, and held totals of the bounded one.
    assert not np.allclose(release.values, reconciled(everything, everything), atol=0.1)
    assert not np.allclose(release.values, reconciled(bounded, bounded), atol=0.1)
    assert release.mechanism.capped
    assert release.guarantee.kind == "S"
    assert verify_folder(made.folder).ok


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("hold", [[[]], [["state"], []], [["sex"]]])
@pytest.mark.parametrize("records", [1, 3])
def test_the_guarantee_is_never_plain_when_records_are_left_out(world, decimals, hold, records):
    data = {"source": "nowhere.csv", "unit": "person", "records": records}
    spec = world.spec(data=data, hold=hold, publish={"decimals": decimals})
    (planned,) = plan(spec).releases
    assert planned.design.guarantee.kind == ("S" if decimals is None else "G")
    assert any(
        "held figures count all records" in s for s in planned.design.guarantee.not_protected()
    )


def test_the_same_totals_are_plain_when_every_row_is_a_person(world):
    (planned,) = plan(world.spec(hold=[[]])).releases
    assert planned.design.guarantee.kind == "plain"


def test_with_nothing_held_a_bounded_release_is_plain(world):
    data = {"source": "nowhere.csv", "unit": "person", "records": 2}
    (planned,) = plan(world.spec(data=data, hold=[])).releases
    assert planned.design.guarantee.kind == "plain"


# ----------------------------------------------------------------------- several tables, and sums


TABLES = {
    "by_county": {
        "axes": ["county", "sex"],
        "hold": [["state"]],
        "share": 0.6,
        "publish": {"margins": [["state", "sex"]]},
        "sums": {"income": {"lower": 0, "upper": 1000, "unit": 10, "share": 0.3}},
    },
    "by_age": {"axes": ["age", "sex"], "hold": [["sex"]], "share": 0.4},
}


def several(world, **changes):
    spec = world.spec(hold=None, tables=TABLES, **changes)
    spec["axes"]["age"] = {"bins": [0, 18, 65]}
    return spec


def test_several_tables_and_sums_in_folders_of_their_own(world):
    made = run(several(world), seed=1)
    assert list(made.releases) == ["by_county", "by_county-income", "by_age"]
    assert {p.name for p in made.folder.iterdir() if p.is_dir()} == set(made.releases)
    assert (made.folder / "by_county" / "margins" / "state-by-sex.csv").is_file()
    result = verify_folder(made.folder)
    assert result.ok, str(result)
    assert {c.name.partition(":")[0] for c in result.checks} == {"digests", *made.releases}
    truth = world.counts()
    assert np.array_equal(made.releases["by_county"].exact[0].ravel(), by_state(truth))
    assert np.array_equal(made.releases["by_age"].exact[0].ravel(), truth.sum(0))
    with pytest.raises(ReleaseError, match="3 releases"):
        _ = made.release
    readme = (made.folder / "README.txt").read_text("utf-8")
    assert all(name in readme for name in made.releases)


@pytest.mark.parametrize(
    "privacy",
    [{"epsilon": 0.3}, {"epsilon": 0.7, "delta": 1e-7}, {"rho": 0.1}, {"mu": 0.3}],
    ids=["pure", "approximate", "concentrated", "gaussian"],
)
def test_budgets_of_all_releases_add_up_to_at_most_the_whole(world, privacy):
    spent = dict.fromkeys(privacy, Fraction(0))
    for asked in releases_of(read_specification(several(world, privacy=privacy))):
        budget = asked.budget.as_dict()
        for name in privacy:
            power = 2 if name == "mu" else 1
            spent[name] += exact_decimal(budget[name]) ** power
    for name, whole in privacy.items():
        limit = exact_decimal(whole) ** (2 if name == "mu" else 1)
        assert spent[name] <= limit
        assert spent[name] > limit * Fraction(999999, 1000000)


def test_sums_beside_counts(world):
    sums = {"income": {"lower": 0, "upper": 600, "unit": 10, "share": 0.5}}
    made = run(world.spec(hold=[], sums=sums, privacy={"epsilon": 1000.0}), seed=1)
    assert list(made.releases) == ["counts", "income"]
    wanted = np.zeros((5, 2))
    for _, county, sex, _, income in world.rows:
        wanted[int(county[1]) - 1, "FM".index(sex)] += 10 * round(
            Fraction(min(max(income, 0), 600), 10)
        )
    released = made.releases["income"]
    # Noise of scale 120/500 in units of 10: beyond 200 with probability below 1e-30.
    assert np.abs(released.values - wanted).max() < 200
    assert np.abs(released.values - wanted * 1.5).max() > 200
    assert verify_folder(made.folder).ok
    assert made.releases["counts"].values.dtype == np.int64


def test_sums_of_a_bounded_table(world):
    data = {"source": str(world.folder / "persons.csv"), "unit": "person", "records": 2}
    sums = {"income": {"lower": 0, "upper": 1000, "unit": 10, "share": 0.5}}
    made = run(world.spec(data=data, sums=sums), seed=1)
    assert made.releases["income"].mechanism.capped
    assert verify_folder(made.folder).ok


def test_a_sum_named_counts_does_not_take_the_place_of_the_counts(world):
    sums = {"counts": {"column": "income", "lower": 0, "upper": 600, "unit": 10, "share": 0.5}}
    try:
        made = run(world.spec(hold=[], sums=sums))
    except SubspaceDPError:
        return  # refusing it is as good
    assert len(made.releases) == 2


def test_a_table_named_like_the_sum_of_another_does_not_take_its_place(world):
    spec = several(world)
    spec["tables"] = {
        "by_county": {k: v for k, v in TABLES["by_county"].items() if k != "publish"},
        "by_county-income": {"axes": ["age"], "share": 0.4},
    }
    try:
        made = run(spec)
    except SubspaceDPError:
        return  # refusing it is as good
    assert len(made.releases) == 3


@pytest.mark.parametrize("name", ["report.html", "README.txt", "dictionary.csv"])
def test_a_table_named_like_a_file_is_refused_before_noise(world, name, monkeypatch):
    monkeypatch.setattr(ReleaseKeys, "fresh", _no_noise)
    spec = several(world)
    spec["tables"] = {name: {"axes": ["county"], "share": 1.0}}
    with pytest.raises(SubspaceDPError):
        run(spec)


# ------------------------------------------------------------------------------ what is published


def test_labels_from_the_data_are_said_not_to_be_protected(world):
    spec = world.spec(hold=[])
    spec["axes"] = {"county": {"labels": "from-data"}, "sex": {"labels": ["F", "M"]}}
    made = run(spec)
    certificate = json.loads((made.folder / "certificate.json").read_text("utf-8"))
    line = "The labels of axis `county` were read off the data"
    assert any(line in s for s in certificate["guarantee"]["not_protected"])
    assert certificate["design"]["query"]["domain"][0]["labels_from_data"] is True
    assert certificate["design"]["query"]["domain"][1].get("labels_from_data") is not True
    assert "were read off the data" in " ".join(
        (made.folder / "README.txt").read_text("utf-8").split()
    )
    assert list(made.release.mechanism.domain.axes[0].labels) == ["c1", "c2", "c3", "c4", "c5"]
    assert verify_folder(made.folder).ok


def test_margins_in_both_formats_say_what_the_release_says(world):
    margins = [["state", "sex"], ["sex"], []]
    made = run(
        world.spec(publish={"decimals": 0, "margins": margins, "to": str(world.folder / "r")})
    )
    stems = {"state-by-sex": ("state", "sex"), "sex": ("sex",), "total": ()}
    for stem, levels in stems.items():
        wanted = made.release.margin(*levels).columns(0.95)
        for table in (
            pyarrow.csv.read_csv(made.folder / "margins" / f"{stem}.csv"),
            pq.read_table(made.folder / "margins" / f"{stem}.parquet"),
        ):
            assert set(table.column_names) == {*levels, "value", "stderr", "lower", "upper"}
            for name in table.column_names:
                assert table[name].to_pylist() == np.asarray(wanted[name]).tolist()
    total = pq.read_table(made.folder / "margins" / "total.parquet")
    assert total["value"].to_pylist() == [int(world.counts().sum())]
    assert total["stderr"].to_pylist() == [0.0]


def test_both_formats_of_the_values_say_the_same(world):
    made = run(world.spec())
    found = pyarrow.csv.read_csv(made.folder / "values.csv")
    other = pq.read_table(made.folder / "values.parquet")
    assert found.column_names == ["county", "state", "sex", "value", "stderr"]
    for name in found.column_names:
        assert found[name].to_pylist() == other[name].to_pylist()
    assert found["value"].to_pylist() == made.release.values.ravel().tolist()


def test_the_dictionary_names_every_column_of_every_file(world):
    publish = {"decimals": 0, "margins": [["state"]], "non_negative": True}
    made = run(world.spec(publish={**publish, "to": str(world.folder / "r")}))
    with (made.folder / "dictionary.csv").open(encoding="utf-8", newline="") as file:
        known = {row["column"] for row in csv.DictReader(file)}
    for path in made.folder.rglob("*.csv"):
        if path.name != "dictionary.csv":
            assert set(pyarrow.csv.read_csv(path).column_names) <= known, path.name
    readme = (made.folder / "README.txt").read_text("utf-8")
    for path in made.folder.rglob("*"):
        if path.is_file():
            assert path.relative_to(made.folder).as_posix() in readme


def test_a_biased_table_stands_beside_the_release_and_says_so(world):
    spec = world.spec(
        privacy={"epsilon": 0.1}, publish={"non_negative": True, "to": str(world.folder / "r")}
    )
    made = run(spec, seed=2)
    assert (made.release.values < 0).any()
    table = pyarrow.csv.read_csv(made.folder / "non-negative-biased.csv")
    biased = table["non_negative_biased"].to_numpy().reshape(5, 2)
    assert (biased >= 0).all()
    assert np.array_equal(by_state(biased), by_state(world.counts()))
    assert table["unbiased_value"].to_pylist() == made.release.values.ravel().tolist()
    assert "BIASED" in (made.folder / "README.txt").read_text("utf-8")
    assert np.array_equal(Release.load(made.folder).values, made.release.values)


def test_words_of_the_specification_reach_its_readers(world):
    words = {"title": "Heads <counted>", "about": "About & so on", "contact": "desk@example.org"}
    made = run(world.spec(**words))
    page = (made.folder / "report.html").read_text("utf-8")
    assert "Heads &lt;counted&gt;" in page
    assert "<counted>" not in page
    assert "desk@example.org" in page
    assert (made.folder / "README.txt").read_text("utf-8").startswith("Heads <counted>\n=======")


CLIPPED = (
    "sum of `income`, each value moved into 0 to 50,000 and rounded to 100; larger values count as "
    "50,000, so it is biased for the plain sum"
)


def plain_text(path):
    """The words of a file in one line, without marks of HTML."""
    bare = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", path.read_text("utf-8"), flags=re.S)
    return " ".join(unescape(bare).split())


def sections(page):
    """The parts of a report about each release."""
    return [" ".join(unescape(re.sub(r"<[^>]*>", " ", part)).split())
            for part in re.findall(r"<article.*?</article>", page, re.DOTALL)]  # fmt: skip


def meanings(folder, column):
    with (folder / "dictionary.csv").open(encoding="utf-8", newline="") as file:
        return [row["meaning"] for row in csv.DictReader(file) if row["column"] == column]


@pytest.fixture
def with_sums(world):
    data = {"source": str(world.folder / "persons.csv"), "unit": "person", "records": 2}
    sums = {"income": {"lower": 0, "upper": 50_000, "unit": 100, "share": 0.5}}
    publish = {"decimals": 0, "non_negative": True, "to": str(world.folder / "r")}
    return run(world.spec(data=data, sums=sums, publish=publish, privacy=QUIET), seed=1)


def test_readers_are_told_that_sums_are_clipped_and_rounded(with_sums):
    folder = with_sums.folder
    readme = plain_text(folder / "README.txt")
    assert CLIPPED in readme
    assert "the truth" not in readme
    of_counts, of_sums = meanings(folder, "value")
    assert of_counts.startswith("in counts: ")
    assert of_sums.startswith("in income: ")
    assert CLIPPED in of_sums
    assert CLIPPED not in of_counts
    page = (folder / "report.html").read_text("utf-8")
    counts, income = sections(page)
    assert income.count(CLIPPED) == 1
    assert f"Sums of `income` by county (5 labels, grouped by state (2)) × sex (2 labels): "\
        f"{CLIPPED.partition(', ')[2]}." in income  # fmt: skip
    assert "10 sums" in income
    title = "Counts and sums of income by county × sex"
    assert "income" not in counts.replace(title, "")  # which the certificate states
    assert f"<title>{title}</title>" in page
    assert readme.startswith(title)


def test_the_lower_end_of_a_range_is_told_too(world):
    sums = {"income": {"lower": -10.5, "upper": 600, "unit": 0.5, "share": 0.5}}
    made = run(world.spec(sums=sums), seed=1)
    wanted = (
        "moved into -10.5 to 600 and rounded to 0.5; larger values count as 600 and smaller ones "
        "as -10.5, so"
    )
    assert wanted in plain_text(made.folder / "README.txt")


def test_a_sum_that_holds_nothing_is_not_said_to_be_moved(with_sums):
    guarantees = {name: one.guarantee for name, one in with_sums.releases.items()}
    assert "moved to agree" in " ".join(guarantees["counts"].not_protected())
    (only,) = guarantees["income"].not_protected()
    assert only == "At most 2 records per person take part in what noise protects."
    counts, income = sections((with_sums.folder / "report.html").read_text("utf-8"))
    for words in ("moved to agree", "held exact count all records"):
        assert words in counts
        assert words not in income
    of_counts, of_sums = meanings(with_sums.folder, "value")
    assert "moved to agree" in of_counts
    assert "moved to agree" not in of_sums


def test_a_version_without_negative_values_is_told_where_there_is_one(with_sums):
    assert (with_sums.folder / "counts" / "non-negative-biased.csv").is_file()
    assert not (with_sums.folder / "income" / "non-negative-biased.csv").exists()
    counts, income = sections((with_sums.folder / "report.html").read_text("utf-8"))
    assert "A second table, without negative values" in counts
    assert "A second table, without negative values" not in income


def test_no_version_without_negative_values_is_told_when_none_was_found(world, monkeypatch):
    def none(_second, _folder):
        raise ReleaseError("none")

    monkeypatch.setattr("subspacedp.microdata.SecondTable.write", none)
    made = run(world.spec(publish={"non_negative": True, "to": str(world.folder / "r")}))
    assert (made.folder / "non-negative-biased.txt").is_file()
    assert "A second table" not in plain_text(made.folder / "report.html")
    assert "BIASED" not in plain_text(made.folder / "README.txt")


def test_who_is_protected_where_only_some_records_count(with_sums):
    sentence = "one person's records, of which at most 2 count, replaced by others"
    assert sentence in plain_text(with_sums.folder / "README.txt")
    page = plain_text(with_sums.folder / "report.html")
    assert "Every person; at most 2 records of each count" in page
    assert "with at most" not in page
    assert page.count(f"differ by {sentence}") == 6  # card, guarantee, certificate
    assert page.count(sentence) == 8  # and the table of budgets
    certificate = json.loads((with_sums.folder / "income/certificate.json").read_text("utf-8"))
    assert sentence in certificate["guarantee"]["statement"]


def test_the_readme_warns_of_spreadsheets_and_of_biased_numbers(with_sums, world):
    readme = plain_text(with_sums.folder / "README.txt")
    assert "One that starts with =, +, - or @ may be taken for a formula" in readme
    assert "It is BIASED: Use this table where a negative number cannot be used" in readme
    other = plain_text(run(world.spec()).folder / "README.txt")
    assert "taken for a formula" in other
    assert "BIASED" not in other


# ------------------------------------------------------------------------------------------ seeds


def test_a_seed_repeats_the_values_and_is_stamped_everywhere(world):
    first, again = (run(world.spec(), out=world.folder / name, seed=5) for name in ("a", "b"))
    other = run(world.spec(), out=world.folder / "c", seed=6)
    assert np.array_equal(first.release.values, again.release.values)
    assert not np.array_equal(first.release.values, other.release.values)
    for file in ("values.csv", "values.parquet", "certificate.json", "README.txt"):
        assert (first.folder / file).read_bytes() == (again.folder / file).read_bytes()
    for file in ("certificate.json", "README.txt", "report.html"):
        text = (first.folder / file).read_text("utf-8")
        assert "not for publication" in text.lower(), file
    assert "NOT FOR PUBLICATION" in verify_folder(first.folder).stamp


def test_without_a_seed_noise_is_fresh_and_nothing_is_stamped(world):
    first, again = (run(world.spec(), out=world.folder / name) for name in ("a", "b"))
    # 10 cells of scale 2 agree with probability below 1e-5 per release.
    assert first.release.release_id != again.release.release_id
    assert not np.array_equal(first.release.values, again.release.values)
    for path in first.folder.rglob("*"):
        if path.is_file():
            assert b"NOT FOR PUBLICATION" not in path.read_bytes(), path.name


# ----------------------------------------------------------------------------------------- dry run


def _no_noise(*_arguments, **_options):
    raise AssertionError("noise was drawn")


def test_a_dry_run_reads_the_data_and_neither_draws_nor_writes(world, monkeypatch):
    monkeypatch.setattr(ReleaseKeys, "fresh", _no_noise)
    monkeypatch.setattr(ReleaseKeys, "from_seed", _no_noise)
    before, said = world.listing(), []
    made = run(world.spec(), dry_run=True, compare=world.folder / "private", progress=said.append)
    assert made.folder is None
    assert dict(made.releases) == {}
    assert list(made.designs) == ["table"]
    assert "dry run" in repr(made)
    assert world.listing() == before
    assert said
    with pytest.raises(ReleaseError, match="none after a dry run"):
        _ = made.release
    with pytest.raises(AssertionError, match="noise was drawn"):
        run(world.spec())


def test_every_form_of_a_specification(world):
    path = world.yaml()
    for i, thing in enumerate((path, str(path), world.spec(), read_specification(path))):
        assert run(thing, out=world.folder / f"r{i}", seed=1).folder == world.folder / f"r{i}"


def test_a_ledger_is_refused_while_there_is_none(world):
    ledger = str(world.folder / "b.db")
    with pytest.raises(SubspaceDPError, match="There is no ledger"):
        run(world.spec(budget={"ledger": ledger, "account": "x"}))
    assert world.listing() == ["persons.csv"]


# --------------------------------------------------------------------------------- broken twins


@pytest.fixture(scope="module")
def signed_once(shared_world):
    folder = shared_world.folder
    private, public = pem(folder / "key.pem", Ed25519PrivateKey.generate())
    publish = {"decimals": 0, "margins": [["state", "sex"]], "non_negative": True}
    spec = shared_world.spec(
        publish={**publish, "sign": str(private), "to": str(folder / "signed")}
    )
    return run(spec).folder, public


@pytest.fixture
def signed(signed_once, tmp_path):
    folder, public = signed_once
    return shutil.copytree(folder, tmp_path / "release"), public


def test_a_signed_publication_verifies(signed):
    folder, public = signed
    result = verify_folder(folder, public_key=public)
    assert result.ok, str(result)
    assert "by the key given" in str(result)
    assert verify_folder(folder).ok
    assert "--key" in (folder / "README.txt").read_text("utf-8")
    listed = json.loads((folder / "signature.json").read_text("utf-8"))["files"]
    assert set(listed) == names(folder) - {"signature.json"}


def bump(path):
    """Change the last digit of a text file."""
    text = path.read_text("utf-8")
    at = max(i for i, sign in enumerate(text) if sign.isdigit())
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :], "utf-8")


@pytest.mark.parametrize(
    "file",
    [
        "values.csv",
        "certificate.json",
        "error-model.json",
        "margins/state-by-sex.csv",
        "non-negative-biased.csv",
        "dictionary.csv",
        "README.txt",
        "report.html",
    ],
)
def test_a_signature_covers_every_file(signed, file):
    folder, _ = signed
    bump(folder / file)
    assert not verify_folder(folder).ok


def test_a_file_that_was_added_or_taken_away_breaks_a_signature(signed):
    folder, _ = signed
    (folder / "margins" / "note.txt").write_text("hello")
    assert not verify_folder(folder).ok
    (folder / "margins" / "note.txt").unlink()
    assert verify_folder(folder).ok
    (folder / "margins" / "state-by-sex.csv").unlink()
    assert not verify_folder(folder).ok


def test_a_signature_of_something_else_fails(signed):
    folder, public = signed
    path = folder / "signature.json"
    data = json.loads(path.read_text("utf-8"))
    first = data["signature"][0]
    data["signature"] = ("B" if first == "A" else "A") + data["signature"][1:]
    path.write_text(json.dumps(data), "utf-8")
    assert not verify_folder(folder).ok
    path.unlink()
    assert not verify_folder(folder, public_key=public).ok


@pytest.fixture(scope="module")
def unsigned_once(shared_world):
    to = str(shared_world.folder / "unsigned")
    publish = {"decimals": 0, "margins": [["state", "sex"]], "to": to}
    return run(shared_world.spec(publish=publish)).folder


@pytest.fixture
def unsigned(unsigned_once, tmp_path):
    return shutil.copytree(unsigned_once, tmp_path / "release")


def edit(path, column, change):
    table = pq.read_table(path)
    values = table[column].to_pylist()
    values[0] = change(values[0])
    import pyarrow as pa

    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, pa.array(values)), path)


@pytest.mark.parametrize("column", ["value", "stderr", "lower", "upper"])
def test_an_altered_margin_fails_without_a_signature(unsigned, column):
    assert verify_folder(unsigned).ok
    edit(unsigned / "margins" / "state-by-sex.parquet", column, lambda x: x + 1)
    assert not verify_folder(unsigned).ok


def test_an_altered_value_fails_without_a_signature(unsigned):
    edit(unsigned / "values.parquet", "value", lambda x: x + 1)
    assert not verify_folder(unsigned).ok


@pytest.mark.parametrize("alter", [bump, lambda path: path.unlink()], ids=["altered", "gone"])
def test_the_csv_of_a_margin_is_checked_too(unsigned, alter):
    alter(unsigned / "margins" / "state-by-sex.csv")
    assert not verify_folder(unsigned).ok


@pytest.fixture(scope="module")
def unsigned_tables_once(shared_world):
    to = str(shared_world.folder / "tables")
    publish = {"decimals": 0, "non_negative": True, "to": to}
    return run(several(shared_world, publish=publish)).folder


@pytest.fixture
def unsigned_tables(unsigned_tables_once, tmp_path):
    return shutil.copytree(unsigned_tables_once, tmp_path / "release")


@pytest.mark.parametrize(
    "file",
    [
        "README.txt",
        "dictionary.csv",
        "report.html",
        "by_age/non-negative-biased.csv",
        "by_county/margins/state-by-sex.csv",
        "by_county-income/certificate.json",
    ],
)
@pytest.mark.parametrize("alter", [bump, lambda path: path.unlink()], ids=["altered", "gone"])
def test_digests_cover_every_file_without_a_signature(unsigned_tables, file, alter):
    listed = json.loads((unsigned_tables / "digests.json").read_text("utf-8"))["files"]
    assert set(listed) == names(unsigned_tables) - {"digests.json"}
    assert not (unsigned_tables / "signature.json").exists()
    assert verify_folder(unsigned_tables).ok
    alter(unsigned_tables / file)
    check = verify_folder(unsigned_tables).checks[0]
    assert not check.ok
    assert f"`{file}`" in check.detail


def test_a_table_that_is_gone_or_a_file_too_many_is_found(unsigned_tables):
    (unsigned_tables / "note.txt").write_text("hello")
    assert not verify_folder(unsigned_tables).ok
    (unsigned_tables / "note.txt").unlink()
    assert verify_folder(unsigned_tables).ok
    shutil.rmtree(unsigned_tables / "by_age")
    result = verify_folder(unsigned_tables)
    assert not result.ok
    assert "by_age" in str(result)


@pytest.mark.parametrize("column", ["unbiased_value", "non_negative_biased", "sex"])
def test_the_table_without_negative_values_is_checked_without_digests(unsigned_tables, column):
    path = unsigned_tables / "by_age" / "non-negative-biased.csv"
    table = pyarrow.csv.read_csv(path)
    values = table[column].to_pylist()
    values[0] = "M" if column == "sex" else values[0] + 1
    place = table.column_names.index(column)
    pyarrow.csv.write_csv(table.set_column(place, column, pa.array(values)), path)
    write_digests(path.parent)  # as whoever altered the file can
    write_digests(unsigned_tables)
    (failed,) = [check for check in verify_folder(unsigned_tables).checks if not check.ok]
    assert failed.name == "by_age: non-negative-biased.csv"
    assert f"`{column}`" in failed.detail


# ----------------------------------------------------------------------------------- comparisons


def test_a_comparison_is_its_owners_alone_and_beside_the_release(world):
    before = set(world.listing())
    made = run(world.spec(), compare=world.folder / "private")
    private = world.folder / "private"
    assert {p.name for p in private.iterdir()} == {"CONFIDENTIAL.txt", "quality.html", "table.csv"}
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in private.iterdir())
    table = pyarrow.csv.read_csv(private / "table.csv")
    truth = world.counts().ravel()
    assert table["confidential"].to_pylist() == truth.tolist()
    assert table["released"].to_pylist() == made.release.values.ravel().tolist()
    assert table["error"].to_pylist() == (made.release.values.ravel() - truth).tolist()
    scores = table["error_in_standard_errors"].to_numpy() * made.release.stderr().ravel()
    assert np.allclose(scores, table["error"].to_numpy())
    for path in made.folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"error_in_standard_errors" not in content, path.name
            assert b"CONFIDENTIAL" not in content, path.name
    assert {n.split("/")[0] for n in set(world.listing()) - before} == {"release", "private"}


def test_the_quality_of_a_release_is_its_owners_alone(world):
    made = run(world.spec(), compare=world.folder / "private")
    page = world.folder / "private" / "quality.html"
    assert page.stat().st_mode & 0o777 == 0o600
    assert "intervals that cover" in page.read_text("utf-8")
    assert not list(made.folder.rglob("quality*"))


def test_without_asking_there_is_no_comparison(world):
    before = set(world.listing())
    run(world.spec())
    assert {n.split("/")[0] for n in set(world.listing()) - before} == {"release"}


def test_a_comparison_of_sums_and_bounded_tables_is_with_what_noise_protects(world):
    data = {"source": str(world.folder / "persons.csv"), "unit": "person", "records": 2}
    sums = {"income": {"lower": 0, "upper": 1000, "unit": 0.5, "share": 0.5}}
    run(world.spec(data=data, sums=sums), compare=world.folder / "private")
    table = pyarrow.csv.read_csv(world.folder / "private" / "counts.csv")
    assert table["confidential"].to_pylist() == world.counts(2).ravel().tolist()
    incomes = pyarrow.csv.read_csv(world.folder / "private" / "income.csv")
    assert sum(incomes["confidential"].to_pylist()) < sum(row[4] for row in world.rows)
    assert sum(incomes["confidential"].to_pylist()) > 100 * world.counts(2).sum()


@pytest.mark.parametrize("decimals", [None, 0])
def test_errors_are_those_of_noise_where_held_totals_count_all_records(world, decimals):
    data = {"source": str(world.folder / "persons.csv"), "unit": "person", "records": 2}
    publish = {"decimals": decimals, "to": str(world.folder / "r")}
    spec = world.spec(data=data, publish=publish, privacy=QUIET, mechanism="projected")
    made = run(spec, compare=world.folder / "private", seed=1)
    table = pyarrow.csv.read_csv(world.folder / "private" / "table.csv")
    bounded, everything = world.counts(2), world.counts()
    wanted = reconciled(bounded, everything)
    assert table["confidential"].to_pylist() == bounded.ravel().tolist()
    assert table["all_records"].to_pylist() == everything.ravel().tolist()
    assert np.allclose(table["without_noise"].to_numpy(), wanted.ravel(), atol=1e-9)
    error = table["error"].to_numpy()
    assert np.allclose(error, (made.release.values - wanted).ravel(), atol=1e-9)
    # No noise at this budget: what is left is rounding. Against either table it would be more.
    assert np.abs(error).max() < (2 if decimals == 0 else 1e-9)
    for truth in (bounded, everything):
        assert np.abs(made.release.values - truth).max() > 5


@pytest.mark.parametrize("inside", ["release/private", "release", "release/deep/private"])
def test_a_comparison_within_the_release_is_refused_before_noise(world, monkeypatch, inside):
    monkeypatch.setattr(ReleaseKeys, "fresh", _no_noise)
    with pytest.raises(SubspaceDPError):
        run(world.spec(), compare=world.folder / inside)


def test_no_person_is_named_in_any_public_file(world):
    data = {"source": str(world.folder / "persons.csv"), "unit": "person", "records": 2}
    made = run(world.spec(data=data), compare=world.folder / "private")
    for path in made.folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"id-00" not in content, path.name
            assert str(world.folder).encode() not in content, path.name
            assert b"persons.csv" not in content, path.name
