"""The specification of a publication, read and checked.

Nothing here touches confidential data: a specification is read, checked and turned into domains,
held margins, budgets and neighbours before any data are opened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from subspacedp.privacy import Neighbours
from subspacedp.publication.budgeting import neighbours_of
from subspacedp.publication.checks import cross_problems
from subspacedp.publication.document import Document
from subspacedp.publication.problems import Loaded, SpecificationError, failure, missing_extra
from subspacedp.publication.reading import load_yaml, read_text
from subspacedp.publication.schema import home_of, known_keys
from subspacedp.publication.spelling import nearest
from subspacedp.publication.table_specification import ONLY, TableSpecification
from subspacedp.publication.validation import problems_of, scan

try:
    from pydantic import ValidationError
except ImportError:
    raise missing_extra() from None

__all__ = ["Specification", "as_specification", "read_specification"]

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.]+://|spark:")


def read_specification(
    source: str | Path | Mapping[str, Any], *, folder: str | Path | None = None
) -> Specification:
    """Read and check a specification.

    Parameters
    ----------
    source
        The path of a YAML file, or its content as a mapping.
    folder
        What the paths in it are relative to: by default the folder of the file, or the current
        one for a mapping.

    Examples
    --------
    >>> specification = read_specification(
    ...     {
    ...         "data": {"source": "persons.parquet", "unit": "row"},
    ...         "axes": {"sex": {"labels": ["F", "M"]}, "age": {"bins": [0, 18, 65]}},
    ...         "hold": [["sex"]],
    ...         "privacy": {"epsilon": 0.192},
    ...     }
    ... )
    >>> table = specification.table()
    >>> table.domain(), table.held(), table.budget()
    (Domain(sex: 2, age: 3; 6 cells), hold('sex'), PureDP(epsilon=0.192))
    """
    if isinstance(source, Mapping):
        path, loaded = None, Loaded(data=source)
    elif isinstance(source, str | Path):
        path = Path(source)
        loaded = load_yaml(read_text(path, "specification"))
    else:
        raise SpecificationError(
            f"A specification is a path or a mapping; got a {type(source).__name__}."
        )
    if loaded.data is None:
        raise SpecificationError("The specification is empty.")
    if not isinstance(loaded.data, Mapping):
        raise SpecificationError("The specification must be keys with values, such as `data:`.")
    problems = scan(loaded, may_be_empty=["decimals"])
    try:
        document = Document.model_validate(dict(loaded.data))
    except ValidationError as error:
        problems += problems_of(error.errors(include_url=False), loaded, known_keys, home_of)
    if problems:
        raise failure(problems, loaded)
    home = folder if folder is not None else path.parent if path else "."
    made = Specification(document=document, folder=Path(home), path=path, loaded=loaded)
    problems = list(cross_problems(made))
    if problems:
        raise failure(problems, loaded)
    return made


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Specification:
    """What is to be published, from which data, and under which promise. Public but for the data.

    Parameters
    ----------
    document
        The keys of the file with their values.
    folder
        What paths are relative to.
    path
        The file, if there was one.
    """

    document: Document
    folder: Path
    path: Path | None = None
    loaded: Loaded = field(default_factory=lambda: Loaded(data=None))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tables; `table` for the one of a specification without `tables`."""
        return tuple(self.document.tables) if self.document.tables is not None else (ONLY,)

    @cached_property
    def tables(self) -> tuple[TableSpecification, ...]:
        """All tables, in order."""
        return tuple(TableSpecification(specification=self, name=name) for name in self.names)

    def table(self, name: str | None = None) -> TableSpecification:
        """The table of that name; without a name, the only one."""
        if name is None and len(self.names) > 1:
            listed = ", ".join(f"`{known}`" for known in self.names)
            raise SpecificationError(f"The specification has several tables: {listed}; name one.")
        for table in self.tables:
            if name in (None, table.name):
                return table
        near = nearest(str(name), self.names)
        hint = f"; did you mean `{near}`?" if near else "."
        raise SpecificationError(f"The specification has no table `{name}`{hint}")

    @property
    def source(self) -> Path | str:
        """Where the confidential data are: a path, or an address."""
        return self.resolve(self.document.data.where)

    def resolve(self, text: str) -> Path | str:
        """A path relative to the specification's folder, or an address as it stands."""
        return text if ADDRESS.match(text) else self.folder / Path(text).expanduser()

    def column(self, axis: str) -> str:
        """The column of the data that an axis is read from."""
        return self.document.axes[axis].column or axis

    @property
    def neighbours(self) -> Neighbours:
        """The change of the data that is protected."""
        return neighbours_of(self.document.privacy, self.document.data)

    def as_dict(self) -> dict[str, Any]:
        """The keys that were given, as plain data; `read_specification` takes it back."""
        return self.document.model_dump(exclude_unset=True)

    def __repr__(self) -> str:
        name = f"{self.path.name!r}, " if self.path else ""
        return f"Specification({name}tables: {', '.join(self.names)})"


def as_specification(thing: Any) -> Specification:
    """A specification from a path, a mapping, or itself."""
    if isinstance(thing, Specification):
        return thing
    if isinstance(thing, (str, PathLike)):
        return read_specification(Path(thing))
    return read_specification(thing)
