"""What is used is loaded, and nothing else: start-up stays near that of NumPy."""

import subprocess
import sys
from pathlib import Path

import pytest

LIBRARIES = {
    *("cryptography", "flint", "narwhals", "numba", "numpy", "pandas", "polars", "pyarrow"),
    *("numpy.ma", "pyarrow.compute"),
    *("pydantic", "rich.console", "scipy", "sqlalchemy", "typer", "yaml"),
    *("altair", "duckdb", "ibis", "jinja2", "vl_convert"),
    # groups of commands that are not asked
    *("subspacedp.cli.agent", "subspacedp.cli.demo", "subspacedp.cli.key", "subspacedp.cli.ledger"),
    # of data, accounts and records, which a plan does not open
    *("subspacedp.disclosure.differencing", "subspacedp.io.tabulate", "subspacedp.microdata"),
    # rounding of what is not held here
    *("subspacedp.rounding.crossing", "subspacedp.rounding.lattice"),
    # engines that are not asked, each with a compiler and a grammar
    *("ibis.backends.sql.compilers.bigquery", "ibis.backends.sql.compilers.postgres"),
    *("ibis.backends.sql.dialects", "sqlglot.dialects.snowflake"),
    # slow parts of the standard library
    *(
        "concurrent.futures",
        "email",
        "importlib.metadata._adapters",
        "importlib.resources",
        "numpy.ma",
        "socket",
    ),
}
DOMAIN = """
import subspacedp as sdp
county = sdp.Axis("county", ["a", "b", "c", "d"], levels={"state": ["x", "x", "y", "y"]})
domain = sdp.Domain([county, sdp.Axis("sex", ["F", "M"])])
"""
VERSION = {"email", "importlib.metadata._adapters", "socket"}  # of DuckDB, which asks for it
NAMES = "import subspacedp as sdp; sdp.design, sdp.Table, sdp.Release, sdp.null_space, sdp.ZCDP"
HELP = """
import sys
from subspacedp.cli import main
sys.argv = ["subspacedp", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""


def loaded_by(code):
    """The heavy modules that a fresh interpreter has after running `code`."""
    last = f"\nimport sys; print(*({LIBRARIES!r} & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code + last], capture_output=True, text=True, check=True
    )
    return set(run.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("import subspacedp", set()),
        (NAMES, {"numpy"}),
        (DOMAIN + "sdp.design(domain, sdp.hold('state'), sdp.PureDP(1))", {"numpy"}),
        (
            DOMAIN + "sdp.design(domain, sdp.hold('state'), sdp.PureDP(1)).expected_error().total",
            {"numpy"},
        ),
        (DOMAIN + "sdp.design(domain, None, sdp.ZCDP(1), decimals=0)", {"numpy", "flint"}),
        (
            DOMAIN
            + "sdp.design(domain, None, sdp.PureDP(1)).release(sdp.Table([[1, 2]] * 4, domain))",
            {"numpy", "flint", "cryptography"},
        ),
    ],
    ids=["import", "names", "pure", "error", "zcdp", "release"],
)
def test_the_first_design_loads_what_it_uses(code, needed):
    assert loaded_by(code) == needed


def test_help_loads_no_mathematics():
    groups = {f"subspacedp.cli.{name}" for name in ("agent", "demo", "key", "ledger")}
    assert loaded_by(HELP) == {"typer", "rich.console", *groups}


SPECIFICATION = """
title: Persons by county and sex
data: {source: persons.csv, unit: row}
axes:
  county: {labels: counties.csv, levels: [state]}
  sex: {labels: [F, M]}
hold: [[state]]
privacy: {PRIVACY}
publish: {decimals: 0, margins: [[sex]], to: walk/}
"""
COMMAND = """
import os, sys
from subspacedp.cli import main
os.chdir(FOLDER)
sys.argv = ["subspacedp", *ARGUMENTS]
try:
    main()
except SystemExit as end:
    assert not end.code
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A small publication, planned and published under two budgets."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "persons.csv").write_text("county,sex\nKent,F\nKent,M\nCook,F\n", "utf-8")
    (folder / "counties.csv").write_text("county,state\nKent,DE\nSussex,DE\nCook,IL\nLake,IL\n")
    for budget in ("epsilon", "rho"):
        text = SPECIFICATION.replace("PRIVACY", f"{budget}: 1.0").replace("walk", budget)
        (folder / f"{budget}.yaml").write_text(text, "utf-8")
    return folder


def command(folder, *arguments):
    """The heavy modules that a command loads."""
    text = COMMAND.replace("FOLDER", repr(str(folder)))
    return loaded_by(text.replace("ARGUMENTS", repr(arguments)))


@pytest.mark.parametrize("budget", ["epsilon", "rho"])
def test_commands_load_what_they_use(folder, budget):
    """No pandas, no SciPy, no compiler, no colours and no pydantic for small tables."""
    ours = {"numpy", "typer"}
    public = {*ours, "yaml", "flint", "subspacedp.rounding.crossing"}
    exact = {"flint"} if budget == "epsilon" else set()  # of Gaussian noise that gains nothing
    assert command(folder, "plan", f"{budget}.yaml") <= public - exact
    engine = {
        "subspacedp.disclosure.differencing",
        "subspacedp.io.tabulate",
        "subspacedp.microdata",
        "concurrent.futures",
        "importlib.resources",
        "numpy.ma",
        "ibis",
        "duckdb",
        "pyarrow",
        "cryptography",
        "jinja2",
        *VERSION,
    }
    if budget == "rho":
        engine |= {"scipy"}  # a quantile whose error the exactness of the noise rests on
    assert command(folder, "release", f"{budget}.yaml") <= public | engine
    read = {*ours, "pyarrow", "socket", "subspacedp.microdata"}
    if budget == "rho":  # a release by the marginals mechanism
        read |= {"flint", "subspacedp.rounding.crossing"}
    assert command(folder, "verify", budget) <= read


def test_commands_multiply_small_matrices_in_one_thread(folder, monkeypatch):
    """As NumPy finds it when it is loaded, unless the user wants more."""
    code = COMMAND.replace("FOLDER", repr(str(folder))).replace("ARGUMENTS", "('version',)")
    code = code.replace("try:", "assert 'numpy' not in sys.modules\ntry:")
    code += "print(os.environ.get('OPENBLAS_NUM_THREADS'))"

    def threads():
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        return run.stdout.splitlines()[-1]

    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert threads() == "1"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert threads() == "2"


def test_commands_look_for_no_garbage_at_their_end(folder):
    """Whoever opens a file closes it; the rest goes with the process."""
    code = COMMAND.replace("FOLDER", repr(str(folder))).replace("ARGUMENTS", "('version',)")
    last = "import atexit, gc\natexit.register(lambda: print(gc.get_freeze_count()))\n"
    run = subprocess.run(
        [sys.executable, "-c", last + code], capture_output=True, text=True, check=True
    )
    assert int(run.stdout.splitlines()[-1]) > 1000


def test_an_engine_has_nothing_to_say_at_the_end(folder):
    code = COMMAND.replace("FOLDER", repr(str(folder)))
    code = code.replace("ARGUMENTS", "('audit', 'epsilon.yaml')")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "auditing table" in run.stderr.splitlines()[-1]


POSTPONED = """
import sys
from importlib import import_module
from subspacedp.lazy import postpone
postpone("ibis.backends.sql.compilers")
import ibis
assert "JOIN" in ibis.to_sql(ibis.table({"a": "int"}, name="t").cross_join(
    ibis.table({"b": "int"}, name="u")), dialect="duckdb")
assert "ibis.backends.sql.compilers.mysql" not in sys.modules
import ibis.backends.sql.compilers as compilers
one = compilers.duckdb.DuckDBCompiler
assert not hasattr(compilers, "__wrapped__")
assert "ibis.backends.sql.compilers.mysql" not in sys.modules
from ibis.backends.sql.compilers import DuckDBCompiler, MySQLCompiler
assert one is DuckDBCompiler and sys.modules["ibis.backends.sql.compilers"] is compilers
assert ibis.backends.sql.compilers is compilers
try:
    compilers.none_such
except AttributeError:
    print()
"""


def test_a_package_that_is_postponed_is_the_same_package():
    assert loaded_by(POSTPONED) >= {"ibis.backends.sql.compilers.postgres"}


CALLED = """
import sys
from subspacedp.lazy import postpone
postpone("importlib.metadata", "entry_points")
from importlib.metadata import entry_points
import importlib.metadata
assert "email" not in sys.modules
found = entry_points(group="console_scripts")
from importlib.metadata import entry_points as itself, version
assert itself is not entry_points and itself(group="console_scripts") == found != ()
assert entry_points(group="console_scripts") == found
assert version("numpy") == importlib.metadata.version("numpy")
"""


def test_a_function_that_is_postponed_is_the_same_function():
    assert loaded_by(CALLED) >= {"email", "importlib.metadata._adapters"}


def test_what_was_loaded_is_seen():
    assert loaded_by("import scipy.special, concurrent.futures") >= {"scipy", "concurrent.futures"}
