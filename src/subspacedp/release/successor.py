"""What took the place of a release: a note beside its files, which stay as they were published.

`replaced-by.json` is listed in no digests, for it comes later. It names the releases that it is
about, so that it fits no other folder; and where these are signed, it is signed by the same key, so
that nobody else can send their readers elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspacedp.errors import ReleaseError
from subspacedp.release.facts import Facts, Replaced
from subspacedp.release.files import CERTIFICATE, read_certificate
from subspacedp.release.folders import write_durably
from subspacedp.release.signature import SIGNATURE, SUCCESSOR, public_bytes, signer_of
from subspacedp.release.verify import Check
from subspacedp.stated import canonical, json_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT = "subspacedp successor 1"
NAME = "successor"


def released_in(folder: Path) -> tuple[Replaced, ...]:
    """The releases of a folder, by their ids and certificates."""
    homes = [folder] if (folder / CERTIFICATE).exists() else sorted(
        path.parent for path in folder.glob(f"*/{CERTIFICATE}")
    )  # fmt: skip
    if not homes:
        read_certificate(folder)  # says what is wrong with it
    return tuple(
        Replaced(
            release_id=str(read_certificate(home)["release_id"]),
            certificate_sha256=hashlib.sha256((home / CERTIFICATE).read_bytes()).hexdigest(),
        )
        for home in homes
    )


def note_successor(old: Path, new: Path, key: Ed25519PrivateKey | None) -> None:
    """Write into the folder of a release what took its place, and where that is.

    Guarantees
    ----------
    1. No file that was there is changed; a note of another successor stays, and is an error.
    """
    facts = Facts.from_dict(_certificate_of(new).get("publication", {}))
    stated = {
        "format": FORMAT,
        "releases": [one.as_dict() for one in released_in(old)],
        "replaced_by": {
            "folder": Path(os.path.relpath(new.resolve(), old.resolve())).as_posix(),
            "releases": [one.as_dict() for one in released_in(new)],
            **{k: v for k, v in facts.as_dict().items() if k in ("title", "date", "version")},
        },
    }
    signed = None if key is None else (public_bytes(key), key.sign(canonical(stated)))
    text = _text(stated, signed)
    path = old / SUCCESSOR
    if path.exists():
        if path.read_text("utf-8") != text:
            raise ReleaseError(f"`{old}` was replaced before: see its {SUCCESSOR}.")
        return
    try:
        write_durably(path, text.encode(), mode=0o644)
    except OSError as error:
        raise ReleaseError(f"Cannot write `{path}`: {error.strerror}.") from None


def check_successor(folder: Path) -> list[Check]:
    """Whether a note is about these releases, and of whom it has to be; none without a note."""
    path = folder / SUCCESSOR
    if not os.path.lexists(path):
        return []
    try:
        stated, signed = _read(path)
        where = str(stated["replaced_by"]["folder"])
        if stated["releases"] != [one.as_dict() for one in released_in(folder)]:
            return [Check(NAME, False, f"{SUCCESSOR} is about other releases")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [Check(NAME, False, f"{SUCCESSOR} cannot be read")]
    if (folder / SIGNATURE).exists() and (signed is None or signed != signer_of(folder)):
        return [Check(NAME, False, f"{SUCCESSOR} is not signed by the key of the release")]
    by = "signed by the key of the release" if signed is not None else "not signed"
    return [Check(NAME, True, f"replaced by `{where}`, {by}")]


def successor_words(folder: Path) -> str:
    """What a reader has to know first; nothing where there is no note."""
    try:
        stated, _ = _read(folder / SUCCESSOR)
        by = stated["replaced_by"]
        date = f" of {by['date']}" if "date" in by else ""
        return f"This publication was replaced by the one in `{by['folder']}`{date}: use that one."
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def _read(path: Path) -> tuple[dict[str, Any], bytes | None]:
    """What a note states, and whose valid signature it has; `ValueError` for anything else."""
    text = path.read_bytes().decode("utf-8")
    data = json_of(text, SUCCESSOR)
    stated = {name: data[name] for name in ("format", "releases", "replaced_by")}
    signed = None
    if "signature" in data:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        public = base64.b64decode(data["public_key"], validate=True)
        signature = base64.b64decode(data["signature"], validate=True)
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, canonical(stated))
        except InvalidSignature:
            raise ValueError("the signature does not fit") from None
        signed = (public, signature)
    if stated["format"] != FORMAT or text != _text(stated, signed):
        raise ValueError("more, or other words, than a note")
    return stated, None if signed is None else signed[0]


def _text(stated: dict[str, Any], signed: tuple[bytes, bytes] | None) -> str:
    data = dict(stated)
    if signed is not None:
        names = ("public_key", "signature")
        data |= {n: base64.b64encode(b).decode() for n, b in zip(names, signed, strict=True)}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _certificate_of(folder: Path) -> dict[str, Any]:
    """The only certificate of a folder, or the first of several."""
    paths = [folder / CERTIFICATE, *sorted(folder.glob(f"*/{CERTIFICATE}"))]
    return read_certificate(next(path for path in paths if path.exists()).parent)
