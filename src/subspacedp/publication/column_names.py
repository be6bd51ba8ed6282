"""What the name of a column says about it, and how names are written in YAML and files."""

from __future__ import annotations

import re
import unicodedata

from subspacedp.publication.reading import plain_scalar

__all__ = [
    "AGE_WORDS",
    "AREA_WORDS",
    "COUNT_WORDS",
    "ID_WORDS",
    "free",
    "has_word",
    "is_code",
    "quoted",
    "safe_name",
    "unwritable",
]

ID_WORDS = {"id", "uuid", "guid", "pid", "ssn", "pin", "person", "respondent", "member", "patient"}
AREA_WORDS = {"area", "block", "county", "district", "fips", "geo", "geoid", "place", "region"}
AREA_WORDS |= {"state", "tract", "zip", "zone"}
CODE_WORDS = {"code", "fips", "geoid", "id", "zip"}  # at the end of a name: no count
AGE_WORDS = {"age", "alter", "edad", "eta", "idade", "leeftijd"}
COUNT_WORDS = {"count", "counts", "n", "pop", "population", "freq", "frequency", "total", "persons"}
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


def has_word(name: str, words: set[str]) -> bool:
    """Whether one of the words is in a name such as person_id, personId or PERSON ID."""
    parts = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    plain = unicodedata.normalize("NFKD", parts).casefold()
    return any(part in words for part in re.findall(r"[a-z]+", plain))


def is_code(name: str) -> bool:
    """Whether a name ends as those of codes do."""
    parts = re.findall(r"[a-z]+", name.casefold())
    return bool(parts) and (parts[-1] in CODE_WORDS or name.lower().endswith("geoid"))


def free(name: str, taken: set[str], end: str = "_") -> str:
    """The name, with endings until it is none of those taken."""
    while name in taken:
        name += end
    return name


def quoted(value: str | int) -> str:
    r"""A text or whole number as YAML: plain where that is safe, in double quotes otherwise.

    >>> print(quoted("county"), quoted("no"), quoted("a: b"), quoted("007"), quoted(7))
    county "no" "a: b" "007" 7
    """
    if isinstance(value, int):
        return str(int(value))
    if PLAIN.fullmatch(value) and plain_scalar(value) == (value, False):
        return value
    return f'"{"".join(_escaped(character) for character in value)}"'


def _escaped(character: str) -> str:
    if character in {'"', "\\"}:
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def unwritable(character: str) -> bool:
    """Whether it is half of a character, and no text in UTF-8."""
    return unicodedata.category(character) == "Cs"


def safe_name(name: str) -> str:
    """The name as that of a file."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-")
    return safe or "column"
