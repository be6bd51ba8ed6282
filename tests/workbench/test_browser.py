"""The workbench in a real browser, as people use it: by mouse, and by keyboard alone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.workbench.conftest import SPECIFICATION

from subspacedp.publication import plan
from subspacedp.release import verify_folder
from subspacedp.workbench.page import ends, figure

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 60_000  # milliseconds, on a busy machine
expect.set_options(timeout=PATIENCE)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="NO BROWSER: `chromium` is not on the path, so the workbench was NOT tested in one.",
)

Opened = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Open the page; at the end nothing was complained about, and nothing asked for elsewhere."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []
    asked: list[str] = []
    own: list[str] = []

    def open_page(address: str, *, width: int = 1280, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        own.append(address.split("?")[0])
        context.on("request", lambda request: asked.append(request.url))
        tab = context.new_page()
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.goto(address)
        expect(tab).to_have_url(re.compile(re.escape(own[-1]) + r"[\w-]+/$"))
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert not [text for text in wrong if "ERR_" not in text]
    assert not [url for url in asked if not url.startswith((*own, "data:", "blob:"))]


def planned(tab: Page) -> None:
    """Wait until the page shows the plan of what it says now."""
    expect(tab.locator("body")).not_to_have_class(re.compile("busy"))
    expect(tab.locator("#facts")).to_be_visible(timeout=PATIENCE)


def same_numbers(tab: Page, path: Path) -> None:
    """The page's errors are those that the command line plans from the file."""
    lines = plan(path).as_dict()["releases"][0]["errors"]
    rows = tab.locator("[data-region=see] table.errors").first.locator("tbody tr")
    shown = [
        (
            row.locator("th").inner_text(),
            row.locator("td").nth(0).inner_text(),
            row.locator("td").nth(1).inner_text(),
        )
        for row in rows.all()
    ]
    assert shown == [(line["what"], f"{line['figures']:,}", ends(line)) for line in lines]


def test_from_an_empty_page_to_a_verified_release(
    workbench: Any, opened: Opened, folder: Path
) -> None:
    tab = opened(workbench("--out", "mine.yaml").address)
    expect(tab.locator("#faults")).to_contain_text("axes")
    for name, kind, labels, levels in [
        ("county", "list", "counties.csv", "state"),
        ("sex", "labels", "F, M", ""),
        ("age", "bins", "0, 18, 65", ""),
    ]:
        tab.fill("#axis-name", name)
        tab.select_option("#axis-kind", kind)
        field = {"list": "#axis-path", "labels": "#axis-labels", "bins": "#axis-bins"}[kind]
        tab.fill(field, labels)
        if kind == "list":
            tab.fill("#axis-levels", levels)
        tab.click("#add-axis-button")
        expect(tab.locator(".axes")).to_contain_text(name)
    planned(tab)
    tab.get_by_role("button", name="state × sex: left out").click()
    tab.get_by_role("button", name="state × sex: published").first.wait_for()
    square = tab.locator(".matrix").get_by_role("button", name="state: left out", exact=True)
    square.click()
    tab.locator(".matrix").get_by_role(
        "button", name="state: published with noise", exact=True
    ).click()
    tab.locator(".matrix").get_by_role("button", name="state: held exactly", exact=True).wait_for()
    tab.fill("#source", "persons.csv")
    tab.press("#source", "Tab")
    tab.fill("#amount", "0.8")
    tab.press("#amount", "Tab")
    expect(tab.locator("#facts")).to_contain_text("ε = 0.8")
    planned(tab)
    tab.click("#save")
    expect(tab.locator("#notice")).to_contain_text("Saved as")
    same_numbers(tab, folder / "mine.yaml")

    tab.click("#dry-run")
    expect(tab.locator(".work")).to_contain_text("The data fit")
    assert "Confidential" in tab.locator(".work").inner_text()
    assert not (folder / "release").exists()
    tab.click("#ask")
    question = tab.locator(".card.ask")
    expect(question).to_contain_text("Spend ε = 0.8")
    expect(question).to_contain_text("state")
    tab.click("#unask")
    assert not (folder / "release").exists()
    tab.click("#ask")
    tab.click("#release")
    expect(tab.locator("#published")).to_contain_text("Published and verified")
    assert verify_folder(folder / "release").ok
    with tab.context.expect_page() as new:
        tab.get_by_role("link", name="Open the report").click()
    expect(new.value.locator("h1")).to_be_visible()
    assert "What is protected" in new.value.content()
    assert new.value.evaluate("self.origin") == "null"  # its scripts are not of the workbench
    tab.bring_to_front()


def test_both_ways_between_form_and_yaml_with_errors_at_the_line(
    workbench: Any, opened: Opened, folder: Path
) -> None:
    tab = opened(workbench("publication.yaml").address)
    planned(tab)
    same_numbers(tab, folder / "publication.yaml")
    yaml = tab.locator("#yaml")
    tab.select_option("#decimals", "real")
    expect(yaml).to_have_value(re.compile(r"publish: \{margins"))
    assert "# published exactly" in yaml.input_value()
    yaml.fill(yaml.input_value().replace("epsilon: 0.5", "epsilon: 0.25"))
    expect(tab.locator("#amount")).to_have_value("0.25")
    expect(tab.locator("#amount-words")).to_have_text("ε = 0.25")
    yaml.fill(yaml.input_value().replace("[[state]]", "[[stat]]"))
    expect(tab.locator("#faults")).to_contain_text("stat")
    tab.get_by_role("button", name="Show line 8").click()
    chosen = tab.evaluate("getSelection().toString()")
    assert chosen.startswith("hold: [[stat]]")
    broken = yaml.input_value().replace("[[stat]]", "[[state]")
    yaml.fill(broken)
    expect(tab.locator("#design")).to_contain_text("The YAML cannot be read")
    expect(tab.locator("#amount")).to_be_disabled()
    tab.reload()
    assert yaml.input_value() == broken
    saved = (folder / "publication.yaml").read_text("utf-8")
    for _ in range(4):
        before = yaml.input_value()
        if before == saved:
            break
        tab.click("#undo")
        expect(yaml).not_to_have_value(before)
    expect(yaml).to_have_value(saved)
    planned(tab)


@pytest.mark.parametrize("privacy", ["epsilon: 0.5", "rho: 0.02", "epsilon: 2, delta: 1e-6"])
def test_wherever_the_slider_is_the_figures_are_those_of_the_command_line(
    workbench: Any, opened: Opened, folder: Path, privacy: str
) -> None:
    path = folder / "publication.yaml"
    path.write_text(SPECIFICATION.replace("epsilon: 0.5", privacy), "utf-8")
    tab = opened(workbench("publication.yaml").address)
    planned(tab)
    slider = tab.locator("#slider")
    for key in ("PageUp", "ArrowLeft", "PageDown"):
        words = tab.locator("#amount-words").inner_text()
        slider.press(key)
        expect(tab.locator("#amount-words")).not_to_have_text(words)
        expect(tab.locator("#facts")).to_contain_text(tab.locator("#amount-words").inner_text())
        planned(tab)
        tab.click("#save-top")
        expect(tab.locator("#save-top")).to_be_disabled()
        same_numbers(tab, path)


def test_levels_groupings_dates_and_sums_have_controls_in_step_with_the_text(
    workbench: Any, opened: Opened, folder: Path
) -> None:
    codes = (folder / "counties.csv").read_text("utf-8").splitlines()
    districts = ["district", "N", "S", "N", "S", ""]
    rows = [f"{line},{where}\n" for line, where in zip(codes, districts, strict=True)]
    (folder / "counties.csv").write_text("".join(rows), "utf-8")
    tab = opened(workbench("publication.yaml").address)
    planned(tab)
    yaml = tab.locator("#yaml")
    tab.locator("#steps-1 summary").click()
    tab.get_by_label("district, a column of the code list").select_option("groupings")
    expect(yaml).to_have_value(re.compile(r"levels: \[state\], groupings: \[district\]"))
    tab.get_by_role("button", name="district × sex: left out").click()
    expect(yaml).to_have_value(re.compile(r"\[\[state, sex\], \[age\], \[district, sex\]\]"))
    tab.get_by_role("button", name="district: left out", exact=True).click()
    tab.get_by_role("button", name="district: published with noise", exact=True).first.click()
    expect(yaml).to_have_value(re.compile(r"hold: \[\[state\], \[district\]\]"))
    expect(tab.locator("[data-region=see]")).to_contain_text("district × sex")
    planned(tab)
    tab.click("#save-top")
    expect(tab.locator("#save-top")).to_be_disabled()
    same_numbers(tab, folder / "publication.yaml")

    tab.select_option("#axis-kind", "dates")
    expect(tab.locator("#axis-labels")).to_be_hidden()
    tab.fill("#axis-name", "visited")
    tab.select_option("#axis-by", "month")
    tab.fill("#axis-first", "2023-01")
    tab.fill("#axis-last", "2023-12")
    tab.click("#add-axis-button")
    expect(yaml).to_have_value(re.compile(r'visited: \{by: month, first: "2023-01"'))
    tab.check("#coarser-quarter-4")
    tab.get_by_role("button", name="quarter: left out", exact=True).click()
    expect(yaml).to_have_value(re.compile(r"\[quarter\]\]"))
    tab.select_option("#by-4", "hour")
    expect(yaml).to_have_value(re.compile(r"visited: \{by: hour\}"))
    yaml.fill(yaml.input_value().replace("{by: hour}", "{by: year, first: 2020, last: 2022}"))
    expect(tab.locator("#first-4")).to_have_value("2020")
    expect(tab.locator("#by-4")).to_have_value("year")

    tab.locator("#add-sum-more summary").click()
    for name, value in [("name", "income"), ("lower", "0"), ("upper", "9000"), ("share", "0.3")]:
        tab.fill(f"#sum-{name}", value)
    tab.press("#sum-share", "Enter")
    expect(yaml).to_have_value(re.compile(r"sums: \{income: \{lower: 0, upper: 9000, share: 0.3"))
    tab.fill("#sum-1-unit", "100")
    tab.press("#sum-1-unit", "Tab")
    expect(yaml).to_have_value(re.compile(r"share: 0.3, unit: 100"))
    planned(tab)
    expect(tab.locator("[data-region=see]")).to_contain_text("income")
    tab.click("#remove-sum-1")
    expect(yaml).not_to_have_value(re.compile("sums:"))
    tab.click("#undo")
    expect(yaml).to_have_value(re.compile("sums:"))
    assert not Axe().run(tab).violations_count


def test_weights_inequalities_and_wide_tables_have_controls_in_step_with_the_text(
    workbench: Any, opened: Opened, folder: Path
) -> None:
    tab = opened(workbench("publication.yaml").address)
    planned(tab)
    yaml = tab.locator("#yaml")
    tab.check("#weigh")
    tab.fill("#weight-cells", "3")
    tab.press("#weight-cells", "Tab")
    expect(yaml).to_have_value(re.compile(r"weights: \[3, 1, 1\]"))
    tab.get_by_role("button", name="county × sex: left out").click()
    expect(yaml).to_have_value(re.compile(r"weights: \[3, 1, 1, 1\]"))
    planned(tab)
    tab.click("#save-top")
    expect(tab.locator("#save-top")).to_be_disabled()
    same_numbers(tab, folder / "publication.yaml")
    tab.check("#known")
    tab.locator("#add-known-more summary").click()
    tab.fill("#at_most-what", "state sex")
    tab.fill("#at_most-most", "2000")
    tab.press("#at_most-most", "Enter")
    expect(yaml).to_have_value(
        re.compile(r"inequalities: \{at_most: \[\{margin: \[state, sex\], limit: 2000")
    )
    planned(tab)
    expect(tab.locator("#at_most-most")).to_have_value("")
    tab.click("#undo")
    expect(tab.locator("#remove-limit-1")).to_have_count(0)
    tab.click("#redo")
    tab.click("#remove-limit-1")
    expect(yaml).to_have_value(re.compile(r"inequalities: \{\}"))
    tab.locator("#more-3 summary").click()
    tab.fill("#title-3", "Age in years")
    tab.press("#title-3", "Tab")
    expect(yaml).to_have_value(re.compile(r"age: \{bins: \[0, 18, 65\], title: \"Age in years\"\}"))
    tab.locator("#facts-more summary").click()
    tab.fill("#creator", "An office")
    tab.press("#creator", "Tab")
    expect(yaml).to_have_value(re.compile(r"publication: \{creator: .?An office.?\}"))
    planned(tab)
    assert not Axe().run(tab).violations_count

    tab.select_option("#data-kind", "counts")
    expect(yaml).to_have_value(re.compile(r"data: \{counts: \{source: persons\.csv\}\}"))
    tab.fill("#axis-name", "race")
    tab.select_option("#axis-kind", "columns")
    tab.fill("#axis-columns", "white: pop_white, other: pop_other")
    tab.click("#add-axis-button")
    expect(yaml).to_have_value(re.compile(r"race: \{columns: \{white: pop_white"))
    planned(tab)
    expect(tab.locator("#labels-4")).to_have_value("white: pop_white, other: pop_other")


def test_reload_back_and_a_second_tab_lose_nothing(
    workbench: Any, opened: Opened, folder: Path
) -> None:
    running = workbench("publication.yaml")
    tab = opened(running.address)
    planned(tab)
    tab.fill("#amount", "2")
    tab.press("#amount", "Tab")
    expect(tab.locator("#amount-words")).to_have_text("ε = 2")
    tab.reload()
    expect(tab.locator("#amount-words")).to_have_text("ε = 2")
    tab.goto("about:blank")
    tab.go_back()
    expect(tab.locator("#amount-words")).to_have_text("ε = 2")
    second = tab.context.new_page()
    second.goto(tab.url)
    second.fill("#title", "Of the second tab")
    second.press("#title", "Tab")
    expect(tab.locator("#yaml")).to_have_value(re.compile("Of the second tab"))
    tab.fill("#amount", "3")
    tab.press("#amount", "Tab")
    expect(second.locator("#yaml")).to_have_value(re.compile(r"epsilon: 3\b"))
    assert "Of the second tab" in second.locator("#yaml").input_value()
    text = tab.locator("#yaml").input_value()
    status, said = running.stop()
    assert status == 130
    assert "publication.yaml.draft" in said
    assert (folder / "publication.yaml").read_text("utf-8") != text
    expect(tab.locator("#said")).to_contain_text("workbench")
    again = opened(workbench("publication.yaml").address)
    assert again.locator("#yaml").input_value() == text
    expect(again.locator("#notice")).to_contain_text("not saved")


def test_before_and_after_side_by_side_and_advice(workbench: Any, opened: Opened) -> None:
    tab = opened(workbench("publication.yaml").address)
    planned(tab)
    errors = tab.locator("[data-region=see] table.errors").first
    before = errors.locator("tbody tr").first.locator("td").nth(1).inner_text()
    tab.click("#keep")
    expect(tab.locator("#side-title")).to_be_visible()
    slider = tab.locator("#slider")
    slider.focus()
    for _ in range(12):
        slider.press("PageUp")
    expect(errors.locator("tbody tr").first).not_to_contain_text(f"\t{before}\t")
    planned(tab)
    largest = re.findall(r"[\d.,]+", before)[-1]
    assert (
        errors.locator("tbody tr").first.locator(".before").inner_text().startswith(f"± {largest}")
    )
    expect(tab.locator("[data-region=side] .good").first).to_be_visible()
    tab.click("#swap")
    expect(tab.locator("#amount-words")).to_have_text("ε = 0.5")
    tab.click("#undo")
    expect(tab.locator("#amount-words")).not_to_have_text("ε = 0.5")
    tab.click("#undo")
    expect(tab.locator("#amount-words")).to_have_text("ε = 0.5")
    planned(tab)
    text = tab.locator("#yaml").input_value()
    tab.get_by_role("button", name="Make this change").first.click()
    expect(tab.locator("#yaml")).not_to_have_value(text)


def test_the_keyboard_alone_suffices(workbench: Any, opened: Opened, folder: Path) -> None:
    tab = opened(workbench("publication.yaml").address)
    planned(tab)
    tab.locator("#slider").focus()
    tab.keyboard.press("ArrowRight")
    expect(tab.locator("#amount-words")).not_to_have_text("ε = 0.5")
    assert tab.evaluate("document.activeElement.id") == "slider"
    tab.locator(".matrix .square[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowRight"):
        tab.keyboard.press(key)
    at = tab.locator(":focus")
    expect(at).to_have_attribute("aria-label", "state × sex: published with noise")
    tab.keyboard.press("Enter")
    expect(at).to_have_attribute("aria-label", "state × sex: held exactly")
    tab.keyboard.press("Space")
    expect(at).to_have_attribute("aria-label", "state × sex: left out")
    tab.locator("#find").fill("sta sex age")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    expect(tab.locator("#yaml")).to_have_value(re.compile(r"\[state, sex, age\]"))
    tab.locator("#axes-title").click()
    tab.keyboard.press("Control+z")
    expect(tab.locator("#yaml")).not_to_have_value(re.compile(r"\[state, sex, age\]"))
    tab.keyboard.press("Control+s")
    expect(tab.locator("#notice")).to_contain_text("Saved")
    planned(tab)
    same_numbers(tab, folder / "publication.yaml")


def test_a_table_that_was_found_keeps_the_focus_when_the_page_is_drawn_anew(
    workbench: Any, opened: Opened
) -> None:
    tab = opened(workbench("publication.yaml").address)
    planned(tab)
    tab.locator("#find").fill("sta sex age")
    tab.keyboard.press("Tab")
    chosen = tab.evaluate("document.activeElement.textContent")
    tab.evaluate("document.querySelector('#find').before = true")
    tab.evaluate("document.querySelector('.matrix .square').click()")
    expect(tab.locator("#find")).not_to_have_js_property("before", True)
    assert chosen == "Publish state × sex × age"
    assert tab.evaluate("document.activeElement.textContent") == chosen


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark"), (1900, "light")])
def test_axe_finds_nothing_and_nothing_runs_off_the_page(
    workbench: Any, opened: Opened, scheme: str, width: int
) -> None:
    tab = opened(workbench("publication.yaml").address, width=width, color_scheme=scheme)
    planned(tab)
    tab.click("#keep")
    tab.click("#audit")
    expect(tab.locator(".work")).to_contain_text("Held exact")
    tab.click("#ask")
    expect(tab.locator("#release")).to_be_visible()
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()
    wide = tab.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0


def test_from_an_empty_page_to_a_release_by_keyboard_alone(
    workbench: Any, opened: Opened, folder: Path
) -> None:
    tab = opened(workbench("--out", "mine.yaml").address)
    keys, at = tab.keyboard, "document.activeElement.id"

    def go(name: str, key: str = "Tab") -> None:
        for _ in range(120):
            if tab.evaluate(at) == name:
                return
            keys.press(key)
        raise AssertionError(f"{name} cannot be reached")

    go("axis-name")
    keys.type("county")
    go("axis-kind")
    keys.type("a code")
    go("axis-path")
    keys.type("counties.csv")
    go("axis-levels")
    keys.type("state")
    keys.press("Enter")
    expect(tab.locator("#labels-1")).to_be_visible()
    go("m-0-0")
    go("m-1-1", "ArrowDown")
    keys.press("Enter")
    expect(tab.locator("#m-1-1")).to_have_class(re.compile("published"))
    go("source")
    keys.press("Control+a")
    keys.type("persons.csv")
    keys.press("Tab")
    expect(tab.locator("#yaml")).to_have_value(re.compile("persons.csv"))
    planned(tab)
    keys.press("Control+s")
    expect(tab.locator("#save-top")).to_be_disabled()
    planned(tab)
    go("dry-run")
    keys.press("Enter")
    expect(tab.locator("#work")).to_contain_text("The data fit")
    assert tab.evaluate(at) == "work"  # where the answer is
    go("ask", "Shift+Tab")
    keys.press("Enter")
    go("release")
    keys.press("Enter")
    expect(tab.locator("#published")).to_contain_text("Published and verified")
    assert tab.evaluate(at) == "work"
    assert verify_folder(folder / "release").ok


def test_many_axes_run_off_no_phone(workbench: Any, opened: Opened, folder: Path) -> None:
    names = [f"question{i}" for i in range(16)]
    keys = {
        "data": {"source": "none.csv", "unit": "row"},
        "axes": {name: {"labels": list(range(30))} for name in names},
        "privacy": {"rho": 0.4},
        "publish": {"cells": False, "decimals": 0, "margins": [names[:2], names[1:3]]},
    }
    (folder / "publication.yaml").write_text(json.dumps(keys), "utf-8")
    tab = opened(workbench("publication.yaml").address, width=390)
    planned(tab)
    assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert tab.locator(".axes").bounding_box()["height"] < 900
    assert tab.locator("#facts strong").first.inner_text() == "ρ = 0.4"


def test_starting_from_data_is_asked_for_and_confidential(
    workbench: Any, opened: Opened, folder: Path
) -> None:
    tab = opened(workbench("persons.csv", "--out", "seen.yaml").address)
    expect(tab.locator("#look")).to_be_visible()
    assert not (folder / "seen.yaml").exists()
    tab.click("#look")
    expect(tab.locator("#notice")).to_contain_text("confidential")
    expect(tab.locator("#yaml")).to_have_value(re.compile("persons.csv"))
    planned(tab)
    assert (folder / "seen.yaml").stat().st_mode & 0o777 == 0o600


def test_data_that_changed_meanwhile_are_not_released(
    workbench: Any, opened: Opened, folder: Path
) -> None:
    tab = opened(workbench("publication.yaml").address)
    planned(tab)
    tab.click("#dry-run")
    expect(tab.locator(".work")).to_contain_text("The data fit")
    with (folder / "persons.csv").open("a", encoding="utf-8") as file:
        file.write("Kent,F,30\n")
    tab.click("#ask")
    tab.click("#release")
    expect(tab.locator("#said")).to_contain_text("The data file changed")
    assert not (folder / "release").exists()
    tab.click("#dry-run")
    expect(tab.locator(".work")).to_contain_text("The data fit")
    tab.click("#ask")
    tab.click("#release")
    expect(tab.locator("#published")).to_be_visible(timeout=PATIENCE)


def test_another_port_of_this_machine_is_not_brought_the_cookie(
    workbench: Any, browser: Browser
) -> None:
    """Another user of the machine may serve one; cookies do not tell ports apart."""
    brought: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            brought.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    context = browser.new_context()
    tab = context.new_page()
    tab.goto(workbench("publication.yaml").address)
    expect(tab.locator("#design")).to_be_visible()
    assert context.cookies()
    with HTTPServer(("127.0.0.1", 0), Other) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        other = context.new_page()
        other.goto(f"http://127.0.0.1:{server.server_port}")
        other.evaluate("fetch('/again', {credentials: 'include'})")
        other.evaluate("fetch('/do', {credentials: 'include', method: 'GET'})")
        server.shutdown()
    context.close()
    assert len(brought) >= 3
    assert not any(brought)


def test_nothing_of_the_data_is_in_addresses_logs_or_the_browsers_storage(
    workbench: Any, opened: Opened, folder: Path
) -> None:
    running = workbench("publication.yaml")
    tab = opened(running.address)
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url.removeprefix(tab.url)))
    planned(tab)
    tab.click("#audit")
    expect(tab.locator(".work.confidential")).to_contain_text("Held exact")
    tab.click("#ask")
    tab.click("#release")
    expect(tab.locator("#published")).to_be_visible()
    assert asked
    assert {re.sub(r"\d+$", "N", path) for path in asked} <= {"do", "news?after=N"}
    kept = "[localStorage.length, sessionStorage.length, document.cookie, history.length]"
    assert tab.evaluate(kept)[:3] == [0, 0, ""]
    assert not tab.evaluate("caches.keys()")
    assert not tab.evaluate("indexedDB.databases()")
    _, said = running.stop()
    assert said == "subspacedp: Stopped. Nothing was spent.\n"


def test_figures_are_short() -> None:
    assert [figure(v) for v in (0, 0.01234, 3.14159, 99.96, 1234.5, 5e6)] == [
        *("0", "0.0123", "3.14", "100", "1,234", "5,000,000")
    ]
