"""What the reference has to be told about parameters.

Parameters that share a paragraph of a docstring get one each in the reference, and classes that
`subspacedp.frozen` makes have the parameters that `dataclasses` would give them.

NumPy's style allows `low, high` before one description. The parser then gives all of them the type
and the default of the first; with a paragraph for each they have their own.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

HEAD = re.compile(r"\*{0,2}\w+(?:, \*{0,2}\w+)+")
SECTION = re.compile(r"^(?:Parameters|Attributes)\n-+\n", re.M)
END = re.compile(r"\n\n(?=\S[^\n]*\n-{3,}\n)|\Z")


def split_names(text: str) -> str:
    """The docstring with every shared paragraph of its parameters repeated for each name."""
    start = SECTION.search(text)
    if start is None:
        return text
    end = END.search(text, start.end())
    stop = len(text) if end is None else end.start()
    return text[: start.end()] + _split(text[start.end() : stop]) + text[stop:]


def _split(section: str) -> str:
    out: list[str] = []
    for block in re.split(r"\n(?=\S)", section.strip("\n")):
        head, _, body = block.partition("\n")
        names = head.split(", ") if HEAD.fullmatch(head) else [head]
        out += [f"{name}\n{body}" if body else name for name in names]
    return "\n".join(out)


class SplitNames(griffe.Extension):
    """Called by the reference for every function and class it reads."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Split shared paragraphs before anybody parses them."""
        if obj.docstring is not None:
            obj.docstring.value = split_names(obj.docstring.value)


class Frozen(griffe.Extension):
    """Called by the reference for every class it reads."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Say that `@frozen` is `@dataclass`, whose parameters it works out by itself."""
        known = griffe.ExprName("dataclasses.dataclass")
        for decorator in cls.decorators:
            if decorator.callable_path == "subspacedp.frozen.frozen":
                cls.labels.add("dataclass")
                if isinstance(decorator.value, griffe.ExprCall):
                    decorator.value.function = known
                else:
                    decorator.value = known
