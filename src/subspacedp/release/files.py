"""A release on disk: `values.parquet`, `values.csv` and `certificate.json`, all or nothing."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.errors import ReleaseError
from subspacedp.release.certificate import FORMAT, certificate_text, values_digest
from subspacedp.release.design import Design
from subspacedp.release.rebuild import rebuild_design
from subspacedp.release.release import Release
from subspacedp.release.verify import Check, Verification, verify_release

__all__ = ["load", "save", "verify_folder"]

CERTIFICATE, PARQUET, CSV = "certificate.json", "values.parquet", "values.csv"


def save(release: Release, folder: str | PathLike[str]) -> None:
    """Write a release to a new folder.

    Guarantees
    ----------
    1. The folder appears complete or not at all: it is written beside its place and renamed.
    2. An existing folder is never touched.
    """
    import pyarrow.csv
    import pyarrow.parquet

    target = Path(folder)
    if target.exists():
        raise ReleaseError(f"The folder `{target}` exists already; a release never overwrites one.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise ReleaseError(f"Cannot write to `{target.parent}`: {error.strerror}.") from None
    try:
        table = _arrow_table(release)
        pyarrow.parquet.write_table(table, scratch / PARQUET)
        pyarrow.csv.write_csv(table, scratch / CSV)
        text = certificate_text(release.certificate())
        (scratch / CERTIFICATE).write_text(text + "\n", "utf-8")
        scratch.chmod(0o755)
        os.rename(scratch, target)
    except OSError as error:
        raise ReleaseError(f"Cannot write `{target}`: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def load(folder: str | PathLike[str]) -> Release:
    """Read a release; its values must be the ones the certificate was made for."""
    source = Path(folder)
    data = _read_certificate(source)
    design = rebuild_design(data["design"])
    table = _read_parquet(source)
    _check_rows(table, design)
    values = table["value"].to_numpy().reshape(design.domain.shape).copy()
    release = _release(data, design, values)
    if values_digest(values) != data["values"]["sha256"]:
        raise ReleaseError(
            f"The values in `{source / PARQUET}` are not the ones its certificate was made for."
        )
    return release


def verify_folder(folder: str | PathLike[str]) -> Verification:
    """All checks of a release on disk: its files, its certificate, and the release itself."""
    source = Path(folder)
    data = _read_certificate(source)
    release = load(source)
    return Verification(
        (
            Check("digest", True, "the values are the ones the certificate was made for"),
            _check_csv(release, source),
            _check_restated(release, data),
            *verify_release(release).checks,
        )
    )


def _arrow_table(release: Release) -> Any:
    """Labels are dictionary-encoded: one copy of each, whatever the size of the table."""
    import pyarrow as pa

    domain = release.design.domain
    columns: dict[str, Any] = {}
    for a, axis in enumerate(domain.axes):
        shape = [1] * len(domain.shape)
        shape[a] = len(axis)
        for level in axis.chain:
            codes = np.broadcast_to(level.codes.astype(np.int32).reshape(shape), domain.shape)
            columns[level.name] = pa.DictionaryArray.from_arrays(
                pa.array(codes.ravel()), pa.array(list(level.labels))
            )
    columns["value"] = pa.array(release.values.ravel())
    columns["stderr"] = pa.array(release.stderr().ravel())
    return pa.table(columns)


def _read_certificate(source: Path) -> dict[str, Any]:
    try:
        data = json.loads((source / CERTIFICATE).read_text("utf-8"))
    except FileNotFoundError:
        raise ReleaseError(f"`{source}` has no {CERTIFICATE}; it is not a release.") from None
    except OSError as error:
        raise ReleaseError(f"Cannot read `{source / CERTIFICATE}`: {error.strerror}.") from None
    except ValueError:
        raise ReleaseError(f"`{source / CERTIFICATE}` is not valid JSON.") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ReleaseError(f"`{source / CERTIFICATE}` is not a certificate this version can read.")
    missing = {"design", "values", "invariants", "software", "release_id"} - set(data)
    if missing:
        raise ReleaseError(f"`{source / CERTIFICATE}` lacks `{min(missing)}`.")
    return data


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
    """Rows must be the domain's cells, in order."""
    domain = design.domain
    if table.num_rows != domain.size or "value" not in table.column_names:
        raise ReleaseError("The values file does not have the rows and columns of its certificate.")
    for a, axis in enumerate(domain.axes):
        shape = [1] * len(domain.shape)
        shape[a] = len(axis)
        wanted = np.broadcast_to(np.asarray(axis.labels).reshape(shape), domain.shape).ravel()
        if axis.name not in table.column_names or not np.array_equal(
            np.asarray(table[axis.name].to_numpy()), wanted
        ):
            raise ReleaseError(
                f"The labels of `{axis.name}` in the values file are not those of its certificate."
            )


def _release(data: dict[str, Any], design: Design, values: Any) -> Release:
    try:
        exact = tuple(
            np.asarray(item["values"], np.int64).reshape(m.shape)
            for m, item in zip(design.held.margins, data["invariants"], strict=True)
        )
        return Release(
            design=design,
            values=values,
            exact=exact,
            release_id=str(data["release_id"]),
            seeded=not data["for_publication"],
            version=str(data["software"]["version"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ReleaseError(
            "The certificate is not usable: its held totals cannot be read."
        ) from None


def _check_csv(release: Release, source: Path) -> Check:
    import pyarrow as pa
    import pyarrow.csv

    name = "CSV and Parquet agree"
    try:
        table = pyarrow.csv.read_csv(source / CSV)
        same = np.array_equal(table["value"].to_numpy(), release.values.ravel())
    except (OSError, KeyError, pa.ArrowException):
        return Check(name, False, f"{CSV} cannot be read")
    return Check(name, same, f"{table.num_rows:,} rows")


def _check_restated(release: Release, data: dict[str, Any]) -> Check:
    """Everything the certificate says follows from its design: derive it again and compare."""
    name = "the certificate follows from its design"
    fresh = json.loads(json.dumps(release.certificate()))
    for key in ("guarantee", "noise", "values", "invariants", "stamp"):
        if fresh[key] != data.get(key):
            return Check(name, False, f"`{key}` is not what the design implies")
    return Check(name, True, "guarantee, noise law and stated error derived again, all equal")
