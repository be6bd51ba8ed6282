"""Frozen classes are what `dataclasses` would have made of them."""

import copy
import dataclasses
import inspect
import pickle
import re
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar

import pytest

import subspacedp
from subspacedp.frozen import frozen


def classes(make):
    """A base, a derived class and one that says more by itself, made by `make`."""

    @make(kw_only=True)
    class Base:
        """A base."""

        missing: int
        self_made: dict[str, int] = field(default_factory=dict)
        kind: ClassVar[str] = "base"

    @make()
    class Derived(Base):
        """A derived class: its fields stand before those by name alone."""

        values: object
        default: str = "d"
        later: int = field(init=False)
        listed: list[int] = field(default_factory=list, init=False)
        last: int = field(default=7, kw_only=True)

        def __post_init__(self):
            object.__setattr__(self, "later", self.missing + 1)

        @cached_property
        def twice(self):
            return 2 * self.missing

    @make(eq=False, repr=False)
    class Alone(Base):
        """Equal to itself alone."""

    @make()
    class Own(Base):
        """With methods of its own."""

        def __eq__(self, other):
            return True

        def __repr__(self):
            return "own"

    return Base, Derived, Alone, Own


OURS, THEIRS = classes(frozen), classes(partial(dataclass, frozen=True))


def _made(kind, given, named):
    """An object, or why there is none."""
    try:
        return kind(*given, **named)
    except TypeError as error:
        return str(error)


@frozen
class Pair:
    """At the top of a module, where `pickle` finds it."""

    first: int
    second: int


@pytest.mark.parametrize(
    ("number", "given", "named"),
    [
        (0, (), {"missing": 1}),
        (0, (), {"missing": 1, "self_made": {"a": 1}}),
        (0, (1,), {}),
        (0, (), {}),
        (0, (), {"missing": 1, "other": 2}),
        (1, (1,), {"missing": 2}),
        (1, (1, "e"), {"missing": 2, "last": 3}),
        (1, (1, "e", 3), {"missing": 2}),
        (1, (1,), {"missing": 2, "later": 3}),
        (1, (), {"missing": 2}),
        (2, (), {"missing": 1}),
        (3, (), {"missing": 1}),
    ],
)
def test_what_is_made_is_what_dataclasses_makes(number, given, named):
    ours, theirs = OURS[number], THEIRS[number]
    sides = [_made(ours, given, named), _made(theirs, given, named)]
    if isinstance(sides[1], str):
        assert sides[0] == sides[1]
        return
    one, expected = sides
    assert vars(one) == vars(expected)
    assert dataclasses.asdict(one) == dataclasses.asdict(expected)
    assert vars(dataclasses.replace(one, missing=9)) == vars(
        dataclasses.replace(expected, missing=9)
    )
    assert copy.deepcopy(one).missing == one.missing
    if number < 2:
        assert repr(one).partition(".classes.")[2] == repr(expected).partition(".classes.")[2]
    again, other = ours(*given, **named), dataclasses.replace(one, missing=9)
    for a in (one, again, other):
        expects = dataclasses.replace(expected, missing=a.missing) if a is not one else expected
        assert (one == a) == (expected == expects)
    assert (ours.__hash__ is object.__hash__) == (theirs.__hash__ is object.__hash__)


@pytest.mark.parametrize("number", range(4))
def test_the_classes_offer_the_same(number):
    ours, theirs = OURS[number], THEIRS[number]
    assert ours.__match_args__ == theirs.__match_args__
    sides = [
        [(p.name, p.kind) for p in inspect.signature(side).parameters.values()]
        for side in (ours, theirs)
    ]
    assert sides[0] == sides[1]
    options = ("name", "init", "repr", "compare", "kw_only")
    sides = [
        [tuple(getattr(f, o) for o in options) for f in dataclasses.fields(s)]
        for s in (ours, theirs)
    ]
    assert sides[0] == sides[1]


def test_nothing_is_changed_afterwards():
    one = OURS[1](1, missing=2)
    for name in ("missing", "later", "new"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"assign to field '{name}'"):
            setattr(one, name, 3)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"delete field '{name}'"):
            delattr(one, name)
    assert one.twice == 4
    assert one.missing == 2


def test_equal_pairs_have_one_hash_and_come_back_from_a_pickle():
    assert len({Pair(1, 2), Pair(1, 2), Pair(2, 1)}) == 2
    assert pickle.loads(pickle.dumps(Pair(1, 2))) == Pair(1, 2)  # noqa: S301 - our own
    assert Pair(1, 2) != (1, 2)
    assert repr(Pair(1, Pair(2, 3))) == "Pair(first=1, second=Pair(first=2, second=3))"


def test_a_pair_is_made_faster_for_every_class_of_the_package():
    """No module asks `dataclasses` for a frozen class, which costs three times as much."""
    modules = Path(subspacedp.__file__).parent.rglob("*.py")
    asks = re.compile(r"^ *@dataclass\(.*frozen", re.M)
    assert [m.name for m in modules if asks.search(m.read_text("utf-8"))] == []


def test_init_is_made_when_it_is_first_asked_for():
    @frozen
    class Base:
        """Never asked."""

        one: int

    @frozen
    class Derived(Base):
        """Asked twice."""

        other: int = 2

    assert not inspect.isfunction(vars(Derived)["__init__"])
    first = vars(Derived)["__init__"]
    assert (Derived(1).other, Derived(1, other=3)) == (2, Derived(1, 3))
    assert inspect.isfunction(vars(Derived)["__init__"])
    late = object.__new__(Derived)
    first.__get__(late)(4)  # by a thread that had begun to ask before
    assert late == Derived(4)
    assert not inspect.isfunction(vars(Base)["__init__"])
