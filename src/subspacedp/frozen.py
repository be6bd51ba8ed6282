"""Classes of fields that cannot be changed, as `dataclasses` has them, made in less of its time.

A command makes hundreds of classes before it does anything. For each, `dataclasses` writes and
compiles up to six functions; here that is `__init__` alone, when it is first asked for, and the
others are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from functools import wraps
from operator import attrgetter
from reprlib import recursive_repr
from types import MethodType
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

__all__ = ["frozen", "remembered"]


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T], /) -> type[T]: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    *, eq: bool = True, repr: bool = True, kw_only: bool = False
) -> Callable[[type[T]], type[T]]: ...
def frozen(
    cls: Any = None,
    /,
    *,
    eq: bool = True,
    repr: bool = True,  # noqa: A002 - the names are those of `dataclass`
    kw_only: bool = False,
) -> Any:
    """A class whose annotations are its fields: what `@dataclass(frozen=True, ...)` makes.

    `fields`, `replace` and `asdict` of `dataclasses` take it. A class that is derived from it is
    made here too.
    """

    def made(cls: Any) -> Any:
        cls = dataclass(cls, init=False, repr=False, eq=False, kw_only=kw_only)
        if "__init__" not in vars(cls):
            cls.__init__ = _Init(cls)
        if repr and "__repr__" not in vars(cls):
            cls.__repr__ = _repr
        if eq:
            _compare(cls)
        cls.__setattr__, cls.__delattr__ = _assign, _delete
        return cls

    return made if cls is None else made(cls)


def remembered(method: Method) -> Method:
    """A method whose answers its object keeps, by the arguments, which are given in order."""
    name = f"_answers_of_{method.__name__}"

    @wraps(method)
    def asked(self: Any, *given: Any) -> Any:
        known = self.__dict__.setdefault(name, {})
        if given not in known:
            known[given] = method(self, *given)
        return known[given]

    return asked  # type: ignore[return-value]


class _Init:
    """Makes way for `__init__`; if two threads ask at once, both make the same."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls

    def __get__(self, one: object, kind: type | None = None) -> Any:
        init = self.cls.__init__ = _init(self.cls)
        return init if one is None else MethodType(init, one)


def _init(cls: type) -> Callable[..., None]:
    """What sets the fields: one argument for each, in their order or by name."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_not_given": MISSING}
    given: dict[bool, list[str]] = {False: [], True: []}  # whether by name alone
    body = []
    for one in fields(cls):
        value, default = one.name, f"_of_{one.name}"
        if one.default_factory is not MISSING:
            known[default] = one.default_factory
            value = f"{default}()"
            if one.init:
                value += f" if {one.name} is _not_given else {one.name}"
            default = "_not_given"
        elif one.default is not MISSING:
            known[default] = one.default
        else:
            default = ""
        if one.init:
            given[bool(one.kw_only)].append(f"{one.name}={default}" if default else one.name)
        if one.init or one.default_factory is not MISSING:
            body.append(f"_set(self, {one.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    by_name = ["*", *given[True]] if given[True] else []
    head = f"def __init__({', '.join(['self', *given[False], *by_name])}):"
    exec("\n ".join([head, *body, "pass"]), known)  # noqa: S102 - of names of fields, as `dataclasses` does
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return known["__init__"]  # type: ignore[no-any-return]


def _compare(cls: Any) -> None:
    """Equal are two of one class with equal fields, unless the class says otherwise."""
    values = attrgetter("__class__", *(one.name for one in fields(cls) if one.compare))

    def equal(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    def hashed(self: Any) -> int:
        return hash(values(self))

    if "__eq__" not in vars(cls):
        cls.__eq__ = equal
    if vars(cls).get("__hash__") is None:
        cls.__hash__ = hashed


@recursive_repr()
def _repr(self: Any) -> str:
    values = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _assign(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
