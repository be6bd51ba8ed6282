"""What is installed is what was locked, and its licences are told."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==(\S+)", re.M)
LOCKED = re.compile(r"^([a-z0-9][\w.-]*)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.M)


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path):
    return {plain(name): number for name, number in PIN.findall(path.read_text("utf-8"))}


def locked(name):
    text = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8")
    return {plain(found): (number, hashes) for found, number, hashes in LOCKED.findall(text)}


CONSTRAINTS = pins(ROOT / "constraints.txt")


def test_every_pin_has_hashes_and_every_hash_a_pin():
    parts = {name: locked(name) for name in ("build", "demo", "all")}
    for name, part in parts.items():
        assert part.keys() == pins(ROOT / "requirements" / f"{name}.txt").keys(), name
        assert part
    together = {**parts["build"], **parts["demo"], **parts["all"]}
    assert len(together) == sum(map(len, parts.values()))  # each is locked once
    numbers = {name: number for name, (number, _) in together.items()}
    assert {name: numbers.get(name) for name in CONSTRAINTS} == CONSTRAINTS
    assert numbers.keys() - CONSTRAINTS.keys() <= parts["build"].keys()
    several = [name for name, (_, hashes) in together.items() if hashes.count("sha256") > 1]
    assert len(several) > len(together) / 2  # other platforms' files too


def test_the_build_backend_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (backend,) = project["build-system"]["requires"]
    assert backend == f"hatchling=={locked('build')['hatchling'][0]}"
    assert {"pathspec", "pluggy", "packaging", "trove-classifiers"} <= locked("build").keys()


def test_no_registry_is_named():
    for path in [*(ROOT / "requirements").iterdir(), *(ROOT / "supply").glob("*.py")]:
        assert "://" not in re.sub(r'"://"', "", path.read_text("utf-8")), path.name


def test_the_page_of_licences_is_what_is_installed():
    from supply.licences import needed, page

    if not sys.platform.startswith("linux"):
        pytest.skip("wheels of other platforms bring other libraries along")
    packages = needed(["frames", "publish", "ledger", "postgres", "spark", "large"])
    if any(version(name) != CONSTRAINTS[name] for name in packages):
        pytest.skip("other versions are installed than the pinned ones")
    text = (ROOT / "docs" / "licences.md").read_text("utf-8")
    assert text == page(), "run `make licences`"


def test_lgpl_parts_are_named():
    text = (ROOT / "docs" / "licences.md").read_text("utf-8")
    conditions = text.split("## What the package")[0]
    for row in ("python-flint | FLINT | LGPL-3.0", "python-flint | MPFR | LGPL-3.0",
                "python-flint | GMP | LGPL-3.0", "psycopg |  | LGPL-3.0"):  # fmt: skip
        assert row in conditions


def test_the_wheel_carries_the_licences(tmp_path):
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation",
         "-w", tmp_path, ROOT],
        check=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert any(name.endswith(".dist-info/licenses/docs/licences.md") for name in names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
