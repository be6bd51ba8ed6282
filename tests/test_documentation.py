"""What the documentation shows must run, and what it names must exist."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from subspacedp.cli.app import main
from subspacedp.mechanisms import MECHANISMS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


# A block is run, or written to the file that its title names.
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.M | re.S)
# Blocks in other languages are run by tests of their own, or show what is printed.
ELSEWHERE = {
    "r": "tests/test_without_this_package.py",
    "yaml": "tests/publication/test_specification.py",
    "csv": "tests/publication/test_specification.py",
    "text": "what a block printed",
    "markdown": "the template of a decision",
}


SHELL = ("sh", "console")
# Other tests run these: of the Makefile below, and in tests/ of demo, studies and workbench.
TESTED_APART = ("make ", "subspacedp demo ", "subspacedp workbench", ".venv/bin/python -m studies ")


def blocks(page, language):
    return [body for name, _, body in BLOCK.findall(page.read_text("utf-8")) if name == language]


def name_of(page):
    return str(page.relative_to(ROOT))


def commands_of(language, body):
    """The commands of a block; in a console they follow a prompt, and what they print is shown."""
    lines = body.splitlines()
    if language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return "\n".join(line for line in lines if not line.startswith(TESTED_APART))


def run_in_shell(commands, page):
    """Run commands as a reader would, with this environment's `subspacedp` on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{page.name}: {commands}\n{done.stderr}"


def run_here(commands, page, monkeypatch):
    """Run plain calls of `subspacedp` in this process, without starting a new one for each."""
    for command in filter(None, commands.replace("\\\n", " ").splitlines()):
        monkeypatch.setattr("sys.argv", shlex.split(command, comments=True))
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code, f"{page.name}: {command}"


def is_plain(commands):
    """Whether a shell would do no more with these commands than call `subspacedp`."""
    lines = commands.replace("\\\n", " ").splitlines()
    return all(re.fullmatch(r"(subspacedp [\w ./:=+-]*(#.*)?)?", line) for line in lines)


def give_persons(folder):
    """The files that the README speaks of, so that its commands can be run."""
    (folder / "codes").mkdir()
    counties = {"Kent": "DE", "New Castle": "DE", "Sussex": "DE", "Cook": "IL", "Lake": "IL"}
    lines = [f"{county},{state}" for county, state in counties.items()]
    (folder / "codes" / "counties.csv").write_text("\n".join(["county,state", *lines]) + "\n")
    people = [f"{i % 150},{list(counties)[i % 5]},{'FM'[i % 2]},{i % 97}" for i in range(300)]
    (folder / "persons.csv").write_text("\n".join(["person_id,county,sex,AGE", *people]) + "\n")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_run_in_order(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page == ROOT / "README.md":
        give_persons(tmp_path)
    space: dict[str, object] = {}
    for language, title, body in BLOCK.findall(page.read_text("utf-8")):
        if title:
            Path(title).parent.mkdir(parents=True, exist_ok=True)
            Path(title).write_text(body, "utf-8")
        elif language == "python":
            exec(compile(body, str(page), "exec"), space)  # noqa: S102 - our own pages
        elif language in SHELL:
            commands = commands_of(language, body)
            # The README's in a shell in any case, as a reader types them.
            if is_plain(commands) and page != ROOT / "README.md":
                run_here(commands, page, monkeypatch)
            else:
                run_in_shell(commands, page)
        else:
            assert language in ELSEWHERE, language


def test_make_targets_that_pages_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        shown = "\n".join(blocks(page, "sh"))
        named = re.findall(r"`make ([a-z-]+)", page.read_text("utf-8"))
        for target in [*named, *re.findall(r"^make ([a-z-]+)", shown, re.M)]:
            assert target in targets, f"{name_of(page)}: make {target}"


def test_the_readme_has_code_to_run():
    assert blocks(ROOT / "README.md", "python")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def python_files():
    folders = ("src", "tests", "studies", "bench", "website", "supply")
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


FILE = re.compile(r"`((?:\w+/)*\w+\.py)(?:::([\w.]+))?`")
FOLDER = re.compile(r"`((?:\w+/)+)`")
DEFINED = re.compile(r"((?:`[\w.]+`(?:, | and ))*`[\w.]+`) in `((?:\w+/)*\w+\.py)`")
PLACES = (ROOT, ROOT / "src" / "subspacedp", ROOT / "tests")
NAMES = {path.name for path in python_files()}
# What a reader has on disk, beside what is in the repository.
MADE = {"build/studies/", "demo-release/", "margins/", "release/", "walk/"}


def stale(text, beside=()):
    """What a text names of the code that is not there: files, folders, and names in a file."""
    places = (*PLACES, *beside)
    for path, function in FILE.findall(text):
        homes = [place / path for place in places if (place / path).is_file()]
        if not homes and ("/" in path or beside or path not in NAMES):
            yield path
        elif homes and function and not defines(homes[0], function):
            yield f"{path}::{function}"
    for folder in FOLDER.findall(text):
        if folder not in MADE and not any((place / folder).is_dir() for place in places):
            yield folder
    for names, path in DEFINED.findall(text):
        home = next((place / path for place in places if (place / path).is_file()), None)
        for name in re.findall(r"`([\w.]+)`", names):
            if home is not None and not name.endswith(".py") and not defines(home, name):
                yield f"{name} in {path}"


def defines(path, name):
    """Whether a file defines a name, or the last part of one with dots."""
    last = re.escape(name.split(".")[-1])
    form = rf"^\s*(class|def) {last}\b|^\s*{last}\b.*="
    return re.search(form, path.read_text("utf-8"), re.M) is not None


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_code_that_pages_name_is_there(page):
    if page.parent.name != "adr":  # a decision tells how it was
        assert not list(stale(page.read_text("utf-8")))


def test_code_that_docstrings_name_is_there():
    for path in (ROOT / "src").rglob("*.py"):
        assert not list(stale(path.read_text("utf-8"), beside=(path.parent,))), path
        for note in re.findall(r"docs/[\w/-]+\.md", path.read_text("utf-8")):
            assert (ROOT / note).is_file(), f"{path}: {note}"


@pytest.mark.parametrize(
    "text",
    [
        "`calibrated_law` in `release/design.py`",
        "`exact_decimal` in `privacy/budgets.py`",  # imported there, defined elsewhere
        "`noise/draw.py::drawn`",
        "`ellipsoids.py`",
        "`subspace/`",
    ],
)
def test_a_page_that_names_what_is_gone_fails(text):
    assert list(stale(text))


def rows_of_notation():
    for line in (ROOT / "docs" / "notation.md").read_text("utf-8").splitlines():
        columns = [column.strip() for column in line.split("|")]
        modules = re.findall(r"`([a-z_.]+)`", columns[-2]) if len(columns) == 7 else []
        if modules:
            yield re.findall(r"`([A-Za-z_][\w.]*)`", columns[1]), modules


def test_notation_says_where_names_are():
    rows = list(rows_of_notation())
    assert len(rows) > 60
    for names, modules in rows:
        files = [ROOT / "src" / "subspacedp" / module.replace(".", "/") for module in modules]
        homes = [p / "__init__.py" if p.is_dir() else p.with_suffix(".py") for p in files]
        assert all(home.is_file() for home in homes), modules
        texts = [home.read_text("utf-8") for home in homes]
        for name in names:
            last = re.escape(name.split(".")[-1])
            assert any(re.search(rf"\b{last}\b", text) for text in texts), (name, modules)


# Run in a process of its own: others' tests may leave a thread's profiling as they like.
WALK = """
import json, sys, threading
homes, visited = json.loads(sys.argv.pop()), []

def enter(frame, event, _):
    path = homes.get(frame.f_code.co_filename)
    if path is not None and event == "call":
        visited.append((path, frame.f_code.co_qualname))

from subspacedp.cli.app import main

threading.setprofile(enter)  # blocks are made by threads
sys.setprofile(enter)
try:
    main()
finally:
    sys.setprofile(None)
    threading.setprofile(None)
    with open("visited.json", "w", encoding="utf-8") as file:
        json.dump(visited, file)
"""


def test_the_stations_of_one_number_are_those_of_a_run(tmp_path):
    """A release enters the functions that `docs/architecture.md` names, in that order."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    stations = [(path, name) for path, name in FILE.findall(page) if name]
    assert len(stations) > 30
    for _, title, body in BLOCK.findall(page):
        (tmp_path / title).write_text(body, "utf-8")
    homes = {str(ROOT / "src" / "subspacedp" / path): path for path, _ in stations}
    done = subprocess.run(
        [sys.executable, "-c", WALK, "release", "walk.yaml", json.dumps(homes)],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    visited = [(path, name) for path, name in json.loads((tmp_path / "visited.json").read_text())]
    rest = iter(visited)
    for station in stations:
        assert station in rest, station  # which moves on to it: the order counts
    backwards = iter(visited)
    assert not all(station in backwards for station in reversed(stations))


# Passages with measured figures: a page, words of the row or paragraph, and entries of
# bench/latest.json.
MEASURED = [
    ("README.md", "exact Laplace noise, one draw", "laplace_scale_10_"),
    ("README.md", "| 10⁸ cells, three two-way margins", "release_integers_time"),
    ("README.md", "the same from file to file", "blocks_"),
    ("README.md", "the paper's campus table", "campus_speed"),
    ("README.md", "best Gaussian noise for a 50 × 500", "optimal_speed"),
    ("README.md", "its error, over 36 problems", "optimal_least_error"),
    ("README.md", "10⁷ records counted", "bounded_tabulate_"),
    ("README.md", "| 3,200 counties", "marginals_(design|release|memory|error)_"),
    ("README.md", "| all 190 two-way margins", "marginals_pairs_"),
    ("docs/benchmarks.md", "From file to file 10⁸ cells", "(blocks|dask)_"),
    ("docs/benchmarks.md", "| design: shares of the budget", "crossing_measured_design"),
    ("docs/benchmarks.md", "| release in whole numbers", "crossing_measured_release"),
    ("docs/benchmarks.md", "| variances of all cells", "crossing_measured_memory"),
    ("docs/groupings.md", "| 5,000 invented tracts", "crossing_texas"),
    ("docs/groupings.md", "| 62,500 tracts", "crossing_million"),
    ("docs/marginals.md", "Time and memory are linear", "marginals_"),
    ("docs/workbench.md", "Twenty tables with 100,000", "workbench"),
]
UNITS = {"ns": 1e-9, "ms": 1e-3, "s": 1.0, "MiB": 2.0**20, "GiB": 2.0**30, "times": 1.0, "×": 1.0}
QUANTITY = re.compile(rf"([\d.,]*\d) ({'|'.join(UNITS)})(?!\w| \d)")  # not 3 × 4


def quantities(text):
    return [float(number.replace(",", "")) * UNITS[unit] for number, unit in QUANTITY.findall(text)]


def off_what_was_measured(text, entries):
    """The quantities in a text that are more than a fifth off every figure of the entries."""
    known = [value for entry in entries for value in quantities(entry["note"])]
    known += [entry["ratio"] * unit for entry in entries for unit in UNITS.values()]
    for value in quantities(text):
        if not any(abs(value - one) <= 0.2 * one for one in known):
            yield value


@pytest.mark.parametrize(("page", "words", "names"), MEASURED)
def test_measured_figures_are_the_latest(page, words, names):
    parts = re.split(r"\n\n|\n(?=\|)", (ROOT / page).read_text("utf-8"))
    (passage,) = [part for part in parts if words in part]
    latest = json.loads((ROOT / "bench" / "latest.json").read_text("utf-8"))
    entries = [entry for name, entry in latest.items() if re.match(names, name)]
    assert quantities(passage)
    assert not list(off_what_was_measured(passage, entries)), "say it as bench/latest.json does"
    twin = QUANTITY.sub(lambda found: f"3{found[1]} {found[2]}", passage)  # a digit before each
    assert list(off_what_was_measured(twin, entries))


def test_targets_that_are_missed_are_on_the_page():
    latest = json.loads((ROOT / "bench" / "latest.json").read_text("utf-8"))
    missed = (ROOT / "docs" / "benchmarks.md").read_text("utf-8").split("Missed in")[1]
    named = re.findall(r"`(\w+)`", missed.split("Memory is")[0])
    assert set(named) == {name for name, entry in latest.items() if not entry["met"]}


def test_every_measured_row_of_the_readme_is_compared():
    rows = (ROOT / "README.md").read_text("utf-8").split("## Measured")[1].split("\n\n")[1]
    assert len(rows.splitlines()) - 2 == sum(page == "README.md" for page, _, _ in MEASURED)


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
