"""A table large enough for compiled kernels, released in blocks by several tests."""

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


def same(drawn, release) -> bool:
    """Whether two releases have the same bits."""
    return (
        drawn.values.dtype == release.values.dtype
        and drawn.values.tobytes() == release.values.tobytes()
        and drawn.sha256 == release.sha256
        and all(np.array_equal(a, b) for a, b in zip(drawn.exact, release.exact, strict=True))
        and drawn.release_id == release.release_id
    )
