"""Keyed words: the published cipher, random access, and keys that never meet again."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from tests.statistical import ALPHA, p_value, sample_size

from subspacedp import Axis, Domain, PureDP, Table, design, hold
from subspacedp.noise import Keystream, ReleaseKeys

KEY = bytes(range(32))
DOMAIN = Domain([Axis("a", range(50))])
TABLE = Table(np.full(50, 10), DOMAIN)

# NIST SP 800-38A, F.5.5 (CTR-AES256.Encrypt).
NIST_KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
NIST_COUNTER = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
NIST_PLAIN = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
NIST_CIPHER = bytes.fromhex(
    "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
    "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
)


# ---------------------------------------------------------------------------------- one keystream


def test_the_keystream_is_aes_256_in_counter_mode():
    """The published ciphertext XOR plaintext is the keystream; word 2b is the head of block b."""
    keystream = bytes(a ^ b for a, b in zip(NIST_PLAIN, NIST_CIPHER, strict=True))
    expected = np.frombuffer(keystream, "<u8")
    words = Keystream(NIST_KEY).words(2 * NIST_COUNTER, 8)
    assert words.dtype == np.uint64
    assert words.tolist() == expected.tolist()
    # Its first output block as NIST prints it.
    assert words[:2].astype("<u8").tobytes().hex() == "0bdf7df1591716335e9a8b15c860c502"


@pytest.mark.parametrize("base", [0, 1, 7, 2**32 - 3, 2**63 - 2, 2**64 - 3, 2**64 + 5, 2**104 + 1])
def test_any_stretch_equals_that_part_of_a_longer_one(base):
    stream = Keystream(KEY)
    whole = stream.words(base, 41).tolist()
    for start in range(12):
        for count in (0, 1, 2, 3, 16, 29):
            assert stream.words(base + start, count).tolist() == whole[start : start + count]


def test_long_stretches_are_put_together_from_chunks_without_a_seam():
    stream, n = Keystream(KEY), 1 << 18  # several chunks of zeros
    for start in (0, 1, 12345):
        whole = stream.words(start, n + 3)
        for at in (0, 65535, 65536, 131071, 131072, n - 2):
            assert stream.words(start + at, 3).tolist() == whole[at : at + 3].tolist()


def test_a_scratch_array_changes_nothing():
    stream, scratch = Keystream(KEY), np.full(64, 99, np.uint64)
    for start, count in ((0, 20), (1, 20), (3, 61), (2, 0)):
        assert stream.words(start, count, scratch).tolist() == stream.words(start, count).tolist()


def test_words_do_not_repeat_along_the_stream_nor_across_the_64_bit_border():
    stream = Keystream(KEY)
    words = np.concatenate([stream.words(s, 1 << 16) for s in (0, 2**64, 2**65, 2**100)])
    assert np.unique(words).size == words.size  # by chance: 2⁻²⁹


def test_another_key_gives_other_words():
    first = Keystream(KEY).words(0, 1000)
    second = Keystream(bytes([1]) + KEY[1:]).words(0, 1000)
    assert not np.intersect1d(first, second).size


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_only_256_bit_keys_are_taken(length):
    with pytest.raises(ValueError, match="32 bytes"):
        Keystream(bytes(length))


# ------------------------------------------------------------------------------ keys of a release


def words_of(keys, purpose="noise/0"):
    return keys.stream(purpose).words(0, 500)


def test_purposes_contexts_ids_and_seeds_give_unrelated_words():
    keys = ReleaseKeys(KEY, "id", b"context")
    all_words = [
        words_of(keys, purpose)
        for purpose in ("noise/0", "noise/1", "refinement/0", "refinement/1", "dither")
    ]
    all_words += [
        words_of(ReleaseKeys(KEY, "id", b"other")),
        words_of(ReleaseKeys(KEY, "di", b"context")),
        words_of(ReleaseKeys(bytes(32), "id", b"context")),
        words_of(ReleaseKeys.from_seed(1, b"context")),
        words_of(ReleaseKeys.from_seed(2, b"context")),
        words_of(ReleaseKeys.from_seed(-1, b"context")),
        words_of(ReleaseKeys.from_seed(1, b"other")),
        words_of(ReleaseKeys.fresh(b"context")),
    ]
    together = np.concatenate(all_words)
    assert np.unique(together).size == together.size


def test_a_purpose_and_a_context_cannot_trade_letters():
    """The derivation separates them: "noise" + "X…" is not "noiseX" + "…"."""
    first = words_of(ReleaseKeys(KEY, "id", b"Xcontext"), "noise")
    second = words_of(ReleaseKeys(KEY, "id", b"context"), "noiseX")
    assert not np.intersect1d(first, second).size


def test_seeded_keys_repeat_and_fresh_ones_do_not():
    assert words_of(ReleaseKeys.from_seed(5, b"c")).tolist() == (
        words_of(ReleaseKeys.from_seed(5, b"c")).tolist()
    )
    fresh = [ReleaseKeys.fresh(b"c") for _ in range(50)]
    assert len({k.release_id for k in fresh}) == 50
    assert len({k.master for k in fresh}) == 50
    assert len({int(words_of(k)[0]) for k in fresh}) == 50


def test_secrets_are_neither_shown_nor_pickled():
    keys = ReleaseKeys(KEY, "id", b"context")
    for secret in (keys, keys.stream("dither")):
        assert KEY.hex() not in repr(secret)
        assert "\\x01\\x02" not in repr(secret)
        with pytest.raises(TypeError, match="secret"):
            pickle.dumps(secret)


def test_two_releases_differ_and_seeded_ones_repeat():
    mechanism = design(DOMAIN, hold(), PureDP(0.1), decimals=0)
    first, second = mechanism.release(TABLE), mechanism.release(TABLE)
    assert first.release_id != second.release_id
    assert first.values.tolist() != second.values.tolist()
    seeded = [mechanism.release(TABLE, seed=3).values.tolist() for _ in range(2)]
    assert seeded[0] == seeded[1]
    assert mechanism.release(TABLE, seed=4).values.tolist() != seeded[0]


def test_one_seed_never_serves_two_designs():
    """Budget, held totals and decimals are bound into the keys: no two designs share noise."""
    designs = [
        design(DOMAIN, hold(), PureDP(0.1), decimals=0),
        design(DOMAIN, hold(), PureDP(0.2), decimals=0),
        design(DOMAIN, hold(), PureDP(0.1), decimals=1),
        design(DOMAIN, None, PureDP(0.1), decimals=0),
        design(Domain([Axis("b", range(50))]), hold(), PureDP(0.1), decimals=0),
    ]
    keys = [ReleaseKeys.from_seed(1, d.mechanism.context) for d in designs]
    together = np.concatenate([words_of(k) for k in keys])
    assert np.unique(together).size == together.size


# --------------------------------------------------------------------------------------- processes

SCRIPT = """
import json, os, sys
import numpy as np
from subspacedp import Axis, Domain, PureDP, Table, design, hold

domain = Domain([Axis("a", range(50))])
table = Table(np.full(50, 10), domain)
mechanism = design(domain, hold(), PureDP(0.1), decimals=0)
mechanism.release(table)  # the parent has drawn before it forks
pipes = []
for _ in range(int(sys.argv[1])):
    read, write = os.pipe()
    if os.fork() == 0:
        release = mechanism.release(table)
        os.write(write, json.dumps([release.release_id, release.values.tolist()]).encode())
        os._exit(0)
    os.wait()
    pipes.append(read)
own = mechanism.release(table)
out = [[own.release_id, own.values.tolist()]]
out += [json.loads(os.read(read, 1 << 16)) for read in pipes]
print(json.dumps(out))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_neither_forks_nor_repeated_processes_repeat_noise():
    releases = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT, "3"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        releases += json.loads(done.stdout)
    assert len(releases) == 8
    assert len({release_id for release_id, _ in releases}) == 8
    assert len({tuple(values) for _, values in releases}) == 8


# -------------------------------------------------------------------------------------- statistics


def pairs_table(first, second):
    """Counts of (leading three bits of one word, leading three bits of the other)."""
    joint = (first >> np.uint64(61)) * np.uint64(8) + (second >> np.uint64(61))
    return np.bincount(joint.astype(np.int64), minlength=64)


def test_noise_words_and_dither_words_are_independent():
    uniform = np.full(64, 1 / 64)
    # The wrong law to be told apart: one word in twenty-five shared.
    shared = 0.96 * uniform + 0.04 * np.eye(8).ravel() / 8
    n = sample_size(uniform, shared)
    keys = ReleaseKeys.from_seed(0, b"independence")
    noise, dither = (keys.stream(p).words(0, n) for p in ("noise/0", "dither"))
    assert p_value(pairs_table(noise, dither), uniform) > ALPHA
    assert p_value(pairs_table(noise[:-1], noise[1:]), uniform) > ALPHA  # nor one from the next
    every = np.arange(n) % 25 == 0
    assert p_value(pairs_table(noise, np.where(every, noise, dither)), uniform) < ALPHA


def test_every_bit_of_a_word_is_fair():
    biased = np.array([0.51, 0.49])
    n = sample_size([0.5, 0.5], biased)
    words = ReleaseKeys.from_seed(0, b"bits").stream("noise/0").words(0, n)
    for bit in range(64):
        ones = int(np.count_nonzero(words >> np.uint64(bit) & np.uint64(1)))
        assert p_value([n - ones, ones], [0.5, 0.5]) > ALPHA
    rng = np.random.default_rng(0)
    assert p_value(rng.multinomial(n, biased), [0.5, 0.5]) < ALPHA
