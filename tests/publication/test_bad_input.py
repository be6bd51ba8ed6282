"""What goes wrong ends in one sentence, without a confidential value, and leaves nothing behind."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.csv
import pytest
from tests.publication.conftest import COUNTIES, HEADER, pem

from subspacedp.cli.app import main
from subspacedp.errors import ReleaseError
from subspacedp.noise import ReleaseKeys
from subspacedp.publication import read_specification, run
from subspacedp.release import verify_folder

PLANTED = "SECRET-7731"


class DrawnError(Exception):
    """Noise was drawn."""


@pytest.fixture
def silent(monkeypatch):
    """Whoever draws noise fails."""

    def fresh(*_arguments):
        raise DrawnError

    monkeypatch.setattr(ReleaseKeys, "fresh", fresh)


@pytest.fixture
def attempt(silent, attempt_with_noise):
    """The same, for what has to fail before any noise is drawn."""
    return attempt_with_noise


@pytest.fixture
def attempt_with_noise(world, monkeypatch, capsys):
    """Run the command on a specification; check all that every failure has in common."""
    spills = world.folder.parent / "spills"
    spills.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spills))

    def go(spec, *options, verb="release"):
        before = world.listing()
        monkeypatch.setattr("sys.argv", ["subspacedp", verb, str(spec), *map(str, options)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        assert stop.value.code == 2, err
        assert out == ""
        *steps, sentence = err.strip().splitlines()
        assert sentence.startswith("subspacedp: ")
        assert sentence.endswith((".", "?"))
        assert "Traceback" not in err
        assert not [line for line in steps if line.startswith("subspacedp")]
        assert PLANTED not in err
        assert world.listing() == before
        assert list(spills.iterdir()) == []
        return sentence.removeprefix("subspacedp: ")

    return go


def with_row(world, **values):
    """The records and one more, whose other values are fine."""
    row = dict(zip(HEADER, world.rows[0], strict=True)) | values
    return [*world.rows, [row[name] for name in HEADER]]


# ------------------------------------------------------------------------------------- the data


def test_the_twin_that_would_draw_noise_is_noticed(world, silent):
    with pytest.raises(DrawnError):
        run(world.spec())


def test_a_missing_column_names_the_nearest(world, attempt):
    spec = world.yaml(axes={"county": {"column": "countie", "labels": ["c1"]}}, hold=[])
    sentence = attempt(spec)
    assert sentence == (
        "The source has no column `countie` for axis `county`; did you mean `county`?"
    )


@pytest.mark.parametrize("source", ["persons.csv", "persons.parquet", "persons.duckdb"])
@pytest.mark.parametrize("unit", ["row", "person"])
def test_a_label_outside_the_list_is_counted_and_not_told(world, attempt, source, unit):
    world.write(source, [*with_row(world, county=PLANTED), *with_row(world, county=PLANTED)[-1:]])
    data = {"source": str(world.folder / source), "unit": unit}
    if source.endswith("duckdb"):
        data["table"] = "records"
    sentence = attempt(world.yaml(data=data))
    assert sentence == (
        "2 rows have a value of `county` that is not among its labels, and `other: all other` in "
        "`axes.county` (line 1) would take them."
    )


def test_a_missing_label(world, attempt):
    world.write("persons.csv", with_row(world, sex=""))
    assert attempt(world.yaml()) == (
        "1 row has no value of `sex`, and `missing: not stated` in `axes.sex` (line 1) would take "
        "it."
    )


@pytest.mark.parametrize("source", ["persons.csv", "persons.parquet"])
def test_records_of_nobody(world, attempt, source):
    world.write(source, with_row(world, person="" if source.endswith("csv") else None))
    data = {"source": str(world.folder / source), "unit": "person"}
    sentence = attempt(world.yaml(data=data))
    assert sentence.startswith("1 row has no value of `person`, so it is not known whose they are")


def test_text_in_a_column_of_numbers(world, attempt):
    world.write("persons.csv", with_row(world, age=PLANTED, income=PLANTED))
    axes = {"age": {"bins": [0, 18, 65]}}
    sentence = attempt(world.yaml(axes=axes, hold=[]))
    assert sentence == (
        "1 row has a value of `age` that is not a finite number, and `other: all other` in "
        "`axes.age` (line 1) would take it."
    )
    sums = {"income": {"lower": 0, "upper": 10, "share": 0.5}}
    sentence = attempt(world.yaml(sums=sums))
    assert sentence == (
        "1 row has a value of `income` that is missing or not a finite number, and `missing: 0` in "
        "`sums.income` (line 1) would count it as 0."
    )


def test_a_number_below_the_first_bin(world, attempt):
    world.write("persons.csv", with_row(world, age=-7731))
    sentence = attempt(world.yaml(axes={"age": {"bins": [0, 18, 65]}}, hold=[]))
    assert sentence == (
        "1 row has a value of `age` below its first bin, and `other: all other` in `axes.age` "
        "(line 1) would take it."
    )


@pytest.mark.parametrize("count", ["-3", "1.5", PLANTED, "1e30", ""])
def test_counts_that_are_none(world, attempt, count):
    world.write("counts.csv", [["c1", "F", 4], ["c2", "M", count]], ["county", "sex", "n"])
    data = {"counts": {"source": str(world.folder / "counts.csv"), "value": "n"}}
    sentence = attempt(world.yaml(data=data))
    assert "1 row has" in sentence
    assert "`n`" in sentence
    assert count == "" or count not in sentence


def test_a_source_without_rows(world, attempt):
    world.write("persons.csv", [])
    assert attempt(world.yaml()) == "The source has no rows."
    (world.folder / "persons.csv").write_text("")
    assert attempt(world.yaml()) == "`persons.csv` must start with a line of column names."


def test_a_line_with_too_many_fields(world, attempt):
    path = world.folder / "persons.csv"
    path.write_text(path.read_text() + f"id,c1,F,3,4,{PLANTED},6\n")
    assert "source did not answer the query" in attempt(world.yaml())


def test_no_such_file(world, attempt):
    data = {"source": str(world.folder / "person.csv"), "unit": "row"}
    sentence = attempt(world.yaml(data=data))
    assert sentence == f"There is no file `{world.folder / 'person.csv'}`."


def test_a_file_of_no_known_kind(world, attempt):
    (world.folder / "persons.docx").write_bytes(PLANTED.encode())
    data = {"source": str(world.folder / "persons.docx"), "unit": "row"}
    assert attempt(world.yaml(data=data)).startswith("`persons.docx` is of no known kind")


@pytest.mark.parametrize("ending", ["xlsx", "xls", "ods", "sav", "dta", "sas7bdat", "xpt"])
@pytest.mark.parametrize("packed", ["", "PK\3\4"])
def test_a_file_that_is_not_what_its_name_says(world, attempt, ending, packed):
    (world.folder / f"persons.{ending}").write_text(f"{packed}{PLANTED}" * 100)
    data = {"source": str(world.folder / f"persons.{ending}"), "unit": "row"}
    assert attempt(world.yaml(data=data)).startswith(f"`persons.{ending}` could not be read")


def test_a_folder_without_records(world, attempt):
    (world.folder / "empty").mkdir()
    data = {"source": str(world.folder / "empty"), "unit": "row"}
    assert attempt(world.yaml(data=data)).startswith("`empty` could not be read")


@pytest.mark.parametrize("name", ["persons.parquet", "persons.duckdb"])
def test_a_broken_file(world, attempt, name):
    (world.folder / name).write_bytes(f"PAR1{PLANTED}".encode() * 100)
    data = {"source": str(world.folder / name), "unit": "row"}
    if name.endswith("duckdb"):
        data["table"] = "records"
    assert "could not be" in attempt(world.yaml(data=data))


def test_a_parquet_file_cut_short(world, attempt):
    world.write("persons.parquet")
    path = world.folder / "persons.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    data = {"source": str(path), "unit": "row"}
    assert attempt(world.yaml(data=data)).startswith("`persons.parquet` could not be read")


def test_text_that_is_not_utf8(world, attempt):
    path = world.folder / "persons.csv"
    path.write_bytes(path.read_bytes() + b"id-1,c1,F,3,4\n" * 10_000 + b"id-\xff\xfe,c1,F,3,4\n")
    assert "did not answer" in attempt(world.yaml())


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read(world, attempt):
    (world.folder / "persons.csv").chmod(0)
    assert "could not be read" in attempt(world.yaml())


def test_a_file_that_may_not_be_read_as_the_system_says_it(world, attempt, monkeypatch):
    def refusing(path, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("pyarrow.input_stream", refusing)
    assert "could not be read" in attempt(world.yaml())


def test_a_table_that_the_database_does_not_have(world, attempt):
    world.write("persons.duckdb")
    where = {"source": str(world.folder / "persons.duckdb"), "unit": "row"}
    sentence = attempt(world.yaml(data={**where, "table": "nobody"}))
    assert sentence.startswith("`persons.duckdb` could not be read")


@pytest.mark.parametrize("answers", [0, 1])
def test_a_database_that_goes_away_half_way(world, attempt, monkeypatch, answers):
    from subspacedp.io.duck import DuckSource

    real = DuckSource._run

    def going(self, sql, scratch):
        for i, batch in enumerate(real(self, sql, scratch)):
            if i == answers:
                break
            yield batch
        raise RuntimeError(f"connection lost at row {PLANTED}")

    monkeypatch.setattr(DuckSource, "_run", going)
    sentence = attempt(world.yaml())
    assert sentence == "The duckdb source did not answer the query (RuntimeError)."


def test_labels_from_the_data_that_make_no_axis(world, attempt):
    world.write("persons.parquet", with_row(world, income=float("inf")))
    data = {"source": str(world.folder / "persons.parquet"), "unit": "row"}
    spec = world.yaml(data=data, axes={"income": {"labels": "from-data"}}, hold=[])
    assert attempt(spec) == "Column `income` holds real values, which make no labels; give `bins`."


@pytest.mark.parametrize("label", ["", f"{PLANTED}\n"])
def test_strange_labels_from_the_data_are_not_quoted_in_errors(world, label):
    """They may be refused or published, but no error may tell them."""
    world.write("persons.parquet", with_row(world, county=label))
    data = {"source": str(world.folder / "persons.parquet"), "unit": "row"}
    spec = world.spec(data=data, axes={"county": {"labels": "from-data"}}, hold=[])
    said = ""
    try:
        run(spec)
    except Exception as error:
        said = f"{error!r} {error.__cause__!r} {error.__context__!r}"
    assert PLANTED not in said


def test_a_label_that_no_picture_can_show_does_not_end_the_process(world):
    world.write("persons.parquet", with_row(world, county=f"{PLANTED}\x01"))
    data = {"source": str(world.folder / "persons.parquet"), "unit": "row"}
    spec = world.yaml(data=data, axes={"county": {"labels": "from-data"}}, hold=[])
    command = [sys.executable, "-c", "from subspacedp.cli import main; main()", "release", spec]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode in (0, 2)
    assert not [name for name in world.listing() if name.startswith(".")]


# --------------------------------------------------------------------------- the specification


def test_a_typo_in_the_specification_names_the_nearest_key(world, attempt):
    spec = world.yaml()
    spec.write_text(spec.read_text().replace('"privacy"', '"privaci"'))
    assert "did you mean `privacy`?" in attempt(spec)


@pytest.mark.parametrize("edge", [10**400, "1", None, True, [1], float("nan")])
def test_bins_that_are_none(world, attempt, edge):
    axes = {"income": {"bins": [0, edge]}}
    assert "`axes.income.bins`" in attempt(world.yaml(axes=axes, hold=[]))


@pytest.mark.parametrize("key", ["missing", "other"])
def test_rows_without_a_place_join_no_group_by_their_name(world, attempt, key):
    """Unless the group lists their label."""
    groups = {"any": ["F"], "rest": ["M"]}
    axes = {"sex": {"labels": ["F", "M"], "levels": {"kind": groups}, key: "any"}}
    said = attempt(world.yaml(axes=axes, hold=[["kind"]]))
    assert "has a group 'any' of `kind`, which rows without a place would join" in said
    axes["sex"]["levels"]["kind"] = {**groups, "any": ["F", "any"]}
    read_specification(world.spec(axes=axes, hold=[["kind"]]))


@pytest.mark.parametrize("decimals", [-1, 13, 1.5, "two", True])
def test_decimals_that_are_none(world, attempt, decimals):
    assert "`publish.decimals`" in attempt(world.yaml(publish={"decimals": decimals}))


def test_a_missing_code_list(world, attempt):
    sentence = attempt(world.yaml(axes={"county": {"labels": "codes.csv"}}, hold=[]))
    assert "codes.csv" in sentence
    assert "axes.county.labels" in sentence


def test_a_missing_specification(world, attempt):
    assert "nothing.yaml" in attempt(world.folder / "nothing.yaml")
    assert str(world.folder) in attempt(world.folder)


def test_what_is_held_fixes_every_cell(world, attempt):
    hold = [["county", "sex"]]
    assert "nothing is left to protect" in attempt(world.yaml(hold=hold))


def test_a_budget_that_leaves_no_noise(world, attempt):
    assert "so large that no noise" in attempt(world.yaml(privacy={"epsilon": 1e9}))
    assert "too small" in attempt(world.yaml(privacy={"epsilon": 1e-13}))


@pytest.mark.parametrize("kind", ["missing", "folder", "wrong type", "passphrase", "not pem"])
def test_a_key_that_cannot_sign(world, attempt, kind):
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = world.folder / "key.pem"
    if kind == "folder":
        path.mkdir()
    elif kind == "wrong type":
        pem(path, generate_private_key(SECP256R1()))
    elif kind == "passphrase":
        pem(path, Ed25519PrivateKey.generate(), password=b"word")
    elif kind == "not pem":
        path.write_text(PLANTED)
    sentence = attempt(world.yaml(publish={"sign": "key.pem"}))
    assert "key.pem" in sentence
    wanted = {
        "missing": "There is no key",
        "folder": "Is a directory",
        "wrong type": "is not an Ed25519 key",
        "passphrase": "has a passphrase",
        "not pem": "is not a private key",
    }
    assert wanted[kind] in sentence


def test_a_table_that_is_not_there(world, attempt):
    options = ("--target-error", "5", "--table", "by_age")
    assert (
        attempt(world.yaml(), *options, verb="plan") == "The specification has no table `by_age`."
    )


# ------------------------------------------------------------------------------------ the target


@pytest.mark.parametrize("kind", ["folder", "file", "link", "broken link"])
def test_a_target_that_exists_is_refused_before_the_data_are_read(world, attempt, kind):
    target = world.folder / "release"
    {
        "folder": target.mkdir,
        "file": target.touch,
        "link": lambda: target.symlink_to(world.folder),
        "broken link": lambda: target.symlink_to(world.folder / "nowhere"),
    }[kind]()
    (world.folder / "persons.csv").unlink()
    assert "exists already" in attempt(world.yaml())


def test_an_existing_comparison_is_refused_before_the_data_are_read(world, attempt):
    (world.folder / "private").mkdir()
    (world.folder / "persons.csv").unlink()
    sentence = attempt(world.yaml(), "--compare", world.folder / "private")
    assert "exists already" in sentence


@pytest.mark.parametrize("which", ["--out", "--compare"])
def test_a_target_that_cannot_be_written_is_refused_before_noise(world, attempt, which):
    sentence = attempt(world.yaml(), which, world.folder / "persons.csv" / "release")
    assert "Cannot write" in sentence


@pytest.mark.parametrize("which", ["--out", "--compare"])
@pytest.mark.parametrize("path", ["r/..", "r/../s", "nowhere/r", "nowhere/deep/r"])
def test_a_target_that_leads_nowhere_is_refused_before_noise(world, attempt, which, path):
    (world.folder / "nowhere").symlink_to(world.folder / "gone")
    sentence = attempt(world.yaml(), which, world.folder / path)
    assert sentence.startswith("Cannot write to ")


@pytest.mark.parametrize("which", ["--out", "--compare"])
def test_a_file_system_that_forbids_writing_is_noticed_before_noise(
    world, attempt, monkeypatch, which
):
    def read_only(*_arguments, **_options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", read_only)
    assert "Read-only file system" in attempt(world.yaml(), which, world.folder / "deep" / "r")


def test_what_takes_the_place_while_data_are_read_is_noticed_before_noise(world, silent):
    target = world.folder / "release"

    def meanwhile(_sentence):
        target.mkdir(exist_ok=True)

    with pytest.raises(ReleaseError, match="exists already"):
        run(world.spec(), progress=meanwhile)


def test_too_little_room_is_noticed_before_noise(world, attempt, monkeypatch):
    usage = shutil.disk_usage(world.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1_000_000))
    sentence = attempt(world.yaml())
    assert "1.0 MB of room" in sentence


def test_room_is_estimated_for_all_files(world):
    """The estimate is above what is written, and not absurdly so."""
    data = {"source": str(world.folder / "persons.csv"), "unit": "person", "records": 2}
    axes = {
        "county": {"labels": ["c1", "c2", "c3", "c4", "c5", *(f"name {i}" for i in range(6000))]},
        "sex": {"labels": ["F", "M"]},
    }
    publish = {"decimals": 0, "margins": [["county"], ["sex"]], "to": str(world.folder / "r")}
    spec = read_specification(world.spec(data=data, axes=axes, hold=[["sex"]], publish=publish))
    wanted = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("subspacedp.publication.resources.check_room", wanted.append)
        made = run(spec, compare=world.folder / "private")
    for folder, needed in wanted[0].items():
        written = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        assert written < needed < 5 * written + 5_000_000
    assert set(wanted[0]) == {made.folder, world.folder / "private"}


# ------------------------------------------------------------------------------ names and files


def with_axis(world, name, margins, **changes):
    """County under another name, and margins to publish."""
    axes = {name: {"column": "county", "labels": COUNTIES}, "sex": {"labels": ["F", "M"]}}
    return world.yaml(axes=axes, hold=[], publish={"margins": margins}, **changes)


@pytest.mark.parametrize(
    "name", ["../../persons", "/x", "a/b", "a\\b", ".hidden", "..", "a\nb", "a\x7fb", "a\x85"]
)
def test_a_margin_that_would_be_written_elsewhere_is_refused(world, attempt, name):
    assert "cannot name a file" in attempt(with_axis(world, name, [[name]]))
    assert (world.folder / "persons.csv").read_text("utf-8").startswith("person,county")


@pytest.mark.parametrize("name", ["x" * 201, "ü" * 101])
def test_a_margin_whose_file_name_would_be_too_long_is_refused(world, attempt, name):
    assert "more than 200 bytes" in attempt(with_axis(world, name, [[name]]))


@pytest.mark.parametrize(
    ("name", "margins"),
    [
        ("SEX", [["sex"], ["SEX"]]),
        ("total", [[], ["total"]]),
        ("place", [["sex"], ["place"], ["sex"]]),
    ],
)
def test_two_margins_in_one_file_are_refused(world, attempt, name, margins):
    assert "would be written to the same file as margin 1" in attempt(
        with_axis(world, name, margins)
    )


@pytest.mark.parametrize("name", ["place of living", "größe", "a.b", "x" * 200])
def test_other_names_are_those_of_files(world, name):
    made = run(with_axis(world, name, [[name]]), out=world.folder / "r")
    assert (made.folder / "margins" / f"{name}.csv").is_file()
    assert verify_folder(made.folder).ok


def test_a_table_whose_folder_name_would_be_too_long_is_refused(world, attempt):
    tables = {"x" * 201: {"axes": ["sex"], "share": 1.0}}
    assert "more than 200 bytes" in attempt(world.yaml(hold=None, tables=tables))


COLUMNS = [
    "lower",
    "upper",
    "confidential",
    "all_records",
    "without_noise",
    "released",
    "error",
    "error_in_standard_errors",
    "non_negative_biased",
    "unbiased_value",
    "calibration_weight",
]


@pytest.mark.parametrize("name", COLUMNS)
def test_names_of_published_columns_are_refused(world, attempt, name):
    assert f"may not be named `{name}`" in attempt(with_axis(world, name, []))
    levels = {name: {"X": ["c1", "c2", "c3"], "Y": ["c4", "c5"]}}
    axes = {"county": {"labels": COUNTIES, "levels": levels}}
    assert f"may not have a level `{name}`" in attempt(world.yaml(axes=axes, hold=[]))


# ------------------------------------------------------------------------------- after the noise


def full_disk(*_arguments, **_options):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "place",
    [
        "pyarrow.parquet.ParquetWriter",
        "pyarrow.csv.CSVWriter",
        "subspacedp.publication.writing.write_margins",
        "subspacedp.publication.writing.write_report",
        "subspacedp.publication.writing.sign_folder",
    ],
)
def test_a_full_disk_leaves_nothing(world, keys, attempt_with_noise, monkeypatch, place):
    publish = {"margins": [["sex"]], "sign": str(keys[0]), "to": "release"}
    spec = world.yaml(publish=publish)
    monkeypatch.setattr(place, full_disk)
    sentence = attempt_with_noise(spec, "--compare", world.folder / "private")
    assert sentence.startswith(f"Cannot write `{world.folder}")
    assert sentence.endswith(": No space left on device.")


def test_an_interrupt_leaves_nothing(world, monkeypatch):
    def interrupt(*_arguments, **_options):
        raise KeyboardInterrupt

    before = world.listing()
    monkeypatch.setattr("subspacedp.publication.writing.write_report", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(world.spec())
    assert world.listing() == before


def test_folders_that_were_made_on_the_way_are_gone_too(world, attempt_with_noise, monkeypatch):
    monkeypatch.setattr("subspacedp.publication.writing.write_report", full_disk)
    attempt_with_noise(world.yaml(publish={"to": "deep/er/release"}))


def test_a_comparison_that_cannot_be_written_leaves_the_release_in_place(world, monkeypatch):
    private, spec = world.folder / "private", world.spec()
    with monkeypatch.context() as patch:
        patch.setattr("subspacedp.publication.writing._private", full_disk)
        with pytest.raises(ReleaseError, match=r"is published, but .* No space left"):
            run(spec, compare=private)
    released = (world.folder / "release" / "values.csv").read_bytes()
    assert not [name for name in world.listing() if name.startswith((".", "private"))]
    made = run(spec, compare=private)  # which writes the comparison alone
    assert (world.folder / "release" / "values.csv").read_bytes() == released
    compared = pyarrow.csv.read_csv(private / "table.csv")
    assert compared["released"].to_pylist() == made.release.values.ravel().tolist()
    assert compared["confidential"].to_pylist() == world.counts().ravel().tolist()
    with pytest.raises(ReleaseError, match="exists already"):
        run(spec)


def test_a_table_that_memory_cannot_hold_is_refused_in_a_sentence(world, attempt):
    axes = {name: {"labels": list(range(2000))} for name in "abcd"}  # 128 TB in float64
    assert "cells" in attempt(world.yaml(axes=axes, hold=[["a"]]))


def test_nothing_of_the_data_is_in_what_is_published(world):
    """Persons and values of columns that are not published: a secret in each."""
    world.write("persons.csv", [*with_row(world, person=PLANTED, income=PLANTED, age=PLANTED)])
    data = {"source": str(world.folder / "persons.csv"), "unit": "person"}
    said = []
    made = run(world.spec(data=data), progress=said.append, compare=world.folder / "private")
    assert PLANTED not in " ".join(said) + repr(made)
    for path in [*made.folder.rglob("*"), *(world.folder / "private").iterdir()]:
        if path.is_file():
            assert PLANTED.encode() not in Path(path).read_bytes(), path.name
