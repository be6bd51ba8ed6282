"""The licences of what is installed with the package: `python -m supply.licences` prints the page.

Packages come from `pyproject.toml` and what they need in turn, licences from the metadata of what
is installed, and libraries inside of packages from the files that their wheels brought along.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
TOOLS = ("test", "dev", "docs", "bench")  # extras that only people who change the package install

# Shared libraries that wheels bring along, by the beginning of their file names.
LIBRARIES = {
    "libflint": ("FLINT", "LGPL-3.0-or-later"),
    "libgmp": ("GMP", "LGPL-3.0-or-later OR GPL-2.0-or-later"),
    "libmpfr": ("MPFR", "LGPL-3.0-or-later"),
    "libquadmath": ("libquadmath", "LGPL-2.1-or-later"),
    "libgfortran": ("libgfortran", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    "libcrypto": ("OpenSSL", "Apache-2.0"),
    "libcrypt": ("libxcrypt", "LGPL-2.1-or-later"),
    "libkeyutils": ("keyutils", "LGPL-2.1-or-later"),
    "libssl": ("OpenSSL", "Apache-2.0"),
    "libpq": ("libpq", "PostgreSQL"),
    "libldap": ("OpenLDAP", "OLDAP-2.8"),
    "liblber": ("OpenLDAP", "OLDAP-2.8"),
    "libsasl2": ("Cyrus SASL", "BSD-4-Clause-UC"),
    "libgssapi_krb5": ("MIT Kerberos", "MIT"),
    "libk5crypto": ("MIT Kerberos", "MIT"),
    "libkrb5": ("MIT Kerberos", "MIT"),
    "libcom_err": ("libcom_err", "MIT"),
    "libpcre": ("PCRE", "BSD-3-Clause"),
    "libselinux": ("libselinux", "public domain"),
    "libscipy_openblas": ("OpenBLAS", "BSD-3-Clause"),
    "libopenblas": ("OpenBLAS", "BSD-3-Clause"),
    "libcrc32c": ("crc32c", "BSD-3-Clause"),
    "libsodium": ("libsodium", "ISC"),
    "libzmq": ("ZeroMQ", "MPL-2.0"),
}
COPYLEFT = re.compile(r"GPL|MPL|Mozilla|EPL|CDDL")

HEADER = """# Licences of what is installed with it

subspacedp is under Apache-2.0. Its wheel holds its own code, text and data in the public domain
alone (a checkout also has a data set in `studies/data`, with its licence beside it, and a
sample of pyreadstat, under Apache-2.0, in `tests/io`); everything
below is installed from packages of its own, under the terms stated there. Made by `make licences`
from the metadata of the pinned versions on Linux, and checked by a test; a row is what a package
says of itself.

## Parts under the LGPL and other licences with conditions on copies

Nothing of these is copied into subspacedp, and each is a library of its own file that can be
exchanged for another build of it, as the LGPL asks. Whoever passes on an image or an installer that
contains them passes on their licences, and the offer of their source code, too.
"""

FOOTER = """
pyspark brings Java libraries along, whose licences lie in its own folder `pyspark/licenses`; among
them javassist, under MPL-1.1, LGPL-2.1 or Apache-2.0 as one chooses. numba's compiler is LLVM
(Apache-2.0 with an exception), inside of llvmlite.

hatchling, editables, setuptools and wheel build the package, and are not needed to use it.

Chromium, which the tests of the report drive where a system has it, PostgreSQL and Java are not
installed or shipped.
"""


def needed(extras: Iterable[str]) -> dict[str, Distribution]:
    """The core, some extras, and all that they need in turn, as far as it is installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    waiting = [Requirement(text) for text in project["dependencies"]]
    for extra in extras:
        waiting += [Requirement(text) for text in project["optional-dependencies"][extra]]
    seen: set[tuple[str, str]] = set()
    packages: dict[str, Distribution] = {}
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                packages[name] = distribution(requirement.name)
            except PackageNotFoundError:  # not for this platform
                continue
            for text in packages[name].requires or ():
                other = Requirement(text)
                if other.marker is None or other.marker.evaluate({"extra": extra}):
                    waiting.append(other)
    # What an environment brings along itself, such as setuptools, has no pin.
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    return {
        name: packages[name] for name in sorted(packages.keys() & set(map(canonicalize_name, pins)))
    }


def licence_of(package: Distribution) -> str:
    """What a package says of itself: an expression, else its classifiers, else a short text."""
    stated = package.metadata
    if stated.get("License-Expression"):
        return str(stated["License-Expression"])
    classes = [c.split(" :: ")[-1] for c in stated.get_all("Classifier", []) if "License ::" in c]
    if classes and classes != ["OSI Approved"]:
        return ", ".join(classes)
    text = str(stated.get("License") or "").strip().split("\n")[0]
    return text if text and len(text) < 60 and "://" not in text else "see the package"


def libraries_of(package: Distribution) -> Iterator[tuple[str, str]]:
    """Names and licences of the shared libraries that a package brings along."""
    names = {file.name for file in package.files or () if file.parent.name.endswith(".libs")}
    for name in sorted(name for name in names if name.startswith("lib") and ".so" in name):
        known = [key for key in LIBRARIES if name.startswith(key)]
        yield LIBRARIES[max(known, key=len)] if known else (name.split("-")[0], "see the package")


def page() -> str:
    """The page as Markdown."""
    used = needed(extra for extra in _extras() if extra not in TOOLS)
    tools = {name: one for name, one in needed(_extras()).items() if name not in used}
    rows = []
    for name, one in {**used, **tools}.items():
        where = "" if name in used else "tests and tools alone"
        if COPYLEFT.search(licence_of(one)):
            rows.append((name, "", licence_of(one), where))
        rows += [
            (name, part, licence, where)
            for part, licence in dict.fromkeys(libraries_of(one))
            if COPYLEFT.search(licence)
        ]
    head = "| package | part | licence | |\n|---|---|---|---|\n"
    text = HEADER + "\n" + head + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    for title, packages in (
        ("What the package and its extras need", used),
        ("What its tests, checks and documentation need", tools),
    ):
        text += f"\n## {title}\n\n| package | version | licence | libraries inside |\n"
        text += "|---|---|---|---|\n"
        for name, one in packages.items():
            inside = "; ".join(
                f"{part} ({licence})" for part, licence in dict.fromkeys(libraries_of(one))
            )
            text += f"| {name} | {one.version} | {licence_of(one)} | {inside} |\n"
    return text + FOOTER


def _extras() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return list(project["optional-dependencies"])


if __name__ == "__main__":
    print(page(), end="")
