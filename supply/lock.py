"""Requirements with hashes: `python -m supply.lock REPORT PINNED... > FILE`.

REPORT is what `pip install --dry-run --report` wrote; PINNED are files of requirements that are
locked already and left out. Every release gets the hashes of all its files, of every platform,
that the registries which pip is configured for list; at least the one that pip would install.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# pip has no public interface that lists all files of a release. This runs at maintenance alone, in
# a fresh environment, and an installation needs none of it.
from pip._internal.commands import create_command
from pip._internal.index.collector import LinkCollector, parse_links
from pip._internal.models.link import Link
from pip._vendor.packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from pip._vendor.packaging.version import InvalidVersion

HASH = re.compile(r"[0-9a-f]{64}")


def collector() -> LinkCollector:
    """What pip would read, by its own configuration."""
    command: Any = create_command("index")
    options, _ = command.parse_args(["versions", "pip"])
    return LinkCollector.create(command._build_session(options), options=options)


def files_of(links: LinkCollector, name: str, version: str) -> Iterator[str]:
    """SHA-256 of every file of a release that a registry lists."""
    for location in links.search_scope.get_index_urls_locations(name):
        try:
            page = links.fetch_response(Link(location))
        except OSError:
            continue
        for link in () if page is None else parse_links(page):
            stated = link.hash if link.hash_name == "sha256" else None
            if HASH.fullmatch(stated or "") and version_of(link.filename) == version:
                yield str(stated)


def version_of(filename: str) -> str | None:
    """The version in the name of a wheel or an archive of source code."""
    try:
        if filename.endswith(".whl"):
            return str(parse_wheel_filename(filename)[1])
        return str(parse_sdist_filename(filename)[1])
    except (InvalidSdistFilename, InvalidWheelFilename, InvalidVersion):
        return None


def names_in(path: Path) -> set[str]:
    """The packages that a file of requirements names."""
    return {
        canonicalize_name(n) for n in re.findall(r"^([\w.-]+)==", path.read_text("utf-8"), re.M)
    }


def main(report: str, *pinned: str) -> None:
    """Print the requirements with their hashes."""
    known = set().union(*(names_in(Path(path)) for path in pinned)) if pinned else set()
    links = collector()
    lines = []
    for package in json.loads(Path(report).read_text("utf-8"))["install"]:
        archive = package["download_info"].get("archive_info")
        name, version = package["metadata"]["name"], package["metadata"]["version"]
        if archive is None or canonicalize_name(name) in known:
            continue  # this package itself, or locked elsewhere
        hashes = {archive["hashes"]["sha256"], *files_of(links, canonicalize_name(name), version)}
        listed = " \\\n".join(f"    --hash=sha256:{one}" for one in sorted(hashes))
        lines.append(f"{canonicalize_name(name)}=={version} \\\n{listed}")
    for line in sorted(lines):
        print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
