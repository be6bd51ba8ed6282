"""What MkDocs calls while it builds the site."""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
MARK = re.compile(r"<!-- names of (?P<module>[\w.]+) -->")
sys.path.insert(0, str(ROOT))  # MkDocs loads this file by its path

from mkdocs.structure.files import File  # noqa: E402

from website.drawings import draw_all  # noqa: E402
from website.figures import figures  # noqa: E402


def on_config(config: Any) -> Any:
    """Draw what is drawn from code, and fill the navigation in."""
    draw_all(ROOT)
    folder = Path(config.docs_dir)
    pages = sorted(page.relative_to(folder).as_posix() for page in folder.rglob("*.md"))
    named = set(_named(config.nav))
    config.nav = _filled(config.nav, [page for page in pages if page not in named])
    return config


def _named(nav: Any) -> list[str]:
    """The pages that a navigation names, patterns included."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [name for part in parts for name in _named(part)]


def _filled(nav: Any, pages: list[str]) -> Any:
    """The navigation with every pattern replaced by the pages of its folder that fit it."""
    if isinstance(nav, dict):
        return {title: _filled(part, pages) for title, part in nav.items()}
    if not isinstance(nav, list):
        return nav
    filled: list[Any] = []
    for part in nav:
        if isinstance(part, str) and "*" in part:
            depth = part.count("/")
            filled += [p for p in pages if p.count("/") == depth and fnmatchcase(p, part)]
        else:
            filled.append(_filled(part, pages))
    return filled


def on_files(files: Any, config: Any) -> Any:
    """Take in the pictures of the benchmarks, and the demonstrations' figures as drawn now."""
    for picture in sorted((ROOT / "bench").glob("*.svg")):
        name = f"bench/{picture.name}"
        files.append(File.generated(config, name, abs_src_path=str(picture)))
    for figure in figures(ROOT):
        name = f"demonstrations/{figure.name}"
        kept = files.get_file_from_path(name)
        if kept is not None:
            files.remove(kept)
        files.append(File.generated(config, name, abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill the public names in where a page of the reference asks for them."""
    if page.file.src_uri.startswith("demonstrations/"):
        page.meta.setdefault("hide", ["toc"])  # figures need the room
    markdown = markdown.replace("](../bench/", "](bench/")
    markdown = MARK.sub(lambda mark: entries(mark["module"]), markdown)
    return markdown.replace("<!-- table of subspacedp -->", table())


def public_names(module: str) -> dict[str, str]:
    """The names of a module's `__all__`, and where each is defined."""
    home = import_module(module)
    paths = {}
    for name in home.__all__:
        value = getattr(home, name)
        if isinstance(value, ModuleType):
            continue
        at, inner = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        paths[name] = (
            f"{at}.{inner}" if at.startswith("subspacedp.") and inner else f"{module}.{name}"
        )
    return paths


def entries(module: str) -> str:
    """A directive for every public name, those of the package itself first.

    mkdocstrings writes the entry of each from its docstring.
    """
    paths = public_names(module)
    first = public_names("subspacedp")
    names = sorted(paths, key=lambda name: name not in first)  # stable: otherwise as in `__all__`
    errors = "subspacedp.errors"  # have a page of their own, whatever else lists them
    return "\n\n".join(
        f"::: {paths[name]}" for name in names
        if module == errors or not paths[name].startswith(f"{errors}.")
    )  # fmt: skip


def table() -> str:
    """All that `import subspacedp` brings, with the first line of each docstring."""
    import subspacedp

    rows = ["| name | |", "|---|---|"]
    for name, path in sorted(public_names("subspacedp").items(), key=lambda row: row[0].lower()):
        rows.append(f"| [`{name}`][{path}] | {_first_line(getattr(subspacedp, name))} |")
    for name in subspacedp.__all__:
        value = getattr(subspacedp, name)
        if isinstance(value, ModuleType):
            rows.append(f"| [`{name}`]({name}.md) | {_first_line(value)} |")
    return "\n".join(rows)


def _first_line(value: object) -> str:
    """The first line of a docstring, fit for a cell of a table."""
    return (value.__doc__ or "").partition("\n")[0].replace("|", r"\|")


def on_post_page(output: str, **_: Any) -> str:
    """Name the search dialog, which the theme leaves nameless, for screen readers."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)
