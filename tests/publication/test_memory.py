"""Plans of many cells in little memory, and the sentence where a release would need too much."""

import json
import resource
import subprocess
import sys

import pytest

from subspacedp.blocks import memory
from subspacedp.errors import ReleaseError
from subspacedp.publication import plan, resources, run

LIMIT = 2 << 30
LABELS = 464  # 10⁸ cells: 0.8 GB for one array of them
UNEQUAL = {f"r{i}": [j for j in range(LABELS) if int(j**0.5) == i] for i in range(22)}
KINDS = {
    "three margins, whole numbers": {"hold": [["a", "b"], ["b", "c"], ["a", "c"]], "decimals": 0},
    "one margin, whole numbers": {"hold": [["b"]], "decimals": 0},
    "runs within runs": {"hold": [["region"], ["b"]], "decimals": 0},
    "unequal groups, real": {"hold": [["region", "b"], ["b", "c"]], "privacy": {"rho": 0.5}},
    "nothing": {"hold": []},
}


def spec(hold, *, labels=LABELS, decimals=None, privacy=None, **more):
    levels = {group: [j for j in own if j < labels] for group, own in UNEQUAL.items()}
    region = {"levels": {"region": {group: own for group, own in levels.items() if own}}}
    return {
        "data": {"counts": {"source": "nowhere.parquet", "value": "n"}},
        "axes": {
            name: {"labels": list(range(labels)), **(region if name == "a" else {})}
            for name in "abc"
        },
        "hold": hold,
        "privacy": privacy or {"epsilon": 1.0},
        "publish": {"decimals": decimals, "margins": [["a"], ["region", "c"]]},
        **more,
    }


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))


def in_process(code, folder, specification):
    """The last line that a fresh process with 2 GiB of address space prints."""
    path = folder / "spec.json"
    path.write_text(json.dumps(specification), "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        preexec_fn=limited,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


PLAN = """
import json, sys
from subspacedp.publication import plan
print(json.dumps(plan(json.load(open(sys.argv[1]))).as_dict()))
"""
ARRAY = "import numpy as np; print(len([np.zeros(464**3) for _ in range(3)]))"


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_of_100_million_cells_fits_into_2_gib(kind, tmp_path):
    data = json.loads(in_process(PLAN, tmp_path, spec(**KINDS[kind])))
    (release,) = data["releases"]
    cells = release["errors"][0]
    assert cells["what"] == "every cell"
    assert cells["figures"] == release["cells"] == LABELS**3
    assert 0 < cells["stderr"][0] <= cells["stderr"][1]
    total = release["mechanisms"][release["mechanism"]]
    noisy = LABELS**3 - cells["published_exactly"]
    assert noisy * cells["stderr"][0] ** 2 <= total * (1 + 1e-9)
    assert total <= noisy * cells["stderr"][1] ** 2 * (1 + 1e-9)
    assert "not looked at for more than 10,000,000 cells" in release["why"]


def test_a_few_arrays_of_cells_would_not_fit(tmp_path):
    """The limit of the test above is one that a plan by cells would hit."""
    with pytest.raises(AssertionError, match="Unable to allocate"):
        in_process(ARRAY, tmp_path, {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_by_kinds_is_the_plan_by_cells(kind):
    asked = spec(**KINDS[kind], labels=12)
    del asked["publish"]["margins"]  # so that noise is for the cells, as it is for very many
    made = plan(asked).releases[0]
    accuracy = made.design.accuracy()
    line = made.lines[0]
    noisy = accuracy.stderr[accuracy.stderr > 0]
    assert line.figures == accuracy.stderr.size
    assert line.fixed == int(accuracy.fixed.sum())
    assert line.stderr == pytest.approx((noisy.min(), noisy.max()), rel=1e-12)
    total = made.design.expected_error().total
    assert made.compared[made.design.mechanism.name] == pytest.approx(total, rel=1e-12)


def test_what_does_not_fit_is_refused_before_data_are_opened(monkeypatch, tmp_path):
    def opened(*_arguments, **_options):
        raise AssertionError("data were opened")

    monkeypatch.setattr("subspacedp.io.open_source", opened)
    monkeypatch.setattr(resources, "available_memory", lambda: 3_000_000_000)
    asked = spec(hold=[["b"]], decimals=0)
    asked["publish"]["values"] = "csv"
    for dry_run in (True, False):
        with pytest.raises(ReleaseError) as caught:
            run(asked, out=tmp_path / "out", dry_run=dry_run)
        sentence = str(caught.value)
        for part in ("99,897,344 figures", "GB of memory", "3.0 GB are available", "by block"):
            assert part in sentence
        assert caught.value.evidence["needed"] > 3_000_000_000
    monkeypatch.setattr(resources, "available_memory", lambda: 30_000_000_000)
    with pytest.raises(AssertionError, match="data were opened"):
        run(asked, out=tmp_path / "out")


def test_available_memory_is_the_least_of_what_binds(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("5000000000\n", "ascii")
    (tmp_path / "memory.current").write_text("3000000000\n", "ascii")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 1000000000\n", "ascii")
    group = memory._control_group(tmp_path)
    assert group == [3_000_000_000]
    (tmp_path / "memory.max").write_text("max\n", "ascii")
    assert memory._control_group(tmp_path) == []
    monkeypatch.setattr(memory, "_machine", lambda: [7_000])
    monkeypatch.setattr(memory, "_control_group", lambda: [5_000])
    monkeypatch.setattr(memory, "_limit", lambda: [])
    assert memory.available_memory() == 5_000
    monkeypatch.setattr(memory, "_control_group", list)
    monkeypatch.setattr(memory, "_machine", list)
    assert memory.available_memory() is None
