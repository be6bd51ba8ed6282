"""Packages whose public names are loaded on first use, so that a command loads what it uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """A name that is also that of the module it is in stays the name, once that is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and name in self.__dict__["_module_of"]:
            value = getattr(value, name)
        super().__setattr__(name, value)


def on_first_use(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Parameters
    ----------
    package
        Its `__name__`.
    names
        Its public names, by the module below `subspacedp` that each is in.
    """
    module_of = {name: module for module, inside in names.items() for name in inside}
    itself = sys.modules[package]
    itself.__dict__["_module_of"] = module_of
    itself.__class__ = _Package

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"subspacedp.{module_of[name]}"), name)
        setattr(itself, name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(itself), *module_of})

    return load, listed


def postpone(package: str, *functions: str) -> None:
    """Let modules be imported from a library's package before the package itself is run.

    It is run when it is asked for a name that is no module in it; whoever else imports it sees no
    difference. Whoever imports one of these functions gets one that runs the package when called.
    """
    from importlib.util import find_spec, module_from_spec

    if package in sys.modules:
        return
    spec = find_spec(package)
    if spec is None or spec.loader is None:
        return
    itself, run = module_from_spec(spec), spec.loader.exec_module

    def load(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        for each in ("__getattr__", *functions):
            del itself.__dict__[each]
        run(itself)
        return getattr(itself, name)

    def later(name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            found = load(name) if "__getattr__" in itself.__dict__ else getattr(itself, name)
            return found(*given, **named)

        return call

    itself.__dict__["__getattr__"] = load
    itself.__dict__.update({name: later(name) for name in functions})
    sys.modules[package] = itself
    above, _, name = package.rpartition(".")
    setattr(import_module(above), name, itself)
