"""Reading the files that ship with the package."""

from __future__ import annotations

import csv
from importlib.resources import files

__all__ = ["rows_of"]


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a shipped CSV file."""
    text = (files("subspacedp.datasets") / name).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))
