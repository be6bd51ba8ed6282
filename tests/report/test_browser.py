"""The page in a real browser: what a reader sees, and that nothing leaves the machine."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright
from tests.report.conftest import HOSTILE, margins_alone, with_levels

import subspacedp as sdp
from subspacedp.report import ReportNotes, write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="NO BROWSER: `chromium` is not on the path, so the report page was NOT tested in one.",
)

needs_pdftotext = pytest.mark.skipif(
    shutil.which("pdftotext") is None,
    reason="`pdftotext` is not on the path, so what the report prints was NOT tested.",
)

Opened = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(
    tmp_path_factory: pytest.TempPathFactory,
    page: str,
    table: sdp.Table,
    release: sdp.Release,
    hostile: sdp.Release,
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    notes = ReportNotes(
        about="What it is.", contact="Us.", budget=["All spent."], margins={"a": [("county",)]}
    )
    pages = {
        "plain": page,
        "hostile": write_report(hostile, title=HOSTILE[0]),
        "several": write_report({"a": release, "b": hostile}, title="Both", notes=notes),
        "levels": write_report(
            {"levels": with_levels(table), "margins": margins_alone(table)}, title="Levels"
        ),
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture
def opened(browser: Browser, files: dict[str, Path]) -> Iterator[Opened]:
    """Open a page; at the end, it must not have complained, asked for anything or said anything."""
    contexts, wrong, asked, allowed = [], [], [], set()

    def open_page(name: str = "plain", *, width: int = 1100, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        address = files[name].as_uri()
        allowed.add(address)
        context.on("request", lambda request: asked.append(request.url))
        context.route(
            lambda url: url != address and not url.startswith("blob:"), lambda route: route.abort()
        )
        tab = context.new_page()
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        tab.goto(address)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
    assert {url for url in asked if not url.startswith("blob:")} <= allowed


CELLS = "[data-cells=cellsrows]"  # the table of cells, of those that the page has


def rows(tab: Page) -> list[list[str]]:
    """The cells of the table that are shown."""
    return tab.evaluate(
        "[...document.querySelectorAll('[data-cells=cellsrows] tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )


def status(tab: Page) -> str:
    return tab.locator(f"{CELLS} [role=status]").inner_text()


def test_it_renders(opened: Opened) -> None:
    tab = opened()
    assert tab.title() == "Counties"
    assert tab.locator("svg[role=img]").count() >= 2
    for drawing in tab.locator("svg[role=img]").all():
        box = drawing.bounding_box()
        assert box is not None
        assert box["width"] > 250
        assert box["height"] > 80
    assert status(tab) == "Rows 1 to 25 of 120."


def test_script_and_template_show_the_same_rows(opened: Opened) -> None:
    without = opened(java_script_enabled=False)
    static = without.locator(f"{CELLS} tbody tr").all_inner_texts()
    assert static == opened().locator(f"{CELLS} tbody tr").all_inner_texts()
    assert len(static) == 25
    assert without.locator(f"{CELLS} input[type=search]").is_hidden()


def test_search_filters_rows_by_all_words(opened: Opened) -> None:
    tab = opened()
    tab.locator(CELLS).get_by_label("Search the labels").fill("county 17 il")
    assert [row[:3] for row in rows(tab)] == [
        ["IL county 17", "IL", "F"],
        ["IL county 17", "IL", "M"],
    ]
    assert status(tab) == "Rows 1 to 2 of 2 found among 120."
    tab.locator(CELLS).get_by_label("Search the labels").fill("nowhere")
    assert rows(tab) == []
    assert status(tab) == "No row has these words."
    tab.locator(CELLS).get_by_label("Search the labels").fill("")
    assert len(rows(tab)) == 25


def test_sorting_goes_up_down_and_back(opened: Opened, release: sdp.Release) -> None:
    tab = opened()
    before = rows(tab)
    button = tab.locator(CELLS).get_by_role("button", name="value")
    values = sorted(release.values.reshape(-1).tolist())
    for wanted, told in ((values, "ascending"), (values[::-1], "descending")):
        button.click()
        assert [row[3] for row in rows(tab)] == [f"{v:,}" for v in wanted[:25]]
        assert tab.locator(f"{CELLS} th[aria-sort]").get_attribute("aria-sort") == told
    button.click()
    assert rows(tab) == before
    assert tab.locator(f"{CELLS} th[aria-sort]").count() == 0
    tab.locator(CELLS).get_by_role("button", name="county").click()
    # Numbers within labels are compared as numbers: 2 comes before 10.
    assert [row[0] for row in rows(tab)[:6:2]] == [f"DE county {i}" for i in range(3)]


def test_pages_turn(opened: Opened) -> None:
    tab = opened()
    back, on = (
        tab.locator(CELLS).get_by_role("button", name="Previous"),
        tab.locator(CELLS).get_by_role("button", name="Next"),
    )
    assert back.is_disabled()
    for _ in range(4):
        on.click()
    assert status(tab) == "Rows 101 to 120 of 120."
    assert on.is_disabled()
    assert len(rows(tab)) == 20
    back.click()
    assert status(tab) == "Rows 76 to 100 of 120."


def test_the_download_is_the_rows_found_in_their_order(
    opened: Opened, release: sdp.Release
) -> None:
    tab = opened()
    found = downloaded(tab)
    columns = release.columns()
    assert list(found[0]) == [*columns, "lower", "upper"]
    for name in ("county", "state", "sex"):
        assert [row[name] for row in found] == columns[name].tolist()
    assert [int(row["value"]) for row in found] == columns["value"].tolist()
    assert [float(row["stderr"]) for row in found] == columns["stderr"].tolist()

    tab.locator(CELLS).get_by_label("Search the labels").fill("il county 1")
    tab.locator(CELLS).get_by_role("button", name="value").click()
    some = downloaded(tab)
    assert {row["state"] for row in some} == {"IL"}
    values = [int(row["value"]) for row in some]
    assert len(values) == 22
    assert values == sorted(values)


def downloaded(tab: Page) -> list[dict[str, str]]:
    with tab.expect_download() as waiting:
        tab.locator(CELLS).get_by_role("button", name="Download as CSV").click()
    assert waiting.value.suggested_filename == "cells.csv"
    text = Path(waiting.value.path()).read_text("utf-8")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_hostile_labels_are_shown_as_text(opened: Opened) -> None:
    tab = opened("hostile")
    assert [row[0] for row in rows(tab)] == HOSTILE
    assert tab.locator("h1").inner_text() == HOSTILE[0]
    assert tab.locator("img, main b, main script:not([type])").count() == 0
    assert tab.locator("svg text", has_text="<script>alert(1)").count() == 1
    assert [row["<b>place</b>"] for row in downloaded(tab)] == HOSTILE


@pytest.mark.parametrize("name", ["several", "hostile", "levels"])
def test_no_page_scrolls_sideways(opened: Opened, name: str) -> None:
    tab = opened(name, width=360)
    tab.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    for width in (360, 768, 1100):
        tab.set_viewport_size({"width": width, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["several", "levels"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opened: Opened, scheme: str, name: str) -> None:
    tab = opened(name, color_scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    found = Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()


def test_axe_finds_nothing_on_a_phone(opened: Opened) -> None:
    found = Axe().run(opened(width=360))
    assert found.violations_count == 0, found.generate_report()


COLOURS = """() => {
  const of = (query, property) => getComputedStyle(document.querySelector(query))[property];
  return {
    paper: of('body', 'backgroundColor'), ink: of('body', 'color'),
    text: of('svg text', 'fill'), mark: of('svg circle', 'fill'),
    line: of('svg line[stroke-dasharray]', 'stroke'),
  };
}"""


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_dark_changes_the_colours_and_keeps_the_contrast(opened: Opened) -> None:
    light, dark = (opened(color_scheme=s).evaluate(COLOURS) for s in ("light", "dark"))
    assert all(light[part] != dark[part] for part in light)
    assert luminance(light["paper"]) > 0.9
    assert luminance(dark["paper"]) < 0.05
    for colours in (light, dark):
        for part in ("ink", "text"):
            assert contrast(colours[part], colours["paper"]) >= 7
        for part in ("mark", "line"):  # WCAG 1.4.11: graphics need 3 to 1
            assert contrast(colours[part], colours["paper"]) >= 3


def test_print_is_black_on_white_and_complete(opened: Opened) -> None:
    tab = opened(color_scheme="dark")
    tab.evaluate(
        "addEventListener('beforeprint', () => { window.seen = {"
        " open: document.querySelectorAll('details:not([open])').length,"
        " rows: document.querySelectorAll('[data-cells=cellsrows] tbody tr').length }; })"
    )
    tab.locator(CELLS).get_by_role("button", name="Next").click()
    document = tab.pdf(prefer_css_page_size=True)
    assert document.startswith(b"%PDF-")
    assert tab.evaluate("window.seen") == {"open": 0, "rows": 100}
    assert tab.locator("details[open]").count() == 0
    assert len(rows(tab)) == 25

    tab.emulate_media(media="print")
    colours = tab.evaluate(COLOURS)
    assert (colours["paper"], colours["ink"]) == ("rgb(255, 255, 255)", "rgb(0, 0, 0)")
    assert colours["text"] == "rgb(0, 0, 0)"
    assert tab.locator("nav").is_hidden()
    assert tab.locator(f"{CELLS} input[type=search]").is_hidden()


def test_a_phone_shows_the_value_first(opened: Opened) -> None:
    """Beside its labels, and both within the screen."""
    places = opened(width=360).evaluate(
        "[...document.querySelector('[data-cells=cellsrows] tbody tr').cells]"
        ".map(cell => cell.getBoundingClientRect()).map(box => [box.left, box.right])"
    )
    value = places.pop(3)
    assert all(value[1] <= left and right <= 360 for left, right in places)


def printed(tab: Page, path: Path) -> list[str]:
    """The text of each page on paper."""
    tab.pdf(path=path, format="A4", prefer_css_page_size=True)
    return subprocess.run(
        ["pdftotext", "-layout", path, "-"], check=True, capture_output=True, text=True
    ).stdout.split("\f")


@needs_pdftotext
def test_every_printed_page_of_a_table_has_its_header(opened: Opened, tmp_path: Path) -> None:
    pages = printed(opened(), tmp_path / "page.pdf")
    with_rows = [text for text in pages if re.search(r"IL county \d+ +IL +[FM] ", text)]
    assert len(with_rows) > 1
    assert all(re.search("county +state +sex +value", text) for text in with_rows)


@needs_pdftotext
def test_a_board_has_two_pages_and_the_rest_is_annex(opened: Opened, tmp_path: Path) -> None:
    pages = printed(opened(), tmp_path / "page.pdf")
    assert "At a glance" in pages[0]
    assert "Estimates with their intervals" in pages[2]
    assert "Estimates with their intervals" not in pages[0] + pages[1]


def test_the_policy_stops_what_the_page_does_not_bring(
    browser: Browser, files: dict[str, Path]
) -> None:
    tab = browser.new_page()
    ended: list[str] = []
    tab.on("requestfailed", lambda request: ended.append(f"{request.url} {request.failure}"))
    tab.on("requestfinished", lambda request: ended.append(request.url))
    tab.goto(files["plain"].as_uri())
    ran = tab.evaluate(
        """async () => {
          const added = document.createElement('script');
          added.textContent = 'window.ran = true';
          document.body.append(added);
          await new Promise((done) => {
            const image = new Image();
            image.onload = image.onerror = done;
            image.src = 'file:///nothing.png';
          });
          return window.ran === true;
        }"""
    )
    assert not ran
    assert ended == [files["plain"].as_uri(), "file:///nothing.png csp"]
    tab.close()
