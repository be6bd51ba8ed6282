"""The documentation site: it builds without a warning, and loads nothing from anywhere else."""

import csv
import os
import re
import shutil
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from pkgutil import resolve_name

import griffe
import pytest
from playwright.sync_api import sync_playwright
from website.drawings import DRAWINGS, WAY, layers
from website.figures import figures
from website.hooks import MARK, public_names
from website.parameters import Frozen, split_names

import subspacedp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Attributes by which a page loads something while it is read; links of readers are not among them.
LOADS = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}


class Loaded(HTMLParser):
    """What a page loads."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attributes):
        address = dict(attributes).get(LOADS.get(tag, ""))
        if address:
            self.addresses.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built as `make docs` does it, with pages, anchors, navigation and names checked by MkDocs."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_the_documentation_is_on_the_site(site):
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix(".html")
        if name.name == "README.html":  # the page of its folder
            name = name.with_name("index.html")
        assert (site / name).is_file(), name


def test_pages_load_nothing_from_other_hosts(site):
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text("utf-8"))
        assert loaded.addresses
        for address in loaded.addresses:
            assert not re.match(r"(https?:)?//", address), f"{page.name}: {address}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text("utf-8"))


@pytest.mark.skipif(
    CHROMIUM is None,
    reason="NO BROWSER: `chromium` is not on the path, so searching the site was NOT tested.",
)
@pytest.mark.parametrize("page", ["index.html", "api/tables.html"])
def test_pages_are_searched_without_a_server(site, page):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page()
        asked = []
        opened.on("request", lambda request: asked.append(request.url))
        opened.goto((site / page).as_uri())
        opened.locator(".md-search__input").first.focus()
        ready = opened.locator(".md-search-result__meta", has_text="Type to start searching")
        ready.wait_for(state="attached")  # the index is there
        opened.keyboard.type("controlled rounding")
        opened.locator(".md-search-result__link").first.click(timeout=30_000)
        opened.wait_for_url("**/*h=controlled*")
        assert "rounding" in opened.locator("article").inner_text().lower()
        browser.close()
    assert all(address.startswith("file:") for address in asked)


def test_every_public_name_has_an_entry(site):
    body = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]  # behind four lines of header
    known = {line.split(" ")[0] for line in zlib.decompress(body).decode().splitlines()}
    modules = [
        found for page in (DOCS / "api").glob("*.md") for found in MARK.findall(page.read_text())
    ]
    for module in ["subspacedp", *modules]:
        missing = set(public_names(module).values()) - known
        assert not missing, module


def test_parameters_that_share_a_paragraph_have_their_own_types(site):
    page = (site / "api" / "release.html").read_text("utf-8")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page[page.index("least_budget") :]))
    assert "decimals ( int | None , default: None )" in text
    assert "capped ( bool , default: False )" in text


def test_only_parameters_are_split():
    before, after = "Of a, b.\n\nParameters\n----------\n", "\nc\n\nNotes\n-----\nd, e\n"
    text = "\n    Both.\n\n    More."
    split = f"{before}a{text}\n*b{text}{after}"
    assert split_names(f"{before}a, *b{text}{after}") == split
    assert split_names("One line.") == "One line."


def test_the_reference_knows_the_parameters_of_frozen_classes():
    known = griffe.load(
        "subspacedp.tables.margin",
        search_paths=[str(ROOT / "src")],
        extensions=griffe.load_extensions(Frozen()),
    )
    assert [one.name for one in known["Margin"].parameters] == ["self", "axes", "steps"]


def test_every_layer_that_people_use_has_a_page():
    inside = {
        "arrays",
        "arrow",
        "balls",
        "blocks",
        "cli",
        "demo",
        "ellipsoids",
        "frozen",
        "lazy",
        "parallel",
        "special",
        "stated",
        "workbench",
    }
    for row in layers(ROOT):
        for name in row:
            assert (DOCS / "api" / f"{name}.md").is_file() != (name in inside), name


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_are_those_of_the_code(name):
    drawn = DRAWINGS[name](ROOT)
    assert (DOCS / "assets" / name).read_text("utf-8") == drawn, (
        f"`python -m website.drawings` draws {name} anew."
    )


def words_of(figure):
    return sorted(re.findall(r"<text[^>]*>([^<]*)</text>", figure.read_text("utf-8")))


def test_figures_of_the_demonstrations_are_drawn_by_the_build(site):
    shown = set()
    for page in (DOCS / "demonstrations").glob("*.md"):
        shown |= set(re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8")))
    drawn = {figure.name: figure for figure in figures(ROOT)}
    assert shown == set(drawn)
    assert len(shown) >= 8
    for name, figure in drawn.items():
        assert (site / "demonstrations" / name).read_bytes() == figure.read_bytes()
        # Machines differ in their fonts, and so in places of letters; not in what is written.
        assert words_of(DOCS / "demonstrations" / name) == words_of(figure), (
            f"`python -m website.figures` draws {name} anew."
        )


def test_the_gallery_is_drawn_from_the_table_on_its_page():
    page = (DOCS / "demonstrations" / "gallery.md").read_text("utf-8")
    with (DOCS / "demonstrations" / "gallery.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = {line.split(" | ")[0]: line for line in re.findall(r"^\| (.+) \|$", page, re.M)}
    head = lines["query"].split(" | ")
    assert len(rows) > 100
    for row in rows:
        name = row["mechanism"] if row["proven"] == "True" else f"pure: {row['mechanism']}"
        shown = lines[row["query"]].split(" | ")[head.index(name)]
        if row["times_best"]:
            assert float(shown) == pytest.approx(float(row["times_best"]), rel=0.006), row
        else:
            assert shown == "–", row


def test_the_layers_drawn_are_those_that_exist():
    drawn = {name for row in layers(ROOT) for name in row}
    source = ROOT / "src" / "subspacedp"
    there = {p.stem for p in source.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert drawn == there - {"__init__"}


@pytest.mark.parametrize("path", WAY.values())
def test_the_way_of_the_data_names_what_exists(path):
    assert resolve_name(path) is not None


def test_the_root_lists_modules_that_have_pages():
    assert set(subspacedp.__all__) - set(public_names("subspacedp")) <= {
        page.stem for page in (DOCS / "api").glob("*.md")
    }
