"""A sampler that is ours: every law that is handed to the real one is seen here.

All ways to noise are replaced wherever they were imported, and keys give no words of noise while
that is so: a mechanism that draws in another way fails instead of escaping.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

from subspacedp import noise as sampling
from subspacedp.mechanisms.knorm.law import KNormLaw
from subspacedp.noise import CellNoise, Keystream, ReleaseKeys

FUNCTIONS = ("add_noise", "draw", "draw_each")  # of the sampler, imported by name elsewhere
WITHOUT_NOISE = ("dither", "mask")  # purposes of keystreams that decide no noise


class Drawn(NamedTuple):
    """The law of one integer and the number of the random word that decides it."""

    law: Any
    word: int


class Sampler:
    """Noise is what `noise` says of laws and words; with `instead`, in place of base + noise.

    Parameters
    ----------
    noise
        From a law and the numbers of words to whole numbers; zeros by default.
    joint
        The noise of a k-norm law, from the number of its entries.
    instead
        Whether the noisy integers themselves are given, whatever the exact ones are.
    """

    def __init__(
        self,
        noise: Callable[[Any, np.ndarray], np.ndarray] | None = None,
        joint: Callable[[int], np.ndarray] | None = None,
        *,
        instead: bool = False,
    ) -> None:
        self.noise = noise or (lambda law, words: np.zeros(len(words), np.int64))
        self.joint = joint or (lambda entries: np.zeros(entries, np.int64))
        self.instead = instead
        self.drawn: list[Drawn] = []
        self._lock = threading.Lock()

    def take(self, law: Any, words: np.ndarray, base: np.ndarray) -> np.ndarray:
        """What stands in place of base + noise of these words."""
        with self._lock:
            self.drawn.extend(Drawn(law, int(word)) for word in words)
        noise = np.asarray(self.noise(law, words), np.int64)
        return noise if self.instead else base + noise

    def take_jointly(self, law: KNormLaw, start: int) -> np.ndarray:
        """One draw of a k-norm law."""
        self.drawn.append(Drawn(law, start))
        return np.asarray(self.joint(law.norm_ball.entries), np.int64)


@contextmanager
def intercepted(sampler: Sampler) -> Iterator[Sampler]:
    """Let `sampler` stand for all sampling of the package."""

    def add_noise(law, keys, start, base, out):
        del keys
        out[:] = sampler.take(law, start + np.arange(base.size), base.copy())

    def draw(law, keys, start, count):
        del keys
        return sampler.take(law, start + np.arange(count), np.zeros(count, np.int64))

    def draw_each(laws, member, keys):
        del keys
        if sampler.instead:
            raise AssertionError("`draw_each` gives noise without a base")
        out = np.zeros(member.size, np.int64)
        for number, law in enumerate(laws):
            places = np.flatnonzero(member == number)
            out[places] = sampler.take(law, places, np.zeros(places.size, np.int64))
        return out

    def prepare(self, law, keys, *, kernel=True):
        del keys
        self.law = law

    def add(self, starts, length, base, out):
        words = (np.asarray(starts)[:, None] + np.arange(length)).reshape(-1)
        out[:] = sampler.take(self.law, words, base.copy())

    def at(self, cells):
        return sampler.take(self.law, np.asarray(cells), np.zeros(len(cells), np.int64))

    def jointly(self, keys, count=1, start=0):
        del keys
        return np.stack([sampler.take_jointly(self, start + i) for i in range(count)])

    ours = {"add_noise": add_noise, "draw": draw, "draw_each": draw_each}
    real = {getattr(sampling, name): ours[name] for name in FUNCTIONS}
    stream = ReleaseKeys.stream

    def no_words_of_noise(self, purpose) -> Keystream:
        if purpose not in WITHOUT_NOISE:
            raise AssertionError(f"words of `{purpose}` were asked for beside the sampler")
        return stream(self, purpose)

    with pytest.MonkeyPatch.context() as patch:
        modules = [m for n, m in list(sys.modules.items()) if n.split(".")[0] == "subspacedp"]
        for module in modules:
            for name, value in list(vars(module).items()):
                if callable(value) and getattr(value, "__hash__", None) and value in real:
                    patch.setattr(module, name, real[value])
        patch.setattr(CellNoise, "__init__", prepare)
        patch.setattr(CellNoise, "add", add)
        patch.setattr(CellNoise, "at", at)
        patch.setattr(KNormLaw, "draw", jointly)
        patch.setattr(ReleaseKeys, "stream", no_words_of_noise)
        yield sampler


def numbers(seed: int, size: int = 40) -> Callable[[Any, np.ndarray], np.ndarray]:
    """Arbitrary noise that depends on the number of the word alone."""

    def noise(law, words):
        del law
        return np.array(
            [np.random.default_rng([seed, int(w)]).integers(-size, size + 1) for w in words],
            np.int64,
        )

    return noise
