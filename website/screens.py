"""Pictures of the workbench, taken in a browser from an example of public labels.

`python -m website.screens` takes them into `docs/assets/`. It needs Chromium, which the build of
the site does not ask for: it shows those that are there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PLACE = Path("docs") / "assets"
SCREENS = ("design", "errors", "simulate", "carry", "phone")
PATIENCE = 120_000  # milliseconds
COUNTIES = {
    "DE": ("Kent", "New Castle", "Sussex"),
    "IL": ("Cook", "DuPage", "Kane", "Lake", "Will"),
    "RI": ("Bristol", "Newport", "Providence", "Washington"),
}
SPECIFICATION = """\
title: Persons by county, sex and age
about: {persons: 400000}                 # from the register of residents, which is public
data: {source: persons.csv, unit: row}
axes:
  county: {labels: counties.csv, levels: [state]}
  sex: {labels: [F, M]}
  age: {bins: [0, 5, 18, 25, 45, 65, 85]}
hold: [[state]]                          # published exactly, by law
privacy: {epsilon: 0.5, neighbours: replace-one}
publish: {decimals: 0, margins: [[state, sex], [state, age], [county, sex]], to: release/}
"""


@contextmanager
def example() -> Iterator[str]:
    """The address of a workbench on the example; it is stopped at the end."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        lines = [f"{c},{state}\n" for state, inside in COUNTIES.items() for c in inside]
        (folder / "counties.csv").write_text("county,state\n" + "".join(lines), "utf-8")
        (folder / "publication.yaml").write_text(SPECIFICATION, "utf-8")
        command = shutil.which("subspacedp", path=str(Path(sys.executable).parent)) or "subspacedp"
        process = subprocess.Popen(  # noqa: S603 - our own command
            [command, "workbench", "--no-open", "publication.yaml"],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            found = re.search(r"http://\S+", process.stdout.readline() if process.stdout else "")
            if found is None:
                raise RuntimeError("The workbench did not start.")
            yield found[0]
        finally:
            process.terminate()
            process.communicate(timeout=60)


def take(folder: Path) -> None:
    """Take all pictures into a folder."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with example() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        def opened(width: int, height: int, **options: Any) -> Any:
            context = browser.new_context(viewport={"width": width, "height": height}, **options)
            context.set_default_timeout(PATIENCE)
            tab = context.new_page()
            tab.goto(address)
            tab.wait_for_selector("#facts")
            tab.wait_for_selector(".maps")
            tab.wait_for_selector("body:not(.busy)")
            return tab

        def picture(tab: Any, name: str, at: str | None = None) -> None:
            if at is not None:
                tab.evaluate(
                    "(id) => { document.documentElement.style.scrollBehavior = 'auto';"
                    " document.getElementById(id).scrollIntoView(); scrollBy(0, -60); }",
                    at,
                )
            tab.screenshot(path=str(folder / f"workbench-{name}.png"), animations="disabled")

        tab = opened(1180, 760)
        picture(tab, "design")
        tab.click("#keep")
        tab.fill("#amount", "1")
        tab.press("#amount", "Tab")
        tab.wait_for_selector("#facts:has-text('ε = 1')")
        tab.wait_for_selector("[data-region=side] .good")
        tab.wait_for_selector("body:not(.busy)")
        picture(tab, "errors", "side-title")
        tab.click("#save-top")
        tab.wait_for_selector("#notice:not([hidden])")
        tab.click("#ask")
        tab.wait_for_selector("#release")
        picture(tab, "carry", "carry-title")
        picture(opened(1180, 760, color_scheme="dark"), "simulate", "simulate-title")
        picture(opened(390, 760), "phone")
        browser.close()


if __name__ == "__main__":
    take(PLACE)
