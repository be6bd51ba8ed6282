"""Folders of every kind, altered in every way: no alteration passes unless it is named."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import subspacedp as sdp
from subspacedp.blocks.stores import STORES
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.microdata import check_second_table, verify_folder
from subspacedp.release import (
    Verification,
    folder_checks,
    sign_folder,
    write_digests,
)
from subspacedp.release import files as release_files
from subspacedp.release.files import read_certificate
from subspacedp.release.folder_checks import NAMES
from subspacedp.release.verify import verify_release

DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", list("abcde"), levels={"state": list("XXXYY")}),
        sdp.Axis("sex", ["F", "M"]),
    ]
)
COUNTS = np.arange(10).reshape(5, 2) * 3 + 4
TABLE = sdp.Table(COUNTS, DOMAIN)
HELD = sdp.hold("state") & sdp.hold("sex")
KEY = Ed25519PrivateKey.generate()
# Parts of a certificate that nothing else in the folder follows from: only digests and a signature
# hold them. Shares of levels and margins are what is measured, importance and weights are why; one
# record a person is the same bound exactly and at most, where no total is kept anyway (capped).
FREE = (
    ("release_id",),
    ("software", "version"),
    ("design", "levels", "importance"),
    ("design", "query", "weights"),
    ("design", "neighbours", "exactly"),
)
LABELS = ("design", "query", "domain")  # of a release in a store: in its certificate alone


# ---------------------------------------------------------------------------------------- folders


def saved(mechanism, **data):
    def write(folder):
        mechanism.release(TABLE, **data).save(folder)

    return write


def stored(store, *, signed=False):
    def write(folder):
        mechanism = sdp.design(DOMAIN, HELD, sdp.PureDP(0.5), mechanism="projected", decimals=0)
        mechanism.release_to(folder, COUNTS, store=store)
        if signed:
            sign_folder(folder, KEY)

    return write


def published(*, signed=False, **changes):
    def write(folder):
        pytest.importorskip("ibis", reason="the extra `publish` is not installed")
        from cryptography.hazmat.primitives import serialization as s

        from subspacedp.publication.running import run

        home = folder.parent / f"{folder.name}-data"
        home.mkdir()
        with (home / "persons.csv").open("w", newline="") as file:
            rows = [[c, x] for i, c in enumerate("abcde") for j, x in enumerate("FM")
                    for _ in range(int(COUNTS[i, j]))]  # fmt: skip
            csv.writer(file).writerows([["county", "sex"], *rows])
        publish = {"decimals": 0, "to": str(folder), **changes.get("publish", {})}
        if signed:
            pem = KEY.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
            (home / "key.pem").write_bytes(pem)
            publish["sign"] = str(home / "key.pem")
        spec = {
            "data": {"source": str(home / "persons.csv"), "unit": "row"},
            "axes": {
                "county": {
                    "labels": list("abcde"),
                    "levels": {"state": {"X": list("abc"), "Y": list("de")}},
                },
                "sex": {"labels": ["F", "M"]},
            },
            "privacy": {"epsilon": 0.8},
            "hold": [["state"]],
            **changes,
            "publish": publish,
        }
        run({key: value for key, value in spec.items() if value is not None})

    return write


def geometric(counts):
    rng, p = np.random.default_rng(), 1 - np.exp(-0.5)
    return counts + rng.geometric(p, counts.shape) - rng.geometric(p, counts.shape)


BY = {"publish": {"margins": [["state", "sex"]], "records": True}}
SEVERAL = {
    "hold": None,
    "tables": {
        "one": {"axes": ["county", "sex"], "hold": [["state"]], "share": 0.5},
        "two": {"axes": ["county"], "share": 0.5},
    },
}
KINDS = {
    "saved": saved(sdp.design(DOMAIN, HELD, sdp.PureDP(0.5), decimals=0)),
    "real": saved(sdp.design(DOMAIN, HELD, sdp.PureDP(0.5), mechanism="projected")),
    "levels": saved(
        sdp.design(DOMAIN, sdp.hold(), sdp.PureDP(0.5), mechanism="marginals", decimals=0)
    ),
    "imposed": saved(
        sdp.impose_on(DOMAIN, sdp.hold("state"), geometric, budget=sdp.PureDP(1.0), variance=8.0)
    ),
    "capped": saved(
        sdp.design(DOMAIN, HELD, sdp.PureDP(0.5), capped=True, decimals=0), everything=TABLE
    ),
    "margins": saved(
        sdp.design(
            sdp.Margins(DOMAIN, [["county"], ["state", "sex"]]),
            sdp.hold("state"),
            sdp.ZCDP(0.5),
            decimals=0,
        )
    ),
    "publication": published(**BY),
    "signed publication": published(signed=True, **BY),
    "several tables": published(**SEVERAL),
    "several tables, signed": published(signed=True, **SEVERAL),
    "publication of margins": published(
        publish={"cells": False, "margins": [["county"], ["state", "sex"]]}
    ),
    "npy": stored("npy"),
    "parquet": stored("parquet"),
    "zarr": stored("zarr"),
    "npy, signed": stored("npy", signed=True),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two releases of every kind, made when they are asked for."""
    home = tmp_path_factory.mktemp("kinds")

    def of(kind, number=0):
        folder = home / f"{list(KINDS).index(kind)}-{number}"
        if not folder.exists():
            KINDS[kind](folder)
        return folder

    return of


@pytest.mark.parametrize("kind", KINDS)
def test_every_folder_verifies_as_it_is_and_says_what_no_check_shows(world, kind):
    result = verify_folder(world(kind))
    assert result.ok, str(result)
    assert any("no signature.json" in note for note in result.notes) != ("signed" in kind)
    words = {p.name for p in world(kind).rglob("*")} & set(folder_checks.WORDS)
    assert all(any(f"`{name}`" in note for note in result.notes) for name in words)


# ------------------------------------------------------------------------------------ alterations


def files(folder, *endings):
    return [
        p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix in (endings or {p.suffix})
    ]


def pick(rng, items):
    return items[int(rng.integers(len(items)))] if items else None


def one_byte(rng, folder, _):
    path = pick(rng, files(folder))
    data = bytearray(path.read_bytes())
    data[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
    path.write_bytes(data)
    return path


def cut_short(rng, folder, _):
    path = pick(rng, files(folder))
    path.write_bytes(path.read_bytes()[: -int(rng.integers(1, 9))])
    return path


def one_digit(rng, folder, _):
    path = pick(rng, files(folder, ".csv", ".json", ".html", ".txt"))
    text = path.read_text("utf-8")
    at = pick(rng, [i for i, sign in enumerate(text) if sign in "0123456789"])
    if at is None:
        return None
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :], "utf-8")
    return path


def leaves(data, place=()):
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        if isinstance(value, dict | list) and value:
            yield from leaves(value, (*place, key))
        else:
            yield (*place, key)


def other_value(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}x" if isinstance(value, str) else 0


def one_field(rng, folder, _, places=lambda place: True, name=None):
    path = pick(rng, [p for p in files(folder, ".json") if name in (None, p.name)])
    data = json.loads(path.read_text("utf-8"))
    place = pick(rng, [place for place in leaves(data) if places(place)])
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = other_value(inner[place[-1]])
    path.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    return path


def one_type(rng, folder, _):
    """1 becomes true or 1.0: equal for Python, and not the same certificate."""
    path = pick(rng, files(folder, ".json"))
    data = json.loads(path.read_text("utf-8"))
    place = pick(rng, [p for p in leaves(data) if _at(data, p) in (0, 1)])
    if place is None:
        return None
    value = _at(data, place)
    _at(data, place[:-1])[place[-1]] = int(value) if isinstance(value, bool) else bool(value)
    path.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    return path


def _at(data, place):
    for key in place:
        data = data[key]
    return data


def key_twice(rng, folder, _):
    """Every reader that takes the last one finds what was there before."""
    path = pick(rng, files(folder, ".json"))
    text = path.read_text("utf-8")
    key = pick(rng, list(json.loads(text)))
    path.write_text(text.replace("{", "{" + f'"{key}": "other",', 1), "utf-8")
    return path


def removed(rng, folder, _):
    path = pick(rng, files(folder))
    path.unlink()
    return path


def added(rng, folder, other):
    homes = [folder, *(p.parent for p in folder.rglob("certificate.json"))]
    names = [*NAMES, "margins/sex.csv", "margins/note", "values/part-00000001.parquet", "note.txt",
             "values.csv.gz", "child/certificate.json", "values.zarr/zarr.json"]  # fmt: skip
    path = pick(rng, homes) / pick(rng, names)
    if path.exists() or any(p.is_file() for p in path.parents):
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pick(rng, files(other)).read_bytes())
    return path


def empty_folder(rng, folder, _):
    path = folder / pick(rng, ["values", "values.zarr", "margins", "new"])
    if path.exists():
        return None
    path.mkdir()
    return path


def swapped(rng, folder, other):
    names = [p.relative_to(other) for p in files(other)]
    path = folder / pick(rng, names)
    new = (other / path.relative_to(folder)).read_bytes()
    if not path.exists() or path.read_bytes() == new:
        return None
    path.write_bytes(new)
    return path


def parquet_value(rng, folder, _):
    path = pick(rng, files(folder, ".parquet"))
    if path is None:
        return None
    table = pq.read_table(path)
    number = int(rng.integers(table.num_columns))
    values = table.column(number).to_pylist()
    at = int(rng.integers(len(values)))
    values[at] = other_value(values[at])
    name = table.column_names[number]
    pq.write_table(table.set_column(number, name, pa.array(values)), path)
    return path


def csv_value(rng, folder, _):
    path = pick(rng, [p for p in files(folder, ".csv") if p.name != "dictionary.csv"])
    if path is None:
        return None
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    row, column = pick(rng, rows[1:]), pick(rng, range(len(rows[0])))
    try:
        number = float(row[column])
        row[column] = str(int(number) + 1 if number.is_integer() else number + 1)
    except ValueError:
        row[column] += "x"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return path


def npy_value(rng, folder, _):
    path = pick(rng, files(folder, ".npy"))
    if path is None:
        return None
    values = np.load(path)
    values.ravel()[int(rng.integers(values.size))] += 1
    np.save(path, values)
    return path


def certified_field(rng, folder, other):
    """A field of a certificate that something else follows from."""
    store = any((folder / name).exists() for name in STORES.values())

    def places(place):
        free = (*FREE, LABELS) if store else FREE
        return not any(place[: len(part)] == part for part in free)

    return one_field(rng, folder, other, places, "certificate.json")


def stated_field(rng, folder, other):
    """A field of what a second table says of itself."""
    name = "non-negative-biased.json"
    return one_field(rng, folder, other, name=name) if (folder / name).is_file() else None


def derived_removed(rng, folder, _):
    path = pick(
        rng,
        [p for p in files(folder) if p.name.startswith(("values", "part", "cert", "non", "syn"))],
    )
    path.unlink()
    return path


ANY = (one_byte, cut_short, one_digit, one_field, one_type, key_twice, removed, added, empty_folder,
       swapped, parquet_value, csv_value, npy_value)  # fmt: skip
# With digests made again, as anybody can: what checks must find without them.
RELISTED = (certified_field, stated_field, derived_removed, added, parquet_value, csv_value,
            npy_value, swapped)  # fmt: skip


def relist(folder):
    for path in sorted(folder.rglob("digests.json"), key=lambda p: -len(p.parts)):
        if path.is_file():
            write_digests(path.parent)


def content(folder):
    return {
        p.relative_to(folder): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")
    }


def verdict(verify, folder):
    """What a verifier says; None where it refuses in one sentence. No other error may escape."""
    try:
        return verify(folder)
    except SubspaceDPError as error:
        sentence = str(error)
    assert "\n" not in sentence
    return None


def unnoticed(verify, world, scratch, rng, number):
    """Of so many alterations, those that a verifier takes for good without naming the file."""
    done = 0
    while done < number:
        kind = pick(rng, list(KINDS))
        again = bool(rng.integers(3) == 0)
        alter = pick(rng, RELISTED if again else ANY)
        folder = scratch / "altered"
        shutil.copytree(world(kind), folder)
        path = alter(rng, folder, world(kind, 1))
        if again:
            relist(folder)
        if path is not None and content(folder) != content(world(kind)):
            done += 1
            result = verdict(verify, folder)
            if result is not None and result.ok:
                name = path.relative_to(folder).as_posix()
                named = again and any(f"`{name}`" in note for note in result.notes)
                # A signature that is gone leaves an unsigned folder with digests, which is said.
                told = any(note.startswith(f"There is no {name}:") for note in result.notes)
                if not (named or told):
                    yield f"{kind}: {alter.__name__} of {name}{', relisted' * again}"
        shutil.rmtree(folder)


def test_no_alteration_passes(world, tmp_path):
    missed = list(unnoticed(verify_folder, world, tmp_path, np.random.default_rng(1), 60))
    assert not missed, "\n".join(missed)


@pytest.mark.soak
def test_no_alteration_of_two_thousand_passes(world, tmp_path):
    seed = int(np.random.SeedSequence().entropy) % 2**32
    missed = list(unnoticed(verify_folder, world, tmp_path, np.random.default_rng(seed), 2_000))
    assert not missed, "\n".join([f"seed {seed}", *missed])


@pytest.mark.parametrize(
    ("kind", "name"), [("signed publication", "signature.json"), ("publication", "digests.json")]
)
def test_other_ends_of_lines_do_not_pass(world, tmp_path, kind, name):
    folder = tmp_path / "r"
    shutil.copytree(world(kind), folder)
    original = (folder / name).read_bytes()
    for altered in (original.replace(b"\n", b"\r", 1), original.replace(b"\n", b"\r\n")):
        (folder / name).write_bytes(altered)
        assert not verify_folder(folder).ok


# ------------------------------------------------------------------------------------------ twins


def by_file_names(folder):
    """The twin: a folder that has a store is checked as one, and no more."""
    kind = next((k for k, name in STORES.items() if (folder / name).exists()), None)
    if kind is None or not (folder / "certificate.json").is_file():
        return verify_folder(folder)
    data = read_certificate(folder)
    data["values"]["store"] = kind
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release_files, "read_certificate", lambda _: data)
        release, _ = release_files.read_release(folder)
    return verify_release(release, sha256=release.sha256)


def blind_to_lists(folder):
    """The twin: every release by itself, and nobody looks at digests."""
    homes = [path.parent for path in folder.rglob("certificate.json")]
    results = [
        folder_checks._verify_release_folder(home, check_second_table, alone=True)[0]
        for home in homes
    ]
    return Verification(tuple(check for result in results for check in result.checks))


def test_values_in_another_format_hide_nothing(world, tmp_path):
    """A copy of the values as `values.npy` turned every other check off."""
    folder = tmp_path / "r"
    shutil.copytree(world("publication"), folder)
    values = pq.read_table(folder / "values.parquet")["value"].to_numpy().reshape(5, 2)
    np.save(folder / "values.npy", values)
    for name in ("values.csv", "report.html", "digests.json", "margins/state-by-sex.csv"):
        path = folder / name
        path.write_text(path.read_text("utf-8").replace("1", "2"), "utf-8")
    assert by_file_names(folder).ok
    result = verify_folder(folder)
    failed = {check.name for check in result.checks if not check.ok}
    assert {"digests", "files", "values.csv", "margins/state-by-sex.csv"} <= failed
    assert any("`values.npy`" in check.detail for check in result.checks)


@pytest.mark.parametrize("twin", [by_file_names, blind_to_lists])
def test_twins_miss_what_the_verifier_finds(world, tmp_path, twin):
    assert any(unnoticed(twin, world, tmp_path, np.random.default_rng(2), 60))


def test_a_budget_altered_in_the_report_of_a_table_is_found(world, tmp_path):
    """Releases put together by hand: the lists of each are checked, and a file of none fails."""
    parent = tmp_path / "parent"
    for number, name in enumerate(("a", "b")):
        shutil.copytree(world("publication", number), parent / name)
    assert verify_folder(parent).ok
    report = parent / "b" / "report.html"
    text = report.read_text("utf-8")
    assert "0.8" in text
    report.write_text(text.replace("0.8", "0.1"), "utf-8")
    assert blind_to_lists(parent).ok
    (failed,) = [check for check in verify_folder(parent).checks if not check.ok]
    assert (failed.name, failed.detail) == ("b: digests", "`report.html` was altered")
    report.write_text(text, "utf-8")
    (parent / "report.html").write_text(text, "utf-8")
    (failed,) = [check for check in verify_folder(parent).checks if not check.ok]
    assert failed.detail.startswith("`report.html` is listed in no digests.json")
    write_digests(parent)
    assert verify_folder(parent).ok


@pytest.mark.parametrize("kind", ["saved", "npy", "parquet", "zarr"])
def test_one_answer_on_certificates_whatever_the_store(world, tmp_path, kind):
    for number, (old, new, sentence) in enumerate(
        [
            ('"guarantee"', '"guarantee": {"kind": "plain"},\n "guarantee"', "distinct keys"),
            ('"release_id": "', '"release_id": "z', "`release_id` is not one"),
        ]
    ):
        folder = tmp_path / str(number)
        shutil.copytree(world(kind), folder)
        path = folder / "certificate.json"
        text = path.read_text("utf-8")
        assert text.count(old) == 1
        path.write_text(text.replace(old, new), "utf-8")
        write_digests(folder)
        if number == 0:
            with pytest.raises(ReleaseError, match=sentence):
                verify_folder(folder)
        else:
            assert sentence in str(verify_folder(folder))


def test_whole_numbers_are_compared_exactly(tmp_path):
    """5 of 5,000,000,074 is less than a billionth of it."""
    table = sdp.Table(COUNTS + 5_000_000_000, DOMAIN)
    release = sdp.design(DOMAIN, sdp.hold("state"), sdp.PureDP(1.0), decimals=0).release(table)
    release.save(tmp_path / "r")
    sdp.release.write_margins(release, [["sex"], ["state"]], tmp_path / "r")
    write_digests(tmp_path / "r")
    assert verify_folder(tmp_path / "r").ok
    for name in ("sex", "state"):
        for column in ("value", "lower", "upper"):
            path = tmp_path / "r" / "margins" / f"{name}.parquet"
            before, kept = path.read_bytes(), pq.read_table(path)
            values = kept[column].to_pylist()
            assert np.isclose(values[0], values[0] + 5, rtol=1e-9)
            values[0] += 5
            number = kept.column_names.index(column)
            pq.write_table(kept.set_column(number, column, pa.array(values)), path)
            write_digests(tmp_path / "r")
            (failed,) = [c for c in verify_folder(tmp_path / "r").checks if not c.ok]
            assert failed.name == f"margins/{name}.parquet"
            path.write_bytes(before)


def test_names_that_are_no_text_are_one_sentence(world, tmp_path):
    """Bytes of a Parquet file's own schema, as one flipped byte can make them."""
    folder = tmp_path / "r"
    shutil.copytree(world("publication"), folder)
    for name in ("margins/state-by-sex.parquet", "values.parquet"):
        path = folder / name
        path.write_bytes(path.read_bytes().replace(b"stderr", b"std\xa2rr"))
        assert verdict(verify_folder, folder) is None or not verify_folder(folder).ok


def test_stores_that_do_not_exist_are_one_sentence(world, tmp_path):
    folder = tmp_path / "r"
    shutil.copytree(world("npy"), folder)
    path = Path(folder / "certificate.json")
    data = json.loads(path.read_text("utf-8"))
    del data["values"]["store"]
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(ReleaseError, match=r"has no values\.parquet"):
        verify_folder(folder)
    data["values"]["store"] = "elsewhere"
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(ReleaseError, match=r"`values\.store` must be one of"):
        verify_folder(folder)
    assert sdp.Release.load(world("npy")).stored.kind == "npy"
