"""Facts of a publication: its name, who publishes it, when, on what terms, what it replaces.

They are stated when a release is drawn, they are part of its certificate, and nothing is computed
from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from typing import Any

from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen

LONGEST = 2_000  # signs of one fact
UNREADABLE = "The certificate is not usable: the facts of its publication cannot be read."


@frozen(kw_only=True)
class Replaced:
    """An earlier release that is no longer to be used.

    Parameters
    ----------
    release_id
        Its name.
    certificate_sha256
        SHA-256 of its `certificate.json`; empty where it is not known.
    """

    release_id: str
    certificate_sha256: str = ""

    def __post_init__(self) -> None:
        given = (self.release_id, "[0-9a-f]{32}"), (self.certificate_sha256, "([0-9a-f]{64})?")
        if not all(isinstance(text, str) and re.fullmatch(form, text) for text, form in given):
            raise ReleaseError("A release that is replaced is named by its id and a digest.")

    def as_dict(self) -> dict[str, str]:
        """As plain data."""
        known = {"release_id": self.release_id, "certificate_sha256": self.certificate_sha256}
        return {name: text for name, text in known.items() if text}


@frozen(kw_only=True)
class Facts:
    """What is said of a publication beside its figures; every part may be empty.

    Parameters
    ----------
    title
        What is published.
    creator
        Who publishes it.
    date
        The day of publication, as 2026-03-31.
    licence
        The terms of use: a name such as CC-BY-4.0, or an address.
    version
        Of the publication.
    replaces
        The releases that it takes the place of.

    Examples
    --------
    >>> Facts(creator="The Office", date="2026-03-31").as_dict()
    {'creator': 'The Office', 'date': '2026-03-31'}
    """

    title: str = ""
    creator: str = ""
    date: str = ""
    licence: str = ""
    version: str = ""
    replaces: tuple[Replaced, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self)[:-1]:
            text = getattr(self, field.name)
            if not isinstance(text, str) or len(text) > LONGEST:
                raise ReleaseError(
                    f"`{field.name}` of a publication must be text of at most {LONGEST:,} signs."
                )
        if self.date and not _is_day(self.date):
            raise ReleaseError(
                f"`date` of a publication must be a day such as 2026-03-31; got {self.date[:20]!r}."
            )

    def as_dict(self) -> dict[str, Any]:
        """As plain data; what is empty is left out."""
        texts = {f.name: getattr(self, f.name) for f in fields(self)[:-1]}
        out: dict[str, Any] = {name: text for name, text in texts.items() if text}
        if self.replaces:
            out["replaces"] = [one.as_dict() for one in self.replaces]
        return out

    @classmethod
    def from_dict(cls, data: Any) -> Facts:
        """What a certificate says."""
        try:
            if not isinstance(data, Mapping):
                raise TypeError
            replaces = tuple(Replaced(**one) for one in data.get("replaces", ()))
            facts = cls(**{**data, "replaces": replaces})
            if facts.as_dict() != data:
                raise ValueError
        except (TypeError, ValueError):  # a ReleaseError is a ValueError
            raise ReleaseError(UNREADABLE) from None
        return facts


NO_FACTS = Facts()


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
