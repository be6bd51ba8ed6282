"""A table large enough for compiled kernels, released in blocks by several tests."""

import hashlib
import io

import numpy as np

import subspacedp as sdp

SHAPE = (41, 30, 66)
DOMAIN = sdp.Domain(
    [
        sdp.Axis("a", range(41), levels={"part": [i // 9 for i in range(41)]}),
        sdp.Axis("b", range(30), levels={"kind": [7 * i % 4 for i in range(30)]}),
        sdp.Axis("c", range(66)),
    ]
)
PAIRS = sdp.hold("a", "b") & sdp.hold("a", "c") & sdp.hold("b", "c")
COUNTS = np.random.default_rng(1).integers(0, 50, SHAPE)


def designed(held=PAIRS, budget=None, decimals=0, **options):
    return sdp.design(
        DOMAIN, held, budget or sdp.PureDP(0.5), mechanism="projected", decimals=decimals, **options
    )


def in_memory(design, counts=COUNTS, everything=None):
    """The release that all others must equal."""
    full = None if everything is None else sdp.Table(everything, DOMAIN)
    return design.release(sdp.Table(counts, DOMAIN), everything=full, seed=7)


def saved(values) -> bytes:
    """The values as `numpy.save` writes them."""
    np.save(file := io.BytesIO(), np.ascontiguousarray(values))
    return file.getvalue()


def digest_of(content: bytes, *, tree: bool) -> str:
    """The digest of a file, by its definition."""
    if not tree:
        return hashlib.sha256(content).hexdigest()
    chunks = (content[at : at + 2**18] for at in range(0, len(content), 2**18))
    leaves = (hashlib.sha256(b"\x00" + chunk).digest() for chunk in chunks)
    return "tree-1:" + hashlib.sha256(b"\x01" + b"".join(leaves)).hexdigest()


def same(drawn, release) -> bool:
    """Whether two releases have the same bits."""
    return (
        drawn.values.dtype == release.values.dtype
        and drawn.values.tobytes() == release.values.tobytes()
        and drawn.sha256 == digest_of(saved(release.values), tree=drawn.stored is not None)
        and all(np.array_equal(a, b) for a, b in zip(drawn.exact, release.exact, strict=True))
        and drawn.release_id == release.release_id
    )
