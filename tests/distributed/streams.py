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


def mechanism(held=PAIRS, budget=None, decimals=0):
    return sdp.design(
        DOMAIN, held, budget or sdp.PureDP(0.5), mechanism="projected", decimals=decimals
    )


def same(streamed, release) -> bool:
    """Whether two releases have the same bits."""
    values = streamed.to_release().values
    return (
        values.dtype == release.values.dtype
        and values.tobytes() == release.values.tobytes()
        and all(np.array_equal(a, b) for a, b in zip(streamed.exact, release.exact, strict=True))
        and streamed.release_id == release.release_id
    )
