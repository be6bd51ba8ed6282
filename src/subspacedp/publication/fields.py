"""What the sections of a specification are made of: keys, each with what JSON Schema says of it.

That is read off the key's annotation, and values are read by it. Words that are not published
begin with an underscore: `_look` raises for what is wrong before a value is read, `_reads` reads it
instead, `_null` lets it be null, `_keys` are those of a mapping, `_key` is that of a section, and
`_published` is what JSON Schema says where that is something else.
"""

from __future__ import annotations

import datetime
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError
from functools import cache
from inspect import cleandoc
from types import NoneType, UnionType
from typing import (  # fmt: skip
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NoReturn,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from subspacedp.publication.faults import Fault, Loaded, Place, failure, nearest, shown

S = TypeVar("S", bound="Section")
Described = dict[str, Any]  # what JSON Schema says
DAY = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
HALF_A_SIGN = re.compile(r"[\ud800-\udfff]")  # which no file can have
WRONG: Final = object()  # in the place of a value that cannot be read
KINDS: Mapping[str, tuple[Any, str]] = {
    "string": (str, "text"),
    "integer": (int, "a whole number"),
    "number": (int | float, "a finite number"),
    "boolean": (bool, "true or false"),
    "array": (Iterable, "a list, in brackets"),
    "object": (Mapping, "keys with values"),
}
# Words of JSON Schema: what has to hold, and what to say where it does not.
RULES: Mapping[str, tuple[Callable[[Any, Any], Any], str]] = {
    "minLength": (lambda value, least: len(value) >= least, "must not be empty"),
    "minItems": (lambda value, least: len(value) >= least, "must not be empty"),
    "minProperties": (lambda value, least: len(value) >= least, "must not be empty"),
    "maxLength": (lambda value, most: len(value) <= most, "must have at most {} characters{}"),
    "pattern": (lambda value, pattern: re.fullmatch(pattern, value), "must be one line of text{1}"),
    "maximum": (operator.le, "must be at most {:g}{}"),
    "exclusiveMaximum": (operator.lt, "must be below {:g}{}"),
    "minimum": (operator.ge, "must be at least {:g}{}"),
    "exclusiveMinimum": (operator.gt, "must be above {:g}{}"),
}


class SectionError(Exception):
    """What is wrong with a value, and with which key in it; a remedy may be quotes around it."""

    def __init__(self, what: str, *at: str, quotes: bool = False) -> None:
        super().__init__(what)
        self.what, self.at, self.quotes = what, at, quotes


said = SectionError  # `raise said("must be text")`: words that follow the name of a place


class Says(dict[str, Any]):
    """What an annotation adds to what JSON Schema says of its type."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # as `typing` asks of annotations


class _Key:
    def __init__(self, default: Any, factory: Callable[[], Any] | None) -> None:
        self.required = default is WRONG and factory is None
        self.value = factory or (lambda: default)


def field(
    *, description: str, default: Any = WRONG, default_factory: Callable[[], Any] | None = None
) -> Any:
    """A key of a section, of its annotation's kind; one without a default must be given."""
    says = Says(description=description, _key=_Key(default, default_factory))
    return says if default in (None, WRONG) else Says(says, default=default)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Section:
    """Keys and nothing but these; values of their kind and no other; not to be changed."""

    rule: ClassVar[Described] = {}  # what JSON Schema is to say beyond the keys
    given: ClassVar[frozenset[str]] = frozenset()  # the keys that were written; each has its own

    def __init_subclass__(cls) -> None:
        SECTIONS[cls.__name__] = cls

    def __init__(self, **keys: Any) -> None:
        self.__dict__.update(vars(read_section(type(self), Loaded(data=keys))))

    @classmethod
    def schema(cls) -> Described:
        """What JSON Schema says, and how its keys are read."""
        return _described_section(cls)  # type: ignore[arg-type]  # as it hashes its objects too

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From values that were read."""
        section, keys = object.__new__(cls), cls.schema()["properties"].items()
        section.__dict__.update({name: key["_key"].value() for name, key in keys})
        section.__dict__.update(values, given=frozenset(values))
        return section

    @staticmethod
    def refuse(data: Mapping[str, Any]) -> None:
        """Raise for keys that have no meaning any more."""

    def _check(self) -> None:
        """Raise for what the keys say against each other."""

    def updated(self, other: Section) -> Self:
        """With the keys that are given in another one as they are there."""
        before, after = ({n: getattr(one, n) for n in one.given} for one in (self, other))
        return self.of(before | after)

    def as_dict(self) -> dict[str, Any]:
        """The keys that were given, as plain data."""
        keys = self.schema()["properties"]
        return {name: _plain(getattr(self, name)) for name in keys if name in self.given}

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")


SECTIONS: dict[str, type[Section]] = {}


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


# --------------------------------------------------------------------------------- what is said


@cache
def _described_section(section: Any) -> Described:
    hints = get_type_hints(section, include_extras=True).items()
    keys = {name: (hint, getattr(section, name, None)) for name, hint in hints}
    properties = {n: _described(hint) | key for n, (hint, key) in keys.items() if type(key) is Says}
    required = [name for name, key in properties.items() if key["_key"].required]
    return {
        "type": "object",
        "description": cleandoc(section.__doc__ or ""),
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
        **section.rule,
    }


def _described(hint: Any) -> Described:
    """What JSON Schema says of an annotation."""
    origin, given = get_origin(hint), get_args(hint)
    if origin is Annotated:
        says = _described(given[0])
        for note in given[1:]:
            says = says | note
        return says
    if origin is Literal:
        return {"type": "string", "enum": given}
    if origin is tuple:
        return {"type": "array", "items": _described(given[0])}
    if origin is dict:
        keys, values = map(_described, given)
        names = {word: one for word, one in published(keys).items() if word != "type"}
        says = {"type": "object", "_keys": keys, "additionalProperties": values}
        return says | ({"propertyNames": names} if names else {})
    if origin in (Union, UnionType):
        kinds = [_described(one) for one in given if one is not NoneType]
        says = kinds[0] if len(kinds) == 1 else {"oneOf": kinds}
        return says | ({"_null": True} if NoneType in given else {})
    if hint in PLAIN:
        return {"type": PLAIN[hint]} if PLAIN[hint] else {}
    return {"$ref": f"#/$defs/{hint.__name__}"}


PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", Any: ""}


def published(says: Any) -> Any:
    """Without the words that JSON Schema does not know."""
    if isinstance(says, Mapping):
        kept = ("description", "default") if "_published" in says else says
        words = {word: says[word] for word in kept if word in says} | says.get("_published", {})
        return {word: published(one) for word, one in words.items() if word[0] != "_"}
    return [published(one) for one in says] if isinstance(says, list | tuple) else says


def places(says: Described, above: Place = ()) -> Iterator[Place]:
    """The places of all keys below, those nearest to the top first."""
    for form in (says, *says.get("oneOf", ())):
        if "$ref" in form:
            properties = _section(form).schema()["properties"]
            yield from ((*above, name) for name in properties)
            for name, inner in properties.items():
                yield from places(inner, (*above, name))
        elif "additionalProperties" in form:
            yield from places(form["additionalProperties"], (*above, "<name>"))


def _section(says: Described) -> type[Section]:
    return SECTIONS[says["$ref"].rpartition("/")[2]]


# --------------------------------------------------------------------------------------- reading


def read_section(section: type[S], loaded: Loaded, *told: Fault) -> S:
    """A section of data that were loaded; `told` are the faults that are known already."""
    reader = _Reader(_described(section), loaded)
    read: S = reader.read(reader.whole, loaded.data, ())
    faults = [*told, *reader.faults]
    if faults:
        raise failure(faults, loaded)
    return read


class _Reader:
    """Reads values by what JSON Schema says of them, and notes every fault on the way."""

    def __init__(self, whole: Described, loaded: Loaded) -> None:
        self.whole, self.loaded = whole, loaded
        self.faults: list[Fault] = []

    def read(self, says: Described, value: Any, place: Place) -> Any:
        """The value as sections keep it, or `WRONG` beside at least one fault."""
        try:
            return self._read(says, value, place)
        except SectionError as error:
            text = self.loaded.texts.get(place, shown(value).strip("'"))
            what = f"{error.what}; put `{text}` in quotes" if error.quotes else error.what
            self.faults.append(Fault((*place, *error.at), what))
            return WRONG

    def _read(self, says: Described, value: Any, place: Place) -> Any:
        if value is None and "_null" in says:
            return None
        if "_look" in says:
            says["_look"](value)
        if "_reads" in says:
            return says["_reads"](value)
        forms = says.get("oneOf", [says])
        says = next((form for form in forms if _is(value, form.get("type", "object"))), forms[-1])
        kind = says.get("type", "object")
        if "enum" in says:
            return _word(value, says["enum"])
        if not _is(value, kind):
            if kind == "string" and isinstance(value, bool | int | float | datetime.date):
                raise said("must be text", quotes=True)
            raise said(f"must be {KINDS[kind][1]}{_got(value)}")
        if "$ref" in says:
            return self._read_section(_section(says), value, place)
        read: Any = value
        parts: tuple[Any, ...] = ()
        if kind == "string" and HALF_A_SIGN.search(value):
            raise said(f"cannot be used{_got(value)}")
        if kind == "number":
            read = float(value)
        elif kind == "array":
            items = says["items"]
            read = parts = tuple(self.read(items, one, (*place, i)) for i, one in enumerate(value))
        elif kind == "object":
            keys, values = says["_keys"], says["additionalProperties"]
            read = {
                self.read(keys, key, (*place, key)): self.read(values, one, (*place, key))
                for key, one in value.items()
            }
            parts = (*read, *read.values())
        for word, (holds, sentence) in RULES.items():
            if word in says and not holds(read, says[word]):
                raise said(sentence.format(says[word], _got(value)))
        return WRONG if any(part is WRONG for part in parts) else read

    def _read_section(self, section: type[Section], value: Any, place: Place) -> Any:
        section.refuse(value)
        keys, values, before = section.schema()["properties"], {}, len(self.faults)
        texts = (name for name in value if isinstance(name, str))
        unknown = {name: nearest(name, keys) for name in texts if name not in keys}
        for name, says in keys.items():
            if name in value:
                values[name] = self.read(says, value[name], (*place, name))
            elif says["_key"].required and name not in unknown.values():  # written with a mistake
                self.faults.append(Fault((*place, name), "is missing", rank=2))
        for name in value:
            if name in unknown:
                what = self._unknown(name, unknown[name], keys)
                self.faults.append(Fault((*place, name), what, rank=0))
            elif name not in keys:
                self.read({"type": "string"}, name, (*place, name))
        if len(self.faults) > before:
            return WRONG
        read = section.of(values)
        read._check()
        return read

    def _unknown(self, key: str, near: str | None, known: Iterable[str]) -> str:
        """What to say of a key that has no place there: which was meant, or where it belongs."""
        if near:
            return f"is not a known key; did you mean `{near}`?"
        home = next((home for home in places(self.whole) if home[-1] == key), None)
        if home is None:
            return f"is not a known key; known here are {_listed(known)}"
        meant = f"did you mean `{'.'.join(map(str, home))}`?"
        top = "it belongs at the top of the file"
        return f"is not a known key here; {meant if home[1:] else top}"


def _is(value: object, kind: str) -> bool:
    """Whether Python has for a value what JSON Schema calls so."""
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "array" and isinstance(value, str | bytes | Mapping):
        return False
    return isinstance(value, KINDS[kind][0]) and (kind != "number" or _finite(value) is not None)


def _got(value: object) -> str:
    return f"; got {shown(value)}"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _word(value: Any, words: Sequence[str]) -> str:
    near = None
    if isinstance(value, str):
        if value in words:
            return value
        near = nearest(value, words)
    hint = f"; did you mean `{near}`?" if near else ""
    raise said(f"must be one of {_listed(words)}{_got(value)}{hint}")


def _finite(value: Any) -> float | None:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _label(value: Any) -> Any:
    """Text, or a whole number that is one in every file."""
    if isinstance(value, bool | float | datetime.date):
        raise said("is not a label to YAML", quotes=True)
    if isinstance(value, str) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    raise said(f"must be text or a whole number of 64 bits{_got(value)}")


def _edge(value: Any) -> Any:
    """A number, or text for a day."""
    edge = value if isinstance(value, str) else _finite(value)
    if edge is None:
        raise said(f"must be a finite number, or a day in quotes{_got(value)}")
    return edge


def only(fits: Callable[[Any], Any], rule: str, *, quoted: bool = True, **says: Any) -> Says:
    """A look whether a value fits a rule; the sentence quotes what it is."""

    def look(value: object) -> None:
        if not fits(value):
            raise said(f"{rule}{_got(value)}" if quoted else rule)

    return Says(says, _look=look)


Text = Annotated[str, Says(minLength=1)]
Value = Annotated[str | int, Says(_reads=_label, _published={"type": ["string", "integer"]})]
Positive = Annotated[float, Says(exclusiveMinimum=0)]
Share = Annotated[float, Says(exclusiveMinimum=0, maximum=1)]
Persons = Annotated[int, Says(minimum=1, exclusiveMaximum=2**31)]
Texts = tuple[Text, ...]
Values = Annotated[tuple[Value, ...], Says(minItems=1)]
Edge = Says(_reads=_edge, _published={"type": ["number", "string"], "pattern": DAY})
Edges = tuple[Annotated[Any, Edge], ...]
Margins = tuple[Texts, ...]
Weights = Annotated[
    tuple[Annotated[float, Says(minimum=1e-12, maximum=1e12)], ...], Says(minItems=1)
]
Labels = Annotated[
    Values | Text | Annotated[dict[Value, Text], Says(minProperties=1)],
    only(
        lambda value: isinstance(value, str | list | tuple | Mapping),
        "must be a list of labels, the path of a code list, or `from-data`",
        quoted=False,
    ),
]
Levels = Annotated[
    Texts | dict[Text, dict[Value, Values]],
    only(
        lambda value: isinstance(value, Mapping | list | tuple),
        "must be a list of columns of the code list, or give every level its groups",
        quoted=False,
    ),
]
Title = Annotated[str, Says(minLength=1, maxLength=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
Titles = Annotated[
    Title | Annotated[dict[Text, Title], Says(minProperties=1)],
    only(lambda it: isinstance(it, str | Mapping), "must be a text, or give names their titles"),
]
