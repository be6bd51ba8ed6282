"""Digests of all files of a release folder, and an Ed25519 signature of them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from subspacedp.blocks.digests import file_digest, is_tree
from subspacedp.errors import ReleaseError
from subspacedp.release.verify import Check
from subspacedp.stated import canonical, json_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

SIGNATURE, DIGESTS = "signature.json", "digests.json"
SUCCESSOR = "replaced-by.json"  # comes after the digests, and has a check of its own
NAME = "signature"


def read_private_key(path: str | PathLike[str]) -> Ed25519PrivateKey:
    """An Ed25519 key from a PEM file without a passphrase."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(Path(path).read_bytes(), password=None)
    except FileNotFoundError:
        raise ReleaseError(
            f"There is no key `{path}`; `subspacedp key new {path}` makes one."
        ) from None
    except OSError as error:
        raise ReleaseError(f"Cannot read the key `{path}`: {error.strerror}.") from None
    except TypeError:
        raise ReleaseError(f"The key `{path}` has a passphrase; give one without.") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ReleaseError(f"`{path}` is not a private key in PEM format.") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ReleaseError(f"The key `{path}` is not an Ed25519 key.")
    return key


def new_private_key(path: str | PathLike[str]) -> tuple[Path, str]:
    """Write a new Ed25519 key to a file of its owner alone, and its public half beside it.

    Returns
    -------
    tuple
        The path of the public half, and the fingerprint that `verify` shows.

    Guarantees
    ----------
    1. No file is overwritten.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    private = Path(path)
    public = private.with_name(f"{private.stem}.public{private.suffix or '.pem'}")
    key = Ed25519PrivateKey.generate()
    shown = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    hidden = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    if public.exists():
        raise ReleaseError(f"`{public}` exists already; no key is overwritten.")
    for place, content, mode in ((private, hidden, 0o600), (public, shown, 0o644)):
        try:
            with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
        except FileExistsError:
            raise ReleaseError(f"`{place}` exists already; no key is overwritten.") from None
        except OSError as error:
            raise ReleaseError(f"Cannot write `{place}`: {error.strerror}.") from None
    return public, fingerprint(public_bytes(key))


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """The public half of a key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def fingerprint(public: bytes) -> str:
    """What readers compare with what a publisher says of a key."""
    return f"{hashlib.sha256(public).hexdigest()[:16]}…"


def signer_of(folder: Path) -> bytes:
    """Whose key the signature of a folder names; `check_signature` says whether it is right."""
    data = json_of(_text(folder / SIGNATURE), SIGNATURE)
    return base64.b64decode(data["public_key"], validate=True)


def write_digests(folder: Path, known: Mapping[str, str] | None = None) -> None:
    """Write `digests.json`: the SHA-256 digest of every other file below.

    Whoever can alter a file can alter this one too: it finds accidents, and a signature finds more.
    `known` has digests of large files, trees, that were computed while they were written.
    """
    text = _digests_text(_digests(folder, DIGESTS, SUCCESSOR, known=known or {}))
    with (folder / DIGESTS).open("wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def check_digests(folder: Path, known: Mapping[str, str] = MappingProxyType({})) -> Check:
    """Whether every file is as `digests.json` has it, and no other file is there.

    `known` has digests of large files that were computed a moment ago.
    """
    try:
        text = _text(folder / DIGESTS)
        stated = _stated_files(json_of(text, DIGESTS))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Check("digests", False, f"{DIGESTS} cannot be read")
    # A signature may have been made afterwards; it has a check of its own.
    later = {SIGNATURE, SUCCESSOR} - set(stated)
    wrong = _difference(
        stated, _digests(folder, DIGESTS, *later, known=known, stated=stated), DIGESTS
    )
    if not wrong and text != _digests_text(stated):
        wrong = f"{DIGESTS} has more, or other words, than digests"
    return Check("digests", not wrong, wrong or f"{len(stated)} files are as {DIGESTS} has them")


def _text(path: Path) -> str:
    """What a file says, byte for byte: ends of lines are not made alike."""
    return path.read_bytes().decode("utf-8")


def _stated_files(data: Any) -> dict[str, str]:
    return {str(name): str(digest) for name, digest in data["files"].items()}


def _digests_text(files: Mapping[str, str]) -> str:
    return json.dumps({"algorithm": "SHA-256", "files": files}, indent=1) + "\n"


def _difference(stated: Mapping[str, str], present: Mapping[str, str], listed_in: str) -> str:
    """The first file that is not as it is stated, and what is wrong with it; empty if none is."""
    different = sorted(set(stated.items()) ^ set(present.items()))
    if not different:
        return ""
    name = different[0][0]
    if name not in present:
        return f"`{name}` is missing"
    return f"`{name}` was altered" if name in stated else f"`{name}` is not in {listed_in}"


def sign_folder(
    folder: Path, key: Ed25519PrivateKey, known: Mapping[str, str] | None = None
) -> None:
    """Write `signature.json`: the digest of every file below, and a signature of these.

    `known` is as for `write_digests`.
    """
    digests = _digests(folder, SIGNATURE, SUCCESSOR, known=known or {})
    text = _signature_text(public_bytes(key), digests, key.sign(canonical(digests)))
    (folder / SIGNATURE).write_bytes(text.encode())


def _signature_text(public: bytes, files: Mapping[str, str], signature: bytes) -> str:
    data = {
        "algorithm": "Ed25519",
        "public_key": base64.b64encode(public).decode(),
        "files": files,
        "signs": "the files' names and SHA-256 digests as JSON, keys sorted, no spaces",
        "signature": base64.b64encode(signature).decode(),
    }
    return json.dumps(data, indent=1) + "\n"


def check_signature(
    folder: Path,
    public_key: str | PathLike[str] | None = None,
    known: Mapping[str, str] = MappingProxyType({}),
) -> Check:
    """Whether the signature is right and covers every file as it is; `known` as above."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    wanted = None if public_key is None else _read_public_key(public_key)
    try:
        text = _text(folder / SIGNATURE)
        data = json_of(text, SIGNATURE)
        files = _stated_files(data)
        signer = base64.b64decode(data["public_key"], validate=True)
        signature = base64.b64decode(data["signature"], validate=True)
        Ed25519PublicKey.from_public_bytes(signer).verify(signature, canonical(files))
    except FileNotFoundError:
        return Check(NAME, False, f"there is no {SIGNATURE}")
    except InvalidSignature:
        return Check(NAME, False, "the signature does not fit the digests")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Check(NAME, False, f"{SIGNATURE} cannot be read")
    if text != _signature_text(signer, files, signature):
        return Check(NAME, False, f"{SIGNATURE} has more, or other words, than a signature")
    later = {SUCCESSOR} - set(files)
    present = _digests(folder, SIGNATURE, *later, known=known, stated=files)
    different = sorted(set(files.items()) ^ set(present.items()))
    if different:
        return Check(NAME, False, f"`{different[0][0]}` is not the file that was signed")
    if wanted is not None and signer != wanted:
        return Check(NAME, False, "signed by another key than the one given")
    by = "the key given" if wanted is not None else "a key to be compared with its publisher's"
    return Check(NAME, True, f"{len(files)} files, by {by}: {fingerprint(signer)}")


def _read_public_key(path: str | PathLike[str]) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
        load_pem_public_key,
    )

    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ReleaseError(f"Cannot read the key `{path}`: {error.strerror}.") from None
    key: Any
    try:
        key = (
            load_pem_private_key(text, password=None)
            if b"PRIVATE KEY" in text
            else load_pem_public_key(text)
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ReleaseError(f"`{path}` is not a public key in PEM format.") from None
    public: Ed25519PublicKey | Any = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    if not isinstance(public, Ed25519PublicKey):
        raise ReleaseError(f"The key `{path}` is not an Ed25519 key.")
    return public.public_bytes(Encoding.Raw, PublicFormat.Raw)


def _digests(
    folder: Path,
    *without: str,
    known: Mapping[str, str] = MappingProxyType({}),
    stated: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """The digest of everything below by its name: files, and what else may lie in a folder.

    A file has a tree where one is stated of it, else a plain digest, or the one that is known.
    """

    def digest_of(name: str, path: Path) -> str:
        tree = is_tree(stated.get(name, known.get(name, "")))
        found = known.get(name)
        return _digest(path, tree=tree) if found is None or is_tree(found) != tree else found

    return {
        name: digest_of(name, path)
        for name, path in sorted((p.relative_to(folder).as_posix(), p) for p in folder.rglob("*"))
        if name not in without and not _has_entries(path)
    }


def _has_entries(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and any(path.iterdir())


def _digest(path: Path, *, tree: bool) -> str:
    """A link to a folder, or to nothing, stands for its target's name."""
    if path.is_file():
        return file_digest(path, tree=tree)
    what = f"link to {path.readlink()}" if path.is_symlink() else "no file"
    return hashlib.sha256(what.encode()).hexdigest()
