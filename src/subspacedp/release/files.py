"""A release on disk: `values.parquet`, `values.csv` and `certificate.json`, all or nothing."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.errors import AlteredError, ReleaseError, SubspaceDPError
from subspacedp.release.certificate import FORMAT, certificate_text, values_digest
from subspacedp.release.design import Design
from subspacedp.release.folders import new_folder
from subspacedp.release.label_columns import LabelColumns, write_rows
from subspacedp.release.provenance import Distributed
from subspacedp.release.rebuild import held_values, rebuild_design
from subspacedp.release.release import Release
from subspacedp.release.signature import DIGESTS, SIGNATURE, check_digests, check_signature
from subspacedp.release.verify import Check, Verification, verify_release

__all__ = ["load", "save", "verify_folder", "write_files", "write_margins"]

CERTIFICATE, PARQUET, CSV = "certificate.json", "values.parquet", "values.csv"
MARGINS = "margins"
BIASED = "non-negative-biased"
# What readers compute with; words may change from version to version.
ESSENTIAL = {
    "noise": ("family", "rate", "sigma", "variance", "unit", "sensitivity"),
    "guarantee": ("kind",),
    "values": ("type", "expected_squared_error"),
}
LEVEL = 0.95  # of the intervals in files of margins


def save(release: Release, folder: str | PathLike[str]) -> None:
    """Write a release to a new folder.

    Guarantees
    ----------
    1. The folder appears complete or not at all: it is written beside its place and renamed.
    2. An existing folder is never touched.
    """
    with new_folder(folder) as scratch:
        write_files(release, scratch)


def write_files(release: Release, folder: Path) -> None:
    """Write values and certificate into a folder that exists."""
    numbers = {"value": release.values, "stderr": release.stderr()}
    labels = LabelColumns.of_query(release.design.query)
    write_rows(labels, numbers, csv=folder / CSV, parquet=folder / PARQUET)
    text = certificate_text(release.certificate())
    (folder / CERTIFICATE).write_text(text + "\n", "utf-8")


def load(folder: str | PathLike[str]) -> Release:
    """Read a release; its values must be the ones the certificate was made for.

    The standard errors beside them must follow from the certificate's design, so a budget that was
    altered is found.
    """
    source = Path(folder)
    release, table = _read(source)
    _check_essentials(release, source)
    stated = table["stderr"].to_numpy() if "stderr" in table.column_names else None
    if stated is None or not _same("stderr", release.stderr().ravel(), stated):
        raise AlteredError(
            f"The standard errors in `{source / PARQUET}` do not follow from its certificate."
        )
    return release


def _check_essentials(release: Release, source: Path) -> None:
    """What a reader computes with must follow from the design: totals, law, kind of guarantee."""
    failed = next((check for check in verify_release(release).checks if not check.ok), None)
    if failed is not None:
        raise AlteredError(
            f"`{source}` was altered: {failed.name} does not hold ({failed.detail})."
        )
    stated, fresh = _read_certificate(source), json.loads(json.dumps(release.certificate()))
    try:
        for part, keys in ESSENTIAL.items():
            for key in keys:
                if stated[part].get(key) != fresh[part].get(key):
                    raise AlteredError(
                        f"`{source / CERTIFICATE}` was altered: `{part}.{key}` is not what its "
                        "design implies."
                    )
    except (AttributeError, KeyError, TypeError):
        raise ReleaseError(f"`{source / CERTIFICATE}` is not usable: a part is missing.") from None


def _read(source: Path) -> tuple[Release, Any]:
    data = _read_certificate(source)
    design = rebuild_design(data["design"])
    table = _read_parquet(source)
    _check_rows(table, design)
    values = table["value"].to_numpy().reshape(design.query.shape).copy()
    release = _release(data, design, values)
    if values_digest(values) != _stated_digest(data):
        raise AlteredError(
            f"The values in `{source / PARQUET}` are not the ones its certificate was made for."
        )
    return release, table


def _digest(source: Path) -> str:
    """SHA-256 of the certificate: what to compare with what its publisher says."""
    return hashlib.sha256((source / CERTIFICATE).read_bytes()).hexdigest()


def _stated_digest(data: dict[str, Any]) -> str:
    try:
        return str(data["values"]["sha256"])
    except (KeyError, TypeError):
        raise ReleaseError("The certificate is not usable: it states no digest.") from None


def verify_folder(
    folder: str | PathLike[str], *, public_key: str | PathLike[str] | None = None
) -> Verification:
    """All checks of a release on disk: its files, its certificate, and the release itself.

    A folder that holds several releases is checked table by table. A signature is checked where
    there is one; with `public_key` (a PEM file) there must be one, by that key. So are the digests
    of all files, which a publication without a signature has.
    """
    source = Path(folder)
    signed = []
    if public_key is not None or (source / SIGNATURE).is_file():
        signed.append(check_signature(source, public_key))
    if os.path.lexists(source / DIGESTS):
        signed.append(check_digests(source))
    inner = sorted(p.parent for p in source.glob(f"*/{CERTIFICATE}"))
    if inner and not (source / CERTIFICATE).exists():
        found = [(path.name, _verify_one(path)) for path in inner]
        return Verification(
            (
                *signed,
                *(
                    Check(f"{name}: {c.name}", c.ok, c.detail)
                    for name, v in found
                    for c in v.checks
                ),
            ),
            next((v.stamp for _, v in found if v.stamp), ""),
        )
    own = _verify_one(source)
    return Verification((*signed, *own.checks), own.stamp)


def _verify_one(source: Path) -> Verification:
    data = _read_certificate(source)
    try:
        release, _ = _read(source)
    except AlteredError as error:
        return Verification((Check("files belong together", False, str(error)),))
    own = verify_release(release)
    return Verification(
        (
            Check("files belong together", True, f"by {CERTIFICATE} {_digest(source)[:16]}…"),
            *_check_tables(release, source),
            *_check_margins(release, source),
            *_check_biased(release, source),
            _check_restated(release, data),
            *own.checks,
        ),
        own.stamp,
    )


def margin_stem(names: Sequence[str]) -> str:
    """The name of a margin's files, without their endings."""
    return "-by-".join(names) or "total"


def write_margins(release: Release, margins: Sequence[Sequence[str]], folder: Path) -> list[str]:
    """Write the totals of some margins with standard errors and intervals; the files' names.

    Guarantees
    ----------
    1. Every file is in `margins` below the folder, whatever the axes are named.
    2. No file takes the place of another one.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    home = folder / MARGINS
    stems = [margin_stem(names) for names in margins]
    for stem in stems:
        if (home / f"{stem}.csv").resolve().parent != home.resolve():
            raise ReleaseError(f"The margin `{stem}` cannot be the name of a file.")
        if [other.casefold() for other in stems].count(stem.casefold()) > 1:
            raise ReleaseError(f"Two margins would be written to the file `{stem}.csv`.")
    written = []
    for names in margins:
        home.mkdir(exist_ok=True)
        stem = f"{MARGINS}/{margin_stem(names)}"
        table = pa.table(release.margin(*names).columns(LEVEL))
        pyarrow.csv.write_csv(table, folder / f"{stem}.csv")
        pyarrow.parquet.write_table(table, folder / f"{stem}.parquet")
        written.append(stem)
    return written


def _check_margins(release: Release, source: Path) -> list[Check]:
    """Margins beside the values must follow from them."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    checks = []
    stems = {path.with_suffix("") for path in (source / MARGINS).glob("*.*")}
    for path in sorted(
        Path(f"{stem}{suffix}") for stem in stems for suffix in (".csv", ".parquet")
    ):
        name = f"{MARGINS}/{path.name}"
        try:
            names = pyarrow.parquet.read_schema(path.with_suffix(".parquet")).names
            levels = [c for c in names if c not in ("value", "stderr", "lower", "upper")]
            wanted = {c: np.asarray(v) for c, v in release.margin(*levels).columns(LEVEL).items()}
            if path.suffix == ".csv":
                types = {c: pa.array(column[:1]).type for c, column in wanted.items()}
                options = pyarrow.csv.ConvertOptions(column_types=types)
                table = pyarrow.csv.read_csv(path, convert_options=options)
            else:
                table = pyarrow.parquet.read_table(path)
            different = [c for c in wanted if not _close(wanted[c], table[c].to_numpy())]
            different += [c for c in table.column_names if c not in wanted]
        except (OSError, KeyError, pa.ArrowException, SubspaceDPError):
            checks.append(Check(name, False, "is not a margin of this release"))
            continue
        detail = f"column `{different[0]}` differs" if different else f"{table.num_rows:,} rows"
        checks.append(Check(name, not different, detail))
    return checks


def _check_biased(release: Release, source: Path) -> list[Check]:
    """A biased table beside the values has their labels, states them, and is not negative."""
    import pyarrow as pa
    import pyarrow.csv

    path = source / f"{BIASED}.csv"
    if not os.path.lexists(path):
        return []
    wanted = {name: np.asarray(column) for name, column in release.design.query.columns().items()}
    wanted["unbiased_value"] = release.values.ravel()
    types = {name: pa.array(column[:1]).type for name, column in wanted.items()}
    options = pyarrow.csv.ConvertOptions(
        column_types={**types, "non_negative_biased": pa.float64()}
    )
    try:
        table = pyarrow.csv.read_csv(path, convert_options=options)
        different = [c for c in wanted if not np.array_equal(wanted[c], table[c].to_numpy())]
        if not np.all(table["non_negative_biased"].to_numpy() >= 0):
            different.append("non_negative_biased")
    except (OSError, KeyError, pa.ArrowException):
        return [Check(path.name, False, "cannot be read as a table of this release")]
    detail = f"column `{different[0]}` differs" if different else f"{table.num_rows:,} rows"
    return [Check(path.name, not different, detail)]


def _close(wanted: Any, found: Any) -> bool:
    if wanted.shape != found.shape or wanted.dtype.kind not in "iuf":
        return bool(np.array_equal(wanted, found))
    return bool(np.allclose(wanted, found, rtol=1e-9, atol=1e-9, equal_nan=True))


def _read_certificate(source: Path) -> dict[str, Any]:
    try:
        text = (source / CERTIFICATE).read_text("utf-8")
        data = json.loads(text, object_pairs_hook=_distinct_keys)
    except FileNotFoundError:
        raise ReleaseError(f"`{source}` has no {CERTIFICATE}; it is not a release.") from None
    except OSError as error:
        raise ReleaseError(f"Cannot read `{source / CERTIFICATE}`: {error.strerror}.") from None
    except ValueError:
        raise ReleaseError(
            f"`{source / CERTIFICATE}` is not valid JSON with distinct keys."
        ) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ReleaseError(f"`{source / CERTIFICATE}` is not a certificate this version can read.")
    missing = {"design", "values", "invariants", "software", "release_id"} - set(data)
    if missing:
        raise ReleaseError(f"`{source / CERTIFICATE}` lacks `{min(missing)}`.")
    return data


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON lets a key come twice, and readers differ on which one counts."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key comes twice")
    return dict(pairs)


def _read_parquet(source: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(source / PARQUET)
    except FileNotFoundError:
        raise ReleaseError(f"`{source}` has no {PARQUET}.") from None
    except (OSError, pa.ArrowException):
        raise ReleaseError(f"`{source / PARQUET}` is not a readable Parquet file.") from None


def _check_rows(table: Any, design: Design) -> None:
    """Rows must be the answers of the query, in order."""
    if table.num_rows != design.query.size or "value" not in table.column_names:
        raise AlteredError("The values file does not have the rows and columns of its certificate.")
    for name, wanted in design.query.columns().items():
        if name not in table.column_names or not np.array_equal(
            np.asarray(table[name].to_numpy()), wanted
        ):
            raise AlteredError(
                f"The labels of `{name}` in the values file are not those of its certificate."
            )


def _release(data: dict[str, Any], design: Design, values: Any) -> Release:
    distributed = Distributed.from_dict(data["distributed"]) if "distributed" in data else None
    if distributed is not None and distributed.exact != (design.mechanism == "projected"):
        raise AlteredError("The certificate misstates whether its parts were computed exactly.")
    try:
        return Release(
            design=design,
            values=values,
            exact=held_values(data, design.held),
            release_id=str(data["release_id"]),
            seeded=data["for_publication"] is not True,
            version=str(data["software"]["version"]),
            distributed=distributed,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ReleaseError(
            "The certificate is not usable: its held totals cannot be read."
        ) from None


def _check_tables(release: Release, source: Path) -> list[Check]:
    """Both files say the same as the release: labels, levels, values, standard errors."""
    import pyarrow as pa
    import pyarrow.csv

    wanted = {name: np.asarray(column) for name, column in release.columns().items()}
    types = {name: pa.array(column[:1]).type for name, column in wanted.items()}
    options = pyarrow.csv.ConvertOptions(column_types=types)
    checks = []
    for name in (PARQUET, CSV):
        try:
            if name == PARQUET:
                table = _read_parquet(source)
            else:
                table = pyarrow.csv.read_csv(source / CSV, convert_options=options)
            different = [c for c in wanted if not _same(c, wanted[c], table[c].to_numpy())]
            different += [c for c in table.column_names if c not in wanted]
        except (OSError, KeyError, pa.ArrowException):
            checks.append(Check(name, False, "cannot be read as the table of this release"))
            continue
        detail = f"column `{different[0]}` differs" if different else f"{table.num_rows:,} rows"
        checks.append(Check(name, not different, detail))
    return checks


def _same(column: str, wanted: Any, found: Any) -> bool:
    if wanted.shape != found.shape:
        return False
    if column == "stderr":  # standard errors may differ in the last bit between machines
        return bool(np.allclose(wanted, found, rtol=1e-9, atol=0.0, equal_nan=True))
    return bool(np.array_equal(wanted, found))


def _check_restated(release: Release, data: dict[str, Any]) -> Check:
    """Everything the certificate says follows from its design: derive it again and compare."""
    name = "the certificate follows from its design"
    fresh = json.loads(json.dumps(release.certificate()))
    for key in [*fresh, *data]:
        if key not in fresh or key not in data or fresh[key] != data[key]:
            return Check(name, False, f"`{key}` is not what the design implies")
    if not re.fullmatch("[0-9a-f]{32}", release.release_id):
        return Check(name, False, "`release_id` is not one")
    return Check(name, True, "guarantee, noise law and stated error derived again, all equal")
