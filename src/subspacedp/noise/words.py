"""Random words by random access: an AES-256-CTR keystream, and the keys it runs under.

Cell i of a release uses word i, so the noise of any part of a table can be computed alone. Every
purpose has its own key: the words that decide noise never decide a rounding, and no two releases
share a key, for the derivation binds a fresh release id and what the words are used for.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol

import numpy as np

from subspacedp.arrays import WordArray
from subspacedp.frozen import frozen

KEY_BYTES = 32
_CHUNK = 1 << 19  # bytes of zeros fed to the cipher at a time
_ZEROS = memoryview(bytes(_CHUNK))


class Keystream:
    """Uniform 64-bit words, any run of them, under one secret key.

    Examples
    --------
    >>> stream = Keystream(bytes(32))
    >>> bool((stream.words(3, 5) == stream.words(0, 8)[3:]).all())
    True
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError("a keystream needs a key of 32 bytes")
        self._key = key

    def words(self, start: int, count: int, scratch: WordArray | None = None) -> WordArray:
        """Words `start` to `start + count - 1`.

        A caller that asks again and again gives `scratch`, an array of at least `count + 3` words
        to write to, and gets a view of it.
        """
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES256
        from cryptography.hazmat.primitives.ciphers.modes import CTR

        block, skip = divmod(start, 2)
        cipher = Cipher(AES256(self._key), CTR(block.to_bytes(16, "big"))).encryptor()
        size = 8 * (count + skip)
        room = np.empty(count + skip + 2, np.uint64) if scratch is None else scratch
        view = room.view(np.uint8).data
        for at in range(0, size, _CHUNK):
            stop = min(at + _CHUNK, size)
            cipher.update_into(_ZEROS[: stop - at], view[at:])
        words = room[skip : skip + count]
        return words if sys.byteorder == "little" else words.byteswap()

    def __repr__(self) -> str:
        return "Keystream(key hidden)"

    def __reduce__(self) -> str:
        raise TypeError("a keystream is secret and is not pickled")


class KeySource(Protocol):
    """The keystreams of one release, by what they serve."""

    def stream(self, purpose: str) -> Keystream:
        """The keystream of one purpose: noise, refinement or dither."""


@frozen(repr=False, eq=False)
class ReleaseKeys:
    """The master key of one release and the subkeys derived from it.

    Parameters
    ----------
    master
        256 bits from the operating system, or derived from a seed.
    release_id
        Public; fresh for every release.
    context
        What the words will serve: mechanism, law, cell order. Different contexts under one master
        give unrelated words, so the same words never serve two budgets or two tables.
    """

    master: bytes
    release_id: str
    context: bytes

    @classmethod
    def fresh(cls, context: bytes) -> ReleaseKeys:
        """A new master key and release id from the operating system."""
        return cls(os.urandom(KEY_BYTES), os.urandom(16).hex(), context)

    @classmethod
    def from_seed(cls, seed: int, context: bytes) -> ReleaseKeys:
        """Reproducible keys; whoever knows the seed can remove the noise."""
        material = b"subspacedp seed " + str(int(seed)).encode()
        master = _hkdf(material, b"", b"master")
        release_id = _hkdf(material, b"", b"release id" + context)[:16].hex()
        return cls(master, release_id, context)

    def stream(self, purpose: str) -> Keystream:
        """The keystream of one purpose: noise, refinement or dither."""
        return Keystream(self.subkey(purpose))

    def subkey(self, purpose: str) -> bytes:
        """The key of one purpose, raw: for those who may have that one and no other."""
        info = purpose.encode() + b"\x00" + self.context
        return _hkdf(self.master, self.release_id.encode(), info)

    def __repr__(self) -> str:
        return f"ReleaseKeys(release {self.release_id}, key hidden)"

    def __reduce__(self) -> str:
        raise TypeError("keys are secret and are not pickled")


def _hkdf(material: bytes, salt: bytes, info: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt, info).derive(material)
