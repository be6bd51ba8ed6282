"""The drawings of the documentation, made from the code so that they cannot go stale.

`python -m website.drawings` writes them to `docs/assets/`. They are committed, because README and
pages show them where nothing is built; a test compares them with what is drawn now.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable
from pathlib import Path

from website.svg import BLUE, GREY, INK, ORANGE, PALE_BLUE, PALE_GREY, PALE_ORANGE, Drawing

# What a box of the data's way stands for: a name that must exist in the package.
WAY = {
    "tabulate": "subspacedp.io.tabulate",
    "Table": "subspacedp.tables.Table",
    "measure": "subspacedp.mechanisms.Mechanism.add_noise",
    "reconstruct": "subspacedp.mechanisms.Mechanism.reconstruct",
    "Release": "subspacedp.release.Release",
    "inference": "subspacedp.inference",
    "verify": "subspacedp.release.Release.verify",
}


def layers(root: Path) -> list[list[str]]:
    """The layers of the package, those that import first, as import-linter enforces them."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    source = root / "src" / "subspacedp"
    found = []
    for line in contract["layers"]:
        names = [name.strip(" ()") for name in line.split("|")]
        there = [n for n in names if (source / n).is_dir() or (source / f"{n}.py").is_file()]
        if there:
            found.append(there)
    return found


def describe(root: Path, name: str) -> str:
    """The first line of a module's docstring, without the module's own name in front."""
    folder = root / "src" / "subspacedp" / name
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    first = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
    before, colon, after = first.partition(": ")
    own = before.lower().removeprefix("the ").replace(" ", "")
    words = after if colon and own in (name, f"{name}s", "commandline") else first
    return words[:1].lower() + words[1:].rstrip(".")


def draw_layers(root: Path) -> str:
    """A row a layer; every module may import from the rows below its own."""
    rows = layers(root)
    width, left, right, row, gap = 880, 52, 16, 36, 9
    height = 52 + len(rows) * (row + gap) + 8
    drawing = Drawing(width, height, "The layers of subspacedp; imports run downwards only")
    drawing.text(
        left,
        32,
        "A module imports from the rows below its own, never sideways or upwards",
        bold=True,
    )
    for i, names in enumerate(rows):
        y = 48 + i * (row + gap)
        w = (width - left - right - gap * (len(names) - 1)) / len(names)
        for j, name in enumerate(names):
            x = left + j * (w + gap)
            drawing.box(x, y, w, row, fill=PALE_BLUE, line=BLUE)
            if len(names) > 1:
                drawing.text(x + w / 2, y + 23, name, anchor="middle", bold=True)
            else:
                drawing.text(x + 14, y + 23, name, bold=True)
                drawing.text(x + 166, y + 23, describe(root, name), size=13, colour=GREY)
    drawing.arrow((28, 50), (28, height - 18))
    return drawing.svg()


def draw_way(root: Path) -> str:
    """The way of the data: what is confidential, what is published, and where they meet."""
    del root
    d = Drawing(900, 436, "The way of the data from records to readers")
    d.box(12, 44, 422, 380, fill=PALE_ORANGE, line=ORANGE)
    d.text(24, 32, "confidential: the curator's machine", bold=True, colour="#8a3d00")
    d.box(450, 44, 438, 380, fill=PALE_BLUE, line=BLUE)
    d.text(462, 32, "public", bold=True, colour="#00558a")

    def step(x: float, y: float, w: float, name: str, *words: str) -> None:
        d.box(x, y, w, 34 + 18 * len(words))
        d.text(x + w / 2, y + 22, name, anchor="middle", bold=True)
        for i, line in enumerate(words):
            d.text(x + w / 2, y + 41 + 18 * i, line, anchor="middle", size=12, colour=GREY)

    step(28, 60, 180, "records", "files, a database,", "parts of a table")
    step(236, 60, 182, "tabulate", "counts by public labels;", "bounds records a person")
    d.arrow((208, 95), (234, 95))
    step(236, 166, 182, "Table", "counts x, in memory only")
    d.arrow((327, 130), (327, 164))
    step(
        28, 262, 180, "fresh AES-256 key", "from the operating system;", "never stored or published"
    )
    step(236, 262, 182, "measure", "integers + exact noise", "the (ε, δ) proof is here")
    d.arrow((327, 218), (327, 260))
    d.arrow((208, 297), (234, 297))
    step(480, 262, 170, "reconstruct", "sees the noisy integers", "and c, nothing else")
    d.arrow((418, 297), (478, 297))
    d.text(448, 286, "noisy", anchor="middle", size=12)
    step(480, 166, 170, "held totals c", "published exactly")
    d.arrow((418, 192), (478, 192), colour=ORANGE, dash="6 4")
    d.text(448, 181, "C x", anchor="middle", size=12)
    d.arrow((565, 218), (565, 260))
    step(702, 262, 172, "Release", "values, certificate,", "law of the noise")
    d.arrow((650, 297), (700, 297))
    step(702, 166, 172, "inference", "standard errors, tests")
    d.arrow((788, 262), (788, 220))
    step(702, 60, 172, "verify", "every check a reader", "can repeat")
    d.arrow((876, 276), (882, 276), (882, 95), (876, 95))
    step(480, 60, 170, "specification", "labels, held margins,", "budget: fixed beforehand")
    d.arrow((480, 78), (420, 78))
    d.text(28, 362, "Data and randomness meet in measure alone. The rest sees", size=13)
    d.text(28, 381, "its output, and the totals that are published anyway.", size=13)
    d.text(28, 410, "dashed: not protected by noise", size=13, colour="#8a3d00")
    return d.svg()


def draw_picture(root: Path) -> str:
    """The picture of the README: a small table before and after, from a real release."""
    del root
    import subspacedp as sdp

    rows, columns = ["Kent", "New Castle", "Sussex"], ["under 18", "18 to 64", "65 and over"]
    domain = sdp.Domain([sdp.Axis("county", rows), sdp.Axis("age", columns)])
    table = sdp.Table([[412, 998, 226], [1246, 3499, 640], [391, 1101, 479]], domain)
    held = sdp.hold("county") & sdp.hold("age")
    mechanism = sdp.design(domain, held, sdp.PureDP(0.5), decimals=0)
    release = mechanism.release(table, seed=4)
    d = Drawing(900, 300, "A table before and after: every cell has noise, every total is exact")

    def show(x: float, name: str, values: list[list[int]], noisy: bool) -> None:
        d.text(x + 259, 34, name, anchor="middle", bold=True, size=18)
        for j, label in enumerate([*columns, "total"]):
            d.text(x + 136 + 82 * j, 66, label, anchor="middle", size=13, colour=GREY)
        for i, label in enumerate([*rows, "total"]):
            y = 78 + 42 * i
            d.text(x + 86, y + 24, label, anchor="end", size=14, colour=GREY)
            for j in range(4):
                total = i == 3 or j == 3
                fill = PALE_BLUE if total else PALE_ORANGE if noisy else PALE_GREY
                line = BLUE if total else ORANGE if noisy else GREY
                d.box(x + 98 + 82 * j, y, 76, 36, fill=fill, line=line)
                d.text(
                    x + 136 + 82 * j, y + 24, f"{values[i][j]:,}", anchor="middle", size=18,
                    bold=total, colour="#00558a" if total else INK,
                )  # fmt: skip

    def with_totals(cells: list[list[int]]) -> list[list[int]]:
        wide = [[*row, sum(row)] for row in cells]
        return [*wide, [sum(column) for column in zip(*wide, strict=True)]]

    before, after = with_totals(table.counts.tolist()), with_totals(release.values.tolist())
    show(0, "confidential", before, noisy=False)
    show(468, "published, ε = 0.5", after, noisy=True)
    d.arrow((444, 160), (478, 160))
    stderr = f"{release.stderr().max():.1f}"
    d.text(98, 272, "blue: held totals, the same on both sides", size=15)
    d.text(566, 272, f"orange: noise, no bias, standard error {stderr}", size=15)
    return d.svg()


DRAWINGS: dict[str, Callable[[Path], str]] = {
    "layers.svg": draw_layers,
    "way.svg": draw_way,
    "picture.svg": draw_picture,
}


def draw_all(root: Path) -> None:
    """Write the drawings; a file that is right already is left alone."""
    for name, draw in DRAWINGS.items():
        path, text = root / "docs" / "assets" / name, draw(root)
        if not path.is_file() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    draw_all(Path(__file__).parents[1])
