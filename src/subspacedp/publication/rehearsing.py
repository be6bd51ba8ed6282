"""Everything that a run does after it has paid, done before on a public stand-in.

Whatever in the specification, the installation or the disk would stop a release later stops the
rehearsal, and a dry run, which rehearses too. The stand-in is the empty table with the noise of a
public key, stamped as not for publication; it goes where the release will be written, and away.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from subspacedp.blocks.passes import Survey
from subspacedp.blocks.sources import ArraySource
from subspacedp.blocks.stores import open_store
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import ReleaseKeys
from subspacedp.noise.words import KEY_BYTES
from subspacedp.publication.releases import Confidential, ReleaseSpecification
from subspacedp.publication.specification import Specification
from subspacedp.publication.writing import write_rest
from subspacedp.release.designs import Design
from subspacedp.release.drawing import LABELLED, draw_to, look_at, store_kind
from subspacedp.release.facts import Facts
from subspacedp.release.files import load

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
