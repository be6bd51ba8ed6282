"""The folder of a publication: values, margins, certificates, report, and words for its readers.

Whatever in the specification, the installation or the disk would stop a release after it has paid
stops its rehearsal, and a dry run, which rehearses too. The stand-in is the empty table with the
noise of a public key, stamped as not for publication; it goes where the release will be written,
and away.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from subspacedp.arrays import AnyArray
from subspacedp.blocks.digests import file_digest, is_tree
from subspacedp.blocks.passes import Survey
from subspacedp.blocks.sources import ArraySource
from subspacedp.blocks.stores import STORES, open_store
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.inference.nonnegative import WHICH_TABLE
from subspacedp.mechanisms.base import Mechanism
from subspacedp.microdata import COUNT, UNBIASED, WEIGHT, SecondTable
from subspacedp.noise import ReleaseKeys
from subspacedp.noise.words import KEY_BYTES
from subspacedp.publication.auditing import given_away
from subspacedp.publication.corrections import title_of
from subspacedp.publication.formats import FORMATS, ReleaseTables, published_tables
from subspacedp.publication.releases import Confidential, Progress, ReleaseSpecification
from subspacedp.publication.specification import Specification
from subspacedp.queries.margins import COLUMN
from subspacedp.release import Design, Release, sign_folder, write_margins
from subspacedp.release.certificate import ERROR_MODEL
from subspacedp.release.drawing import LABELLED, MAX_LABELLED, draw_to, look_at, store_kind
from subspacedp.release.facts import Facts
from subspacedp.release.files import (
    BIASED,
    CERTIFICATE,
    CSV,
    PARQUET,
    RECORDS,
    LabelColumns,
    load,
    margin_stem,
    write_rows,
)
from subspacedp.release.folder_checks import DATASET
from subspacedp.release.signature import DIGESTS, SIGNATURE, write_digests
from subspacedp.report import PublishedColumn, PublishedFile, ReportNotes, write_report
from subspacedp.report.quality import Quality, quality_report
from subspacedp.report.rows import in_script
from subspacedp.report.words import dataset, figure_words
from subspacedp.stated import visible

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DICTIONARY = "dictionary.csv"
SECOND_HOLDS = {
    f"{BIASED}.csv": "BIASED: whole numbers without negative ones; no standard errors apply.",
    f"{BIASED}.parquet": "The same, for programs.",
    f"{BIASED}.json": "BIASED: what is expected of that table's errors, and how to repeat it.",
    f"{RECORDS}.parquet": "SYNTHETIC: one row for each one that the biased table counts; nobody's.",
    f"{RECORDS}.csv": "The same, as text.",
}
SECOND_COLUMNS = {
    f"{BIASED}.csv": (
        PublishedColumn(
            name=COUNT,
            meaning="BIASED: whole number that is not negative; held figures are kept exactly",
            type="whole number",
        ),
        PublishedColumn(name=UNBIASED, meaning="the unbiased value of the cell", type="number"),
    ),
    f"{RECORDS}.parquet": (
        PublishedColumn(
            name=WEIGHT,
            meaning="what a row counts for, so that the published margins of rows are unbiased "
            "where they can be; may be negative",
            type="real",
        ),
    ),
}
NONE_FOUND = "No table without negative values was found that keeps the held figures."
WIDTH = 79  # of README.txt
WARNING = """CONFIDENTIAL: these files compare a release with the data it was made from.

They are for the curator alone and must not be published: together with the release they
reveal the noise, and with it every count.

confidential: the figure that noise protects, with at most the agreed number of records a person.
all_records: the same without that bound, where there is one.
without_noise: what would have been released without noise, where held totals count all records.
quality.html: bias, errors and coverage by true size.
error: released less that; in standard errors it is beyond 2 for about one cell in twenty.
"""


def write_rest(
    specification: Specification,
    wanted: Sequence[ReleaseSpecification],
    releases: Mapping[str, Release],
    folder: Path,
    *,
    key: Ed25519PrivateKey | None,
    progress: Progress,
) -> None:
    """Write what follows from a draw into its folder: margins, report, words, digests.

    It can be repeated: whatever else an earlier attempt has left in the folder is removed first.
    """
    _remove_rest(wanted, releases, folder)
    files: list[PublishedFile] = []
    second = {
        one.name: SecondTable(release=releases[one.name], records=one.records, margins=one.margins)
        for one in wanted
        if one.non_negative
    }
    for one in wanted:
        progress(f"writing {one.name}")
        beside = second.get(one.name)
        if beside is not None:
            progress(f"working out a table without negative values for {one.name}")
        home = folder / one.folder
        files += _write_release(specification, one, releases[one.name], beside, home)
    progress("writing the report")
    notes = _notes(specification, wanted, releases, second, files, signed=key is not None)
    files += [
        PublishedFile(name=DATASET, holds="What this is, for catalogues: schema.org in JSON-LD."),
        PublishedFile(name="README.txt", holds="How to read these files, in plain text."),
        PublishedFile(name=DICTIONARY, holds="Every column of every file, with its meaning."),
    ]
    files.append(
        PublishedFile(
            name=DIGESTS, holds="SHA-256 digests of all other files, for `subspacedp verify`."
        )
        if key is None
        else PublishedFile(name=SIGNATURE, holds="An Ed25519 signature of all files.")
    )
    _write_dictionary(files, wanted, releases, folder / DICTIONARY)
    (folder / "README.txt").write_text(
        _readme(specification, releases, files, signed=key is not None), "utf-8"
    )
    known = {
        f"{one.prefix}{name}": digest
        for one in wanted
        for name, digest in releases[one.name].file_digests.items()
    }
    described = [_with_digest(file, folder, known) for file in files]
    about = specification.document.about_text
    linked = dataset(title_of(specification), about, releases, described)
    # Catalogues put it into a script of their pages.
    text = in_script(json.dumps(linked, indent=1, ensure_ascii=False))
    (folder / DATASET).write_text(text + "\n", "utf-8")
    page = write_report(dict(releases), title=title_of(specification), notes=notes, files=described)
    (folder / "report.html").write_text(page, "utf-8")
    if key is None:
        write_digests(folder, known)
    else:
        sign_folder(folder, key, known)


def _remove_rest(
    wanted: Sequence[ReleaseSpecification], releases: Mapping[str, Release], folder: Path
) -> None:
    drawn = {
        folder / one.folder / name
        for one in wanted
        for name in (CERTIFICATE, ERROR_MODEL, *_values_names(releases[one.name]))
    }
    for path in sorted(folder.rglob("*"), reverse=True):  # what is in a folder before the folder
        if path in drawn or any(above in drawn for above in path.parents):
            continue
        if path.is_dir() and not path.is_symlink():
            if not any(path in kept.parents for kept in drawn):
                path.rmdir()
        else:
            path.unlink()


def _values_names(release: Release) -> tuple[str, ...]:
    """The files or folders that the values are in."""
    return (CSV, PARQUET) if release.stored is None else (STORES[release.stored.kind],)


def _write_release(
    specification: Specification,
    wanted: ReleaseSpecification,
    release: Release,
    second: SecondTable | None,
    folder: Path,
) -> list[PublishedFile]:
    prefix, names = wanted.prefix, _values_names(release)
    if release.stored is None:
        holds = [f"Values and standard errors of {wanted.what}.", "The same, for programs."]
    else:
        holds = [f"Values of {wanted.what}, in order. {_reading(release)}"]
    out = [
        *(
            PublishedFile(name=f"{prefix}{name}", holds=words)
            for name, words in zip(names, holds, strict=True)
        ),
        PublishedFile(
            name=f"{prefix}certificate.json",
            holds="The promise, its terms, what is held exactly, and the law of the noise.",
        ),
        PublishedFile(
            name=f"{prefix}{ERROR_MODEL}",
            holds="What standard errors of any sums follow from, for programs.",
        ),
    ]
    held = {margin_stem(names) for names in wanted.held_margins}
    for stem in write_margins(release, [*wanted.margins, *wanted.held_margins], folder):
        exact = stem.rpartition("/")[2] in held
        out += [
            PublishedFile(
                name=f"{prefix}{stem}.csv",
                holds="Totals that are held exact."
                if exact
                else "Totals with standard errors and 95 % intervals.",
            ),
            PublishedFile(name=f"{prefix}{stem}.parquet", holds="The same, for programs."),
        ]
    if second is not None:
        try:
            out += _write_second(prefix, second, folder)
        except ReleaseError:
            # The noise decided that there is none; refusing now would invite another try.
            (folder / f"{BIASED}.txt").write_text(NONE_FOUND, "utf-8")
            out.append(PublishedFile(name=f"{prefix}{BIASED}.txt", holds=NONE_FOUND))
    out += _write_formats(specification, wanted, release, folder)
    if wanted.folder:  # so that it can be verified by itself
        write_digests(folder, release.file_digests)
        out.append(
            PublishedFile(
                name=f"{prefix}{DIGESTS}", holds="SHA-256 digests of this folder's files."
            )
        )
    return out


def _write_formats(
    specification: Specification, wanted: ReleaseSpecification, release: Release, folder: Path
) -> list[PublishedFile]:
    """The tables once more, in the further formats that are asked for."""
    title, document = title_of(specification), specification.document
    content = ReleaseTables(
        release=release,
        tables=published_tables(
            release,
            wanted.margins,
            wanted.table.hold if wanted.counts else (),
            cells=wanted.cells and release.stored is None,
        ),
        title=f"{title}: {wanted.name}" if wanted.folder else title,
        about=document.about_text,
        contact=document.contact or "",
    )
    files = [file for name in wanted.formats for file in FORMATS[name](content, folder)]
    return [replace(file, name=f"{wanted.prefix}{file.name}") for file in files]


def _reading(release: Release) -> str:
    """How the values of a store are read, in words."""
    if release.stored is None:
        return ""
    axes = ", ".join(axis.name for axis in release.mechanism.domain.axes)
    name = STORES[release.stored.kind]
    how = {
        "npy": f'In Python numpy.load("{name}", mmap_mode="r") has one axis for each of {axes}',
        "zarr": f'In Python zarr.open_array("{name}", mode="r") has one axis for each of {axes}',
        "parquet": f"Its files, in the order of their names, have one row for each cell, in "
        f"row-major order of {axes}",
    }[release.stored.kind]
    return (
        f"{how}, with the labels in the order that certificate.json lists them in; so does "
        "subspacedp.Release.load(folder).values."
    )


def _write_second(prefix: str, second: SecondTable, folder: Path) -> list[PublishedFile]:
    """The table without negative values and its records, each file with what it holds."""
    return [
        PublishedFile(
            name=f"{prefix}{name}",
            holds=SECOND_HOLDS[name],
            columns=SECOND_COLUMNS.get(name, ()),
        )
        for name in second.write(folder)
    ]


def _write_dictionary(
    files: Sequence[PublishedFile],
    wanted: Sequence[ReleaseSpecification],
    releases: Mapping[str, Release],
    path: Path,
) -> None:
    """One row a column: where it occurs, what it means, its type."""
    rows: list[tuple[str, str, str, str]] = []
    for one in wanted:
        release = releases[one.name]
        if not one.cells:
            rows.append((COLUMN, "", "the margin that the row is of, by its levels", "text"))
        shown = {name for names in (*one.margins, *one.table.hold) for name in names}
        labelled = one.cells and release.stored is None
        for axis in release.mechanism.domain.axes:
            for level in axis.named:
                if labelled or level.name in shown:
                    kind = "whole number" if np.asarray(level.labels).dtype.kind == "i" else "text"
                    of = "label" if level.name == axis.name else f"group of `{axis.name}`"
                    title = "" if level.title == level.name else level.title
                    holes = "; empty for labels in none" if level.has_holes else ""
                    rows.append((level.name, title, f"{of}; {level.groups} of them{holes}", kind))
    for name, release in releases.items():
        where = f"in {name}: " if len(releases) > 1 else ""
        meaning = (
            f"{where}the released figure, unbiased for the {figure_words(release.mechanism)}; "
            "exact where stderr is 0"
        )
        rows.append(("value", "", meaning, "number"))
    rows += [
        ("stderr", "", "standard error of the value, from the law of the noise", "number"),
        (
            "lower",
            "",
            "lower limit of an interval that covers it without the noise, with 95 %",
            "number",
        ),
        ("upper", "", "upper limit of the same interval", "number"),
    ]
    rows += [(c.name, "", c.meaning, c.type) for file in files for c in file.columns]
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(["column", "title", "meaning", "type"])
        writer.writerows(dict.fromkeys(rows))


def _with_digest(file: PublishedFile, folder: Path, known: Mapping[str, str]) -> PublishedFile:
    """A file with its size and its plain digest; one with a tree is not read for that."""
    path = folder / file.name
    if not path.is_file():
        return file
    digest = "" if is_tree(known.get(file.name, "")) else file_digest(path)
    return replace(file, size=path.stat().st_size, sha256=digest)


def _notes(
    specification: Specification,
    wanted: Sequence[ReleaseSpecification],
    releases: Mapping[str, Release],
    second: Mapping[str, SecondTable],
    files: Sequence[PublishedFile],
    *,
    signed: bool,
) -> ReportNotes:
    written = {file.name for file in files}
    budget = [f"{name}: {release.mechanism.budget}" for name, release in releases.items()]
    return ReportNotes(
        disclosure=given_away(releases),
        about=specification.document.about_text,
        contact=specification.document.contact or "",
        budget=budget if len(budget) > 1 else (),
        contributions={
            one.name: _contributions(specification, releases[one.name])
            for one in wanted
            if specification.data.bounded
        },
        second_tables={
            one.name: second[one.name] for one in wanted if f"{one.prefix}{BIASED}.csv" in written
        },
        signature="All files are signed; subspacedp verify checks them." if signed else "",
        margins={one.name: [list(m) for m in one.margins] for one in wanted if one.margins},
    )


def _contributions(specification: Specification, release: Release) -> str:
    n = specification.neighbours
    cell = f", at most {n.per_cell} of them in one cell," if n.per_cell else ""
    text = (
        f"At most {n.records} record{'s' if n.records > 1 else ''} of a person{cell} "
        f"count{'' if n.records > 1 else 's'} where noise protects; which ones stay of a person "
        "with more is decided by a keyed hash that looks at nobody else."
    )
    if not release.mechanism.space.rank:
        return text
    alike = ", every cell of a held group by the same amount"
    return (
        f"{text} Figures that are held exact count all records, and the other figures are moved "
        f"to agree with them{'' if release.mechanism.for_workloads else alike}: the more records "
        "the bound left out, the farther."
    )


def _readme(
    specification: Specification,
    releases: Mapping[str, Release],
    files: Sequence[PublishedFile],
    *,
    signed: bool,
) -> str:
    """The text of `README.txt`: what a data user needs."""
    title, about = title_of(specification), specification.document.about_text
    parts = [title, "=" * min(WIDTH, len(title)), ""]
    parts += [_wrapped(about), ""] if about else []
    contact = specification.document.contact or ""
    parts += _facts_lines(next(iter(releases.values())).facts, contact)
    if any(release.seeded for release in releases.values()):
        parts += ["NOT FOR PUBLICATION: made from a chosen seed.", ""]
    for name, release in releases.items():
        mechanism = release.mechanism
        if len(releases) > 1:
            parts += [name, "-" * len(name), ""]
        parts += [
            _wrapped(
                f"{mechanism.query.size:,} figures, each the {figure_words(mechanism)}. Published "
                f"exactly: {mechanism.held}."
            ),
            "",
            _wrapped(" ".join(release.guarantee.sentences())),
            "",
        ]
        parts += [_wrapped(f"- {line}", "  ") for line in release.guarantee.not_protected()]
        parts.append("")
    parts += [
        "How to use the figures",
        "----------------------",
        "",
        _wrapped(
            "`value` is the figure described above plus random noise of mean zero: it may be "
            "negative, and it is unbiased for that figure. Use it as it is in sums, differences, "
            "averages and regressions; do not move negative values to zero first."
        ),
        "",
        _wrapped(
            "`stderr` is the standard error of the noise alone. value ± 1.96 stderr is a rough "
            "95 % interval; `lower` and `upper`, where given, are exact ones. A `stderr` of 0 "
            "means that the figure is published exactly. Errors of different cells are "
            "correlated where totals are held, so the error of a sum you form yourself is not "
            "the root of summed squares: the margins are given for that, and "
            "subspacedp.Release.load(folder).estimate(weights) answers for any other sum."
        ),
        "",
        *_on_known(releases),
        *_on_biased(files),
        _wrapped(
            "Labels and titles are written as they are. One that starts with =, +, - or @ may be "
            "taken for a formula by a spreadsheet: import the columns of labels as text."
        ),
        "",
        "Files",
        "-----",
        "",
        *(_wrapped(f"{file.name}: {file.holds}", "    ") for file in files),
        _wrapped("report.html: all of this with pictures; it needs no network.", "    "),
        "",
        _wrapped(
            "Check the files with: subspacedp verify FOLDER"
            + (" (add --key PUBLIC.pem to check who signed them)" if signed else "")
        ),
        "",
    ]
    return "\n".join(visible(line) for part in parts for line in part.split("\n"))


def _on_known(releases: Mapping[str, Release]) -> list[str]:
    """What intervals take as known, where something is declared."""
    lines = []
    for name, release in releases.items():
        known = release.mechanism.problem.inequalities
        if known is not None:
            of = f" of {name}" if len(releases) > 1 else ""
            text = (
                f"`lower` and `upper`{of} use what is publicly known: {known}. If any of it is "
                "false, so may these be."
            )
            lines += [_wrapped(text), ""]
    return lines


def _facts_lines(facts: Facts, contact: str) -> list[str]:
    """Who publishes it and answers questions, when, on what terms, and instead of what."""
    replaces = ", ".join(one.release_id for one in facts.replaces)
    stated = {
        "Published by": facts.creator,
        "Questions to": contact,
        "Date": facts.date,
        "Version": facts.version,
        "Licence": facts.licence,
        "Replaces release": replaces and f"{replaces}, which is no longer to be used",
    }
    lines = [_wrapped(f"{name}: {text}", "  ") for name, text in stated.items() if text]
    return [*lines, ""] if lines else []


def _on_biased(files: Sequence[PublishedFile]) -> list[str]:
    names = [file.name.rpartition("/")[2] for file in files]
    parts = []
    if f"{BIASED}.csv" in names:
        parts.append(
            f"{BIASED}.csv has a second table, of whole numbers without negative ones. It is "
            f"BIASED: {WHICH_TABLE} {BIASED}.json says what bias is to be expected."
        )
    if f"{RECORDS}.parquet" in names:
        parts.append(
            f"The rows of {RECORDS}.parquet are SYNTHETIC: as many for each cell as the biased "
            f"table counts, and nobody's. `{WEIGHT}` makes their totals unbiased for the published "
            "margins where that is possible; some may be negative, and the .json file counts them."
        )
    return [line for part in parts for line in (_wrapped(part), "")]


def _wrapped(text: str, hanging: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


def write_comparison(
    releases: Mapping[str, Release], data: Mapping[str, Confidential], folder: Path
) -> None:
    """Write every release beside what it protects, to a folder that is its owner's alone."""
    judged: list[Quality] = []
    with _private(folder / "CONFIDENTIAL.txt") as file:
        file.write(WARNING.encode())
    for name, release in releases.items():
        labels = LabelColumns.of_query(release.mechanism.query)
        numbers = _numbers(release, data[name])
        with _private(folder / f"{name}.csv") as file:
            write_rows(labels, numbers, csv=file)
        truth = numbers.get("without_noise", numbers["confidential"])
        if release.mechanism.declared is None:
            judged.append(Quality(name=name, release=release, truth=np.asarray(truth, np.float64)))
    title = next(iter(releases.values())).facts.title
    with _private(folder / "quality.html") as file:
        file.write(quality_report(title, judged).encode())


def check_comparison(designs: Mapping[str, Design]) -> None:
    """Refuse what would be compared row by row for too many rows; ask before anything is paid."""
    for name, design in designs.items():
        size = design.mechanism.query.size
        if size > MAX_LABELLED:
            raise ReleaseError(
                f"A comparison has one row per figure, and at most {MAX_LABELLED:,}; `{name}` has "
                f"{size:,}. Publish it without a comparison.",
                cells=size,
            )


def _numbers(release: Release, data: Confidential) -> dict[str, AnyArray]:
    """The confidential figures, the released ones, and how far these are off."""
    mechanism, grid = release.mechanism, float(release.mechanism.query.grid)
    answers, full = data.arrays(mechanism.blocks().answers_shape)

    def figures(answers: AnyArray) -> AnyArray:
        # Totals of held margins that no figure shows come after those of the query.
        return answers.reshape(-1)[: mechanism.query.size] * grid

    without_noise = figures(answers)
    columns: dict[str, AnyArray] = {"confidential": without_noise}
    if mechanism.capped:
        columns["all_records"] = figures(full)
        if mechanism.space.rank:
            without_noise = figures(mechanism.without_noise(answers, release.exact))
            columns["without_noise"] = without_noise
    error = release.values.ravel() - without_noise
    stderr = release.stderr().ravel()
    return {
        **columns,
        "released": release.values.ravel(),
        "error": error,
        "error_in_standard_errors": np.divide(
            error, stderr, out=np.zeros(error.shape), where=stderr > 0
        ),
    }


def _private(path: Path) -> BinaryIO:
    """A new file that its owner alone can read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


REHEARSAL = "rehearsal"
MAX_REHEARSED_FIGURES = 2_000_000  # writing more takes as long again as the release itself


def rehearse(
    specification: Specification,
    wanted: Sequence[ReleaseSpecification],
    designs: Mapping[str, Design],
    surveys: Mapping[str, Survey],
    home: Path,
    *,
    key: Ed25519PrivateKey | None,
    facts: Facts | None = None,
) -> None:
    """Write the publication of the empty table to a folder in `home`, and take it away.

    Of large tables only the empty store: what fails after their draw is on disk costs time and no
    budget.
    """
    folder = home / REHEARSAL
    folder.mkdir(0o700)
    try:
        if sum(one.mechanism.query.size for one in designs.values()) > MAX_REHEARSED_FIGURES:
            for one in wanted:
                _rehearse_store(one, designs[one.name].mechanism, surveys[one.name], folder)
            return
        for one in wanted:
            design = designs[one.name]
            (folder / one.folder).mkdir(exist_ok=True)
            nothing = ArraySource(design.mechanism.nothing())
            surveyed = look_at(design, nothing, nothing if design.mechanism.capped else None)
            draw_to(
                folder / one.folder,
                design,
                _public_keys(design),
                nothing,
                surveyed=surveyed,
                seeded=True,
                store=one.store,
                facts=facts,
            )
        stand_in = {one.name: load(folder / one.folder) for one in wanted}
        write_rest(specification, wanted, stand_in, folder, key=key, progress=lambda _: None)
    except (SubspaceDPError, OSError, MemoryError):
        raise
    except Exception as error:
        # Nothing here has seen the data, so that what the error says may be told.
        raise ReleaseError(
            "The publication cannot be written here, as its rehearsal shows "
            f"({type(error).__name__}: {error}); nothing was paid."
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rehearse_store(
    wanted: ReleaseSpecification, mechanism: Mechanism, surveyed: Survey, folder: Path
) -> None:
    kind = store_kind(mechanism, wanted.store)
    if kind != LABELLED:
        home = folder / wanted.folder
        home.mkdir(exist_ok=True)
        with closing(open_store(kind, home, mechanism.query.shape, np.int64)) as store:
            store.create(surveyed.boxes)


def rehearse_draw(design: Design, data: Confidential) -> None:
    """Measure and reconstruct the data with the noise of a public key, and forget the result.

    What the size of the counts would stop after payment stops here. Nothing is written. Of a table
    in several blocks, the sizes were looked at before.
    """
    if len(data.surveyed.boxes) > 1:
        return
    failed = ""
    try:
        answers, full = data.arrays(design.mechanism.blocks().answers_shape)
        design.release_with(_public_keys(design), answers, full, seeded=True)
    except (SubspaceDPError, MemoryError):
        raise
    except Exception as error:
        failed = type(error).__name__
    if failed:  # outside the handler: what the error says may quote the data
        raise ReleaseError(
            f"The release cannot be computed from these data ({failed}); nothing was paid."
        )


def _public_keys(design: Design) -> ReleaseKeys:
    """A key that everybody knows."""
    return ReleaseKeys(bytes(KEY_BYTES), "0" * 32, design.mechanism.context)
