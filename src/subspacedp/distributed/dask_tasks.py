"""What the workers of a cluster do with one chunk, and the keys they do it with."""

from __future__ import annotations

import hmac
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.blocks import (
    PIECE,
    BoxFacts,
    Reconstruction,
    add_totals,
    empty_totals,
    margins_of,
    noise_totals,
    split_totals,
    whole_counts,
)
from subspacedp.errors import DataError
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import Keystream, ReleaseKeys
from subspacedp.noise.cell_noise import CellNoise
from subspacedp.tables.boxes import Box

__all__ = [
    "Tasks",
    "WorkerKeys",
    "first",
    "noise_of",
    "reconstruction_of",
    "second",
    "tag_of",
    "unchanged",
    "values_of",
]

Int64Array = npt.NDArray[np.int64]
AT_ONCE = 8  # totals that one task adds up


class WorkerKeys:
    """The subkeys of one release, raw, for workers: unlike any other key here it can be pickled.

    Whoever has one can compute the noise of every cell and take it out of what is published. It is
    part of the tasks, so it reaches the scheduler and every worker, through whatever network is
    between them: all of these must be trusted with the confidential table itself (which they read
    anyway), connections that leave a machine need TLS, and no graph that holds it may be stored or
    shown. `release_dask` keeps it out of the names of tasks and out of what it returns.
    """

    def __init__(self, keys: ReleaseKeys, law: Any) -> None:
        purposes = ["dither", "block tags"]
        for i in range(len(law.components())):
            purposes += [f"noise/{i}", f"refinement/{i}"]
        self._raw = {purpose: keys.subkey(purpose) for purpose in purposes}

    def stream(self, purpose: str) -> Keystream:
        """The keystream of one purpose."""
        return Keystream(self._raw[purpose])

    def tag(self, counts: Int64Array) -> bytes:
        """Tells whether a chunk that is computed again is the one that was read before."""
        return hmac.digest(self._raw["block tags"], counts.data, "sha256")

    def __repr__(self) -> str:
        return "WorkerKeys(keys hidden)"

    def __dask_tokenize__(self) -> str:
        raise TypeError("keys are secret: no name is derived from them")


class Tasks:
    """Tasks without names that depend on their arguments."""

    def __init__(self, delayed: Any) -> None:
        self._delayed = delayed

    def call(self, function: Any, *arguments: Any) -> Any:
        """A task."""
        return self._delayed(function, pure=False, traverse=False)(*arguments)

    def sum(self, parts: list[Any]) -> Any:
        """Add up, a few at a time, so that no task holds many tables of totals."""
        while len(parts) > 1:
            groups = [parts[i : i + AT_ONCE] for i in range(0, len(parts), AT_ONCE)]
            parts = [self.call(added, *group) for group in groups]
        return parts[0]


def noise_of(mechanism: Mechanism, keys: WorkerKeys, box: Box) -> tuple[Int64Array, BoxFacts]:
    """C·noise of one chunk; no data are read."""
    totals = empty_totals(margins_of(mechanism))
    if box.size:
        noise_totals(mechanism, CellNoise(mechanism.law, keys), box, totals)
    return totals, BoxFacts()


def added(*parts: tuple[Int64Array, BoxFacts]) -> tuple[Int64Array, BoxFacts]:
    """Totals and facts of several chunks together."""
    totals, facts = parts[0][0].copy(), parts[0][1]
    for more, seen in parts[1:]:
        totals += more
        facts = facts + seen
    return totals, facts


def reconstruction_of(mechanism: Mechanism, noise: tuple[Int64Array, BoxFacts]) -> Reconstruction:
    """What all chunks share, from the totals of the noise."""
    made = Reconstruction(mechanism, split_totals(margins_of(mechanism), noise[0]))
    made.prepare()
    return made


def values_of(
    reconstruction: Reconstruction, keys: WorkerKeys, box: Box, chunk: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], tuple[Int64Array, BoxFacts], bytes]:
    """Values of one chunk, with the held totals of its counts and a tag of them."""
    mechanism = reconstruction.mechanism
    held, noise = margins_of(mechanism), CellNoise(mechanism.law, keys)
    counts = np.empty(box.size, np.int64)
    whole_counts(chunk if np.ma.isMaskedArray(chunk) else np.asarray(chunk), counts)
    totals, facts = empty_totals(held), BoxFacts()
    if not box.size:
        return np.empty(box.shape, reconstruction.dtype), (totals, facts), b""
    starts, length = box.runs(mechanism.query.shape)
    tag = keys.tag(counts)
    add_totals(held, box, counts, totals)
    for at in range(0, box.size, PIECE):
        facts = facts + BoxFacts.of(counts[at : at + PIECE])
    noise.add(starts, length, counts, counts)
    values = reconstruction.apply(counts, box, keys.stream("dither"))
    return values.reshape(box.shape), (totals, facts), tag


def unchanged(made: tuple[Any, Any, bytes], tag: bytes) -> tuple[Any, Any, bytes]:
    """The same again, if it is of the reading that was tagged; an error if it is of another."""
    if made[2] != tag:
        raise DataError(
            "The table changed after it was released, and values were lost: the same noise must "
            "not serve other data. Release it anew."
        )
    return made


def first(made: tuple[Any, Any, bytes]) -> Any:
    """The values of a chunk."""
    return made[0]


def second(made: tuple[Any, Any, bytes]) -> Any:
    """Totals and facts of a chunk."""
    return made[1]


def tag_of(made: tuple[Any, Any, bytes]) -> bytes:
    """The tag of what was read of a chunk."""
    return made[2]
