"""What is used is loaded, and nothing else: start-up stays near that of NumPy."""

import subprocess
import sys

import pytest

LIBRARIES = {
    *("cryptography", "flint", "narwhals", "numba", "numpy", "pandas", "polars", "pyarrow"),
    *("pydantic", "rich", "scipy", "sqlalchemy", "typer", "yaml"),
    # slow parts of the standard library
    *("concurrent.futures", "email", "importlib.metadata", "importlib.resources", "socket"),
}
DOMAIN = """
import subspacedp as sdp
county = sdp.Axis("county", ["a", "b", "c", "d"], levels={"state": ["x", "x", "y", "y"]})
domain = sdp.Domain([county, sdp.Axis("sex", ["F", "M"])])
"""
VERSION = {"email", "importlib.metadata", "importlib.resources", "socket"}  # of the package
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
            {"numpy", "flint", "cryptography", *VERSION},
        ),
    ],
    ids=["import", "names", "pure", "error", "zcdp", "release"],
)
def test_the_first_design_loads_what_it_uses(code, needed):
    assert loaded_by(code) == needed


def test_help_loads_no_mathematics():
    assert loaded_by(HELP) <= {"typer", "rich"}


def test_what_was_loaded_is_seen():
    assert loaded_by("import scipy.special, concurrent.futures") >= {"scipy", "concurrent.futures"}
