"""The notebooks run in fresh kernels, show what they say, and are committed bare."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
NAMES = ("campus", "census", "inference")
SECONDS = 240  # for a cell, on a busy machine; a whole notebook takes a quarter of a minute

# Run before the first cell. What happens inside the kernel is out of pytest's sight.
WARNINGS_ARE_ERRORS = "import warnings; warnings.simplefilter('error')"

# Run after the last cell: what the prose says is so. All noise comes from seeds.
CHECKS = {
    "census": """
assert release.certificate()["for_publication"] is False
assert np.array_equal(released_totals, state_totals) and len(state_totals) == 52
assert np.count_nonzero(accuracy.stderr == 0) == 1  # the District of Columbia
assert trend.groups == slopes.groups == 48
assert abs(slopes.share_negative - 0.5) < 0.05 and slopes.share_significant < 0.03
assert 4 * texas.small_cells > 4064  # a quarter has fewer than ten people
one, top = texas.outcomes["one level"], texas.outcomes["TopDown"]
assert texas.least[0] == 0 and one.bias[0] > 1 and top.bias[0] > 1  # people in empty cells
assert texas.nearer("one level")[:2] == texas.nearer("TopDown")[:2] == ["0", "1–9"]
assert min(one.small_sum_bias, top.small_sum_bias) > texas.small_people / 2
assert abs(texas.outcomes["projected"].small_sum_bias) < texas.small_people / 2
""",
    "campus": """
assert release.certificate()["for_publication"] is False
assert table.counts.shape == (14, 24, 20) and len(days) == 3243
assert (space.rank, space.dimension) == (740, 5980)
assert np.array_equal(release.margin("hour", "building").value, table.counts.sum(axis=0))
assert np.array_equal(release.margin("group", "building").value, table.counts.sum(axis=1))
assert abs(np.median(errors.variances) - 5980 / 6720) < 0.02
assert day_price(hour) < 8 < 50 < day_price(day)
closest, middle, widest = (typical(values - table.counts) for values in released.values())
assert closest < middle < totals_alone < widest
assert "held totals are 2 or less" in str(audit)
assert bounds[0].error < bounds[0].held_alone < bounds[2].error
""",
    "inference": """
assert release.certificate()["for_publication"] is False
assert release.estimate(dallas_county).stderr == 0
assert np.mean((lower <= truth) & (truth <= upper)) >= 18 / 22
assert abs(covered["exact"][0] - 0.95) < 0.005 and covered["normal"][0] < 0.945
assert covered["exact"][1] > 0.85 and covered["normal"][1] < 0.1
assert share.interval()[0] < share.value < share.interval()[1]
assert of_figures.pvalue < 0.001 < of_population.pvalue
assert rejected["with the noise"] < 21 < rejected["Pearson"]
assert fit.naive_stderr[1] < fit.stderr[1]
assert spread[2] < 0.8 * min(spread[:2])
assert np.array_equal(together.margin("county").value, population)
assert sum(index) / 2 < dissimilarity(wide.values)  # corrected downward
assert index[0] < dissimilarity(dallas.counts) < index[1]
""",
}


# Run in a process of its own: the sockets that lead to a kernel are not all closed afterwards, and
# warnings about them would hit whatever test runs at the time.
RUNNER = """
import sys
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

path, folder, connection, transport, seconds = sys.argv[1:]
manager = AsyncKernelManager(
    kernel_name="python3", connection_file=connection, transport=transport
)
book = nbformat.read(path, as_version=4)
NotebookClient(
    book,
    km=manager,
    timeout=int(seconds),
    startup_timeout=int(seconds),
    resources={"metadata": {"path": folder}},
).execute()
nbformat.write(book, path)
"""


def run(book, folder):
    """Run a notebook in a fresh kernel of this environment, in an empty folder."""
    book.cells.insert(0, nbformat.v4.new_code_cell(WARNINGS_ARE_ERRORS))
    # A short path: sockets have little room for their names. Unlike ports, they are never taken.
    with tempfile.TemporaryDirectory(prefix="nb") as home:
        path, transport = Path(home) / "book.ipynb", "ipc" if os.name == "posix" else "tcp"
        nbformat.write(book, path)
        done = subprocess.run(
            [sys.executable, "-c", RUNNER, path, folder, f"{home}/k", transport, str(SECONDS)],
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=2 * SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return nbformat.read(path, as_version=4)


def environment(home):
    """No settings, kernels or start-up files of whoever runs the tests."""
    dropped = ("JUPYTER", "IPYTHON", "PYTHONWARNINGS", "PYTHONSTARTUP")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    own = ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    # As an editable install does it: what lies beside the package is found.
    beside = os.pathsep.join(filter(None, (str(NOTEBOOKS.parent), kept.get("PYTHONPATH"))))
    return {**kept, **{name: f"{home}/{name}" for name in own}, "PYTHONPATH": beside}


def test_these_are_the_notebooks():
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == sorted(NAMES)
    page = (NOTEBOOKS.parent / "docs" / "notebooks.md").read_text("utf-8")
    for name in NAMES:
        assert f"{name}.ipynb" in page


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_what_it_says_is_so(name, tmp_path):
    book = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    book.cells.append(nbformat.v4.new_code_cell(CHECKS[name]))
    done = run(book, tmp_path)
    outputs = [output for cell in done.cells for output in cell.get("outputs", ())]
    complaints = [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    assert complaints == []
    pictures = [o for o in outputs if "<svg" in o.get("data", {}).get("text/html", "")]
    assert pictures
    assert list(tmp_path.iterdir()) == []  # a notebook leaves no files behind


@pytest.mark.parametrize(
    ("cell", "error"), [("1 / 0", "ZeroDivisionError"), ("warnings.warn('so')", "UserWarning")]
)
def test_a_notebook_that_fails_or_warns_is_noticed(cell, error, tmp_path):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    with pytest.raises(AssertionError, match=error):
        run(book, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_committed_bare(name):
    text = (NOTEBOOKS / f"{name}.ipynb").read_text("utf-8")
    book = json.loads(text)
    nbformat.validate(book)
    assert 10 <= len(book["cells"]) <= 20
    assert [set(cell["metadata"]) for cell in book["cells"]] == [set()] * len(book["cells"])
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
    # Neither the version of an interpreter nor the place of an environment.
    assert book["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for word in ("/root/", "/home/", "/tm" + "p/", "/Users/", "C:\\\\", "file://", "http://"):
        assert word not in text


@pytest.mark.parametrize("name", NAMES)
def test_it_says_that_its_releases_are_not_for_publication(name):
    book = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    assert "seed=" in "".join(line for cell in book["cells"] for line in cell["source"])
    assert "**not for publication**" in "".join(book["cells"][0]["source"])
