"""What the documentation shows must run, and what it names must exist."""

import re
from pathlib import Path

import pytest

from subspacedp.mechanisms import MECHANISMS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_run(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), space)  # noqa: S102 - our own pages


def test_the_readme_has_code_to_run():
    assert blocks(ROOT / "README.md", "python")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_mechanism_names_proofs_that_exist():
    for mechanism in MECHANISMS.values():
        assert mechanism.proofs
        for note in mechanism.proofs:
            assert (ROOT / "docs" / "proofs" / note).is_file(), note


def test_no_addresses_or_machine_paths_are_committed():
    words = ["/root/", "/home/", "/tm" + "p/", "file://"]
    for path in [*PAGES, *ROOT.glob("*.txt"), *ROOT.glob("*.toml"), ROOT / "Makefile"]:
        text = path.read_text("utf-8")
        for word in words:
            assert word not in text, f"{word} in {path.name}"
