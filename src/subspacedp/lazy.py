"""Packages whose public names are loaded on first use, so that a command loads what it uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["on_first_use"]


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
