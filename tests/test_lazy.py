"""Public names that are loaded on first use are those that the packages list."""

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import subspacedp
from subspacedp.mechanisms.registry import HOMES, MECHANISMS, OPTIONS

PACKAGES = [
    name
    for _, name, is_package in pkgutil.walk_packages(subspacedp.__path__, "subspacedp.")
    if is_package and hasattr(import_module(name), "_module_of")
]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_listed_name_loads_and_no_other(name):
    package = import_module(name)
    assert sorted(package.__all__) == sorted(vars(package)["_module_of"])
    for public in package.__all__:
        assert getattr(package, public).__name__ if callable(getattr(package, public)) else True
        assert public in dir(package)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = package.nothing


def test_a_name_that_its_module_has_too_is_the_name():
    """`tabulate` of `io.tabulate`, in whatever order both are asked for."""
    code = """
import subspacedp.io.tabulate, subspacedp.invariants.null_space, subspacedp.mechanisms.impose
from subspacedp.io import tabulate
from subspacedp.invariants import null_space
from subspacedp.mechanisms import impose
from subspacedp.io.tabulate import tabulate as same
assert callable(tabulate) and callable(null_space) and callable(impose) and tabulate is same
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_registry_has_every_class_under_its_name():
    assert list(OPTIONS) == list(HOMES)
    for name, options in OPTIONS.items():
        assert options.mechanism.name == name
        assert MECHANISMS[name] is options.mechanism
    assert {kind.name for kind in MECHANISMS.values()} == set(MECHANISMS)
    with pytest.raises(KeyError):
        MECHANISMS["nothing"]
