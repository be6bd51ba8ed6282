"""Blocks small enough that a table of 81,180 cells has several."""

import pytest

from subspacedp.blocks import memory


@pytest.fixture(autouse=True)
def blocks_of(monkeypatch):
    """Blocks of 9,900 cells, or of as many as a test asks for."""

    def ask(cells):
        monkeypatch.setattr(memory, "LARGEST", cells)

    ask(9_900)
    return ask
