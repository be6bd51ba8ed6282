"""All checks of a folder: one release or several, of any size.

The certificate decides what is checked, never the names of the files beside it. Every file is one
of three kinds: it follows from a certificate and is derived again; or it is words that nothing
follows from, and only digests and a signature show that it is as it was published; or no release
has such a file, and it is named.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from subspacedp.arrow import arrow_array, label_array
from subspacedp.blocks.stores import STORES
from subspacedp.errors import AlteredError, ReleaseError
from subspacedp.mechanisms.estimates import INTERVAL_STEP
from subspacedp.release.certificate import ERROR_MODEL, error_model_text, same_model
from subspacedp.release.files import (
    BIASED,
    CERTIFICATE,
    CSV,
    LEVEL,
    MARGINS,
    PARQUET,
    SECOND,
    read_certificate,
    read_parquet,
    read_release,
    same_column,
)
from subspacedp.release.release import Release
from subspacedp.release.signature import (
    DIGESTS,
    SIGNATURE,
    SUCCESSOR,
    check_digests,
    check_signature,
)
from subspacedp.release.successor import check_successor, successor_words
from subspacedp.release.verify import VALUES, Check, Verification, verify_release
from subspacedp.stated import read_json

ROWS = (PARQUET, CSV)  # of values that are in no store
FOLLOWING = (CERTIFICATE, ERROR_MODEL, MARGINS, *SECOND)
DATASET = "dataset.jsonld"
WORDS = ("README.txt", "dictionary.csv", DATASET, "report.html", f"{BIASED}.txt")
# The tables once more, in formats that no check reads.
COPIES = ("tables.xlsx", "sdmx-data.csv", "sdmx-structure.xml")
# What a file or folder of a release may be called, whatever kind of release it is.
NAMES = (*FOLLOWING, *ROWS, *STORES.values(), *WORDS, *COPIES, DIGESTS, SIGNATURE, SUCCESSOR)
CERTIFIED = {*FOLLOWING, *ROWS, *STORES.values()}  # no such file without a certificate that has it
BELONG = "files belong together"
MOST_NAMED = 20  # files in one note
CheckSecond = Callable[[Release, Path], list[Check]]


def verify_folder(
    folder: str | PathLike[str],
    *,
    public_key: str | PathLike[str] | None = None,
    second_table: CheckSecond | None = None,
) -> Verification:
    """All checks of a release on disk: its files, its certificate, and the release itself.

    Parameters
    ----------
    folder
        Of one release; or of several, each in a folder below.
    public_key
        A PEM file: there must be a signature by that key. Without, a signature is checked where
        there is one.
    second_table
        What derives the second table of a release again, which is made above this layer;
        `subspacedp.microdata.verify_folder` passes it. Without, a folder with such files fails.

    Guarantees
    ----------
    1. Every folder with a certificate is checked by what its certificate says.
    2. Every file is listed, as it is, in a `digests.json` or `signature.json` of its release or of
       the whole folder, and these list no other; a folder without them fails.
    3. What passes although nothing follows from it is named in the notes, and so is the absence of
       a signature.
    """
    source = Path(folder)
    homes = sorted(
        path.parent for path in source.rglob(CERTIFICATE) if path.is_file() or path.is_symlink()
    )
    if not homes:
        read_certificate(source)  # says what is wrong with it
    alone = homes == [source]
    parts = [(home, _verify_release_folder(home, second_table, alone=alone)) for home in homes]
    kinds = _Kinds(source, {home: one.names for home, one in parts})
    digests = {home / name: d for home, one in parts for name, d in one.digests.items()}
    lists, signed = _check_lists(source, homes, public_key, digests)
    checks = [*lists, *check_successor(source), *kinds.checks()]
    for home, one in parts:
        name = "" if home == source else f"{home.relative_to(source).as_posix()}: "
        checks += [Check(f"{name}{c.name}", c.ok, c.detail) for c in one.result.checks]
    unsigned = f"There is no {SIGNATURE}: whoever can alter a file can alter {DIGESTS} too."
    return Verification(
        tuple(checks),
        next((one.result.stamp for _, one in parts if one.result.stamp), ""),
        tuple(filter(None, (successor_words(source), *kinds.notes(), "" if signed else unsigned))),
    )


# ------------------------------------------------------------------------------------------ files


def _check_lists(
    source: Path,
    homes: Sequence[Path],
    public_key: str | PathLike[str] | None,
    digests: Mapping[Path, str],
) -> tuple[list[Check], bool]:
    """Every list of digests, and whether a signature covers the whole folder."""
    checks: list[Check] = []
    listed: list[Path] = []
    for home in dict.fromkeys((source, *homes)):
        name = "" if home == source else f"{home.relative_to(source).as_posix()}: "
        whole_folder = []
        known = {
            path.relative_to(home).as_posix(): digest
            for path, digest in digests.items()
            if home in path.parents
        }
        if os.path.lexists(home / SIGNATURE) or (home == source and public_key is not None):
            key = public_key if home == source else None
            whole_folder.append(check_signature(home, key, known))
        if os.path.lexists(home / DIGESTS):
            whole_folder.append(check_digests(home, known))
        if whole_folder:
            listed.append(home)
        checks += [Check(f"{name}{c.name}", c.ok, c.detail) for c in whole_folder]
    bare = [
        path.relative_to(source).as_posix()
        for path in _entries(source)
        if not any(home in path.parents for home in listed)
    ]
    if bare:
        checks.append(
            Check(
                "digests",
                False,
                f"{_named(bare)} listed in no {DIGESTS} and no {SIGNATURE}: nothing shows that "
                f"{'it is' if len(bare) == 1 else 'they are'} as published",
            )
        )
    return checks, os.path.lexists(source / SIGNATURE)


def _entries(source: Path) -> list[Path]:
    """Everything below that is no folder with something in it."""
    return sorted(
        path
        for path in source.rglob("*")
        if path.is_symlink() or not path.is_dir() or not any(path.iterdir())
    )


class _Kinds:
    """The files below a folder, by what a check can say of them."""

    def __init__(self, source: Path, known: Mapping[Path, Sequence[str]]) -> None:
        self.stray: list[str] = []  # named like a part of a release, and of none
        self.words: list[str] = []
        self.copies: list[str] = []
        self.unknown: list[str] = []
        for path in _entries(source):
            home = next((p for p in path.parents if p == source or p in known), source)
            first = path.relative_to(home).parts[0]
            name = path.relative_to(source).as_posix()
            alone = path.parent == home
            if first in known.get(home, ()) or (alone and first in (DIGESTS, SIGNATURE)):
                continue
            if path == source / SUCCESSOR:
                continue
            if alone and first in WORDS:
                self.words.append(name)
            elif alone and first in COPIES and home in known:
                self.copies.append(name)
            elif not CERTIFIED.isdisjoint(path.relative_to(home).parts):
                self.stray.append(name)
            else:
                self.unknown.append(name)

    def checks(self) -> Iterator[Check]:
        """Fails for what programs would take for a part of the release."""
        if self.stray:
            parts = "part" if len(self.stray) == 1 else "parts"
            yield Check(
                "files", False, f"{_named(self.stray)} no {parts} of a release by its certificate"
            )

    def notes(self) -> Iterator[str]:
        """What is as published if digests and signature hold, and not derived by any check."""
        if self.words:
            yield f"{_named(self.words)} words, which do not follow from a certificate."
        if self.copies:
            yield (
                f"{_named(self.copies)} made of the same figures for other programs, and not read "
                "back by any check."
            )
        if self.unknown:
            yield f"{_named(self.unknown)} no part of a release; nothing is known of the content."


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"


# ---------------------------------------------------------------------------------------- release


class _Checked(NamedTuple):
    """What was found of one release."""

    result: Verification
    names: Sequence[str]  # of the files that are derived
    digests: Mapping[str, str]  # of files whose values were read, and are the certificate's


def _verify_release_folder(
    home: Path, second_table: CheckSecond | None, *, alone: bool
) -> _Checked:
    """The checks of one release."""
    try:
        release, _ = read_release(home)
        stored = release.stored
        values = ROWS if stored is None else (STORES[stored.kind],)
        result = _verify_one(home, release, second_table)
        read = all(check.ok for check in result.checks if check.name == VALUES)
        return _Checked(result, (*FOLLOWING, *values), release.file_digests if read else {})
    except AlteredError as error:
        return _Checked(Verification((Check(BELONG, False, str(error)),)), NAMES, {})
    except ReleaseError as error:
        if alone:
            raise
        return _Checked(Verification((Check(CERTIFICATE, False, str(error)),)), NAMES, {})


def _verify_one(home: Path, release: Release, second_table: CheckSecond | None) -> Verification:
    # Rows were compared with their digest when they were read.
    numbers = verify_release(release, sha256=None if release.stored is None else release.sha256)
    same = all(check.ok for check in numbers.checks if check.name == VALUES)
    together = f"by {_fingerprint(home)}" if same else "the values are not the certificate's"
    checks = [Check(BELONG, same, together)]
    if release.stored is None:
        checks += _check_tables(release, home)
    if same:  # else nothing follows from them
        checks += [*_check_margins(release, home), *_check_second(release, home, second_table)]
    checks.append(_check_restated(release, read_certificate(home)))
    checks += _check_error_model(release, home)
    return Verification((*checks, *numbers.checks), numbers.stamp)


def _fingerprint(home: Path) -> str:
    """SHA-256 of the certificate: what to compare with what its publisher says."""
    return f"{CERTIFICATE} {hashlib.sha256((home / CERTIFICATE).read_bytes()).hexdigest()[:16]}…"


def _check_restated(release: Release, data: dict[str, Any]) -> Check:
    """Everything the certificate says follows from its design: derive it again and compare.

    Compared as text, for which `1`, `1.0` and `true` are three things.
    """
    name = "the certificate follows from its design"
    fresh = json.loads(json.dumps(release.certificate()))
    for key in [*fresh, *data]:
        if key not in fresh or key not in data or _text(fresh[key]) != _text(data[key]):
            return Check(name, False, f"`{key}` is not what the design implies")
    if not re.fullmatch("[0-9a-f]{32}", release.release_id):
        return Check(name, False, "`release_id` is not one")
    return Check(name, True, "guarantee, noise law and stated error derived again, all equal")


def _check_error_model(release: Release, home: Path) -> list[Check]:
    """The error model follows from the design; releases of earlier versions have none."""
    if not os.path.lexists(home / ERROR_MODEL):
        return []
    try:
        present = read_json(home / ERROR_MODEL)
    except (OSError, ReleaseError):
        return [Check(ERROR_MODEL, False, "cannot be read")]
    wanted = json.loads(error_model_text(release.mechanism))
    same = same_model(wanted, present)
    detail = "derived again, all equal" if same else "is not what the design implies"
    return [Check(ERROR_MODEL, same, detail)]


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True)


# ----------------------------------------------------------------------------------------- tables


def _check_tables(release: Release, home: Path) -> list[Check]:
    """Both files say the same as the release: labels, levels, values, standard errors."""
    wanted = {name: np.asarray(column) for name, column in release.columns().items()}
    return [check_table(home, name, wanted) for name in (PARQUET, CSV)]


def _check_margins(release: Release, home: Path) -> list[Check]:
    """Margins beside the values must follow from them; both files of each must be there."""
    import pyarrow as pa
    import pyarrow.parquet

    checks = []
    folder = home / MARGINS
    entries = _entries(folder) or ([folder] if os.path.lexists(folder) else [])
    present = {path.relative_to(home).as_posix() for path in entries}
    stems = {name.rpartition(".")[0] for name in present if "." in name}
    tables = {f"{stem}{suffix}" for stem in stems for suffix in (".csv", ".parquet")}
    for name in sorted(tables | present):
        try:
            if name not in tables:
                raise ReleaseError("of another kind")
            levels = _levels(
                pyarrow.parquet.read_schema(home / f"{name.rpartition('.')[0]}.parquet")
            )
            wanted = {c: np.asarray(v) for c, v in release.margin(*levels).columns(LEVEL).items()}
        except (OSError, ValueError, pa.ArrowException):
            checks.append(Check(name, False, "is not a margin of this release"))
            continue
        checks.append(check_table(home, name, wanted))
    return checks


def _levels(schema: Any) -> list[str]:
    return [c for c in schema.names if c not in ("value", "stderr", "lower", "upper")]


def _check_second(release: Release, home: Path, second_table: CheckSecond | None) -> list[Check]:
    """What is made of a release beside it must follow from it, or is not known to."""
    present = [name for name in SECOND if os.path.lexists(home / name)]
    if present and second_table is not None:
        return second_table(release, home)
    how = "derived again by `subspacedp verify` and subspacedp.microdata.verify_folder alone"
    return [Check(name, False, how) for name in present]


def check_table(home: Path, name: str, wanted: Mapping[str, Any]) -> Check:
    """A file has these columns and no other."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if name == PARQUET:
            table = read_parquet(home)
        elif name.endswith(".parquet"):
            with pyarrow.parquet.ParquetFile(home / name) as file:
                table = file.read()
        else:
            types = {column: arrow_array(values[:1]).type for column, values in wanted.items()}
            options = pyarrow.csv.ConvertOptions(column_types=types)
            table = pyarrow.csv.read_csv(home / name, convert_options=options)
        present = {column: label_array(table[column]) for column in table.column_names}
        different = [c for c in wanted if not _agrees(c, wanted, present[c])]
        different += [c for c in present if c not in wanted]
        if len(table.column_names) != len(present):
            different.append("a second time")
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException):
        return Check(name, False, "cannot be read as a table of this release")
    detail = f"column `{different[0]}` differs" if different else f"{table.num_rows:,} rows"
    return Check(name, not different, detail)


def _agrees(column: str, wanted: Mapping[str, Any], present: Any) -> bool:
    """Whole numbers and labels exactly; what is computed again as real numbers to its last digits.

    Values may differ between machines by the rounding of sums as large as the largest of them, and
    by a billionth of the standard error; never by a share of a large total. Limits of intervals are
    written rounded outward, so that they may also differ by a step of that.
    """
    expected = wanted[column]
    if "lower" not in wanted or expected.dtype.kind != "f":
        return same_column(column, expected, present)
    if expected.shape != present.shape or present.dtype.kind != "f":
        return False
    rounding = 2.0**-46 * float(np.abs(wanted["value"]).max(initial=0.0))
    slack = 1e-9 * np.asarray(wanted["stderr"], np.float64)
    if column != "stderr":
        slack = slack + rounding
    if column in ("lower", "upper"):
        slack = slack + INTERVAL_STEP * np.asarray(wanted["stderr"], np.float64)
    same = (expected == present) | (np.isnan(expected) & np.isnan(present))
    return bool(np.all(same | (np.abs(expected - present) <= slack)))
