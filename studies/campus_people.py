"""A simulated day on a campus: 3,243 people, 24 hours, 20 buildings.

The WiFi log of the paper's demonstration is not to be had, so people are made up. Every parameter
stands in this file and is public; a seed decides the rest. Nobody real is in it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.cluster.vq import kmeans, vq
from scipy.spatial.distance import cdist

from subspacedp.errors import DataError
from subspacedp.frozen import frozen

__all__ = [
    "BUILDINGS",
    "ELSEWHERE",
    "HOURS",
    "KINDS",
    "PEOPLE",
    "Kind",
    "k_means",
    "presence",
    "simulate",
]

PEOPLE, HOURS, SEED = 3243, 24, 2022
ELSEWHERE = -1  # off campus, outdoors, or not seen by any access point

HALLS = ("Hall A", "Hall B", "Hall C", "Hall D", "Hall E", "Hall F")
LECTURES = ("Lectures 1", "Lectures 2", "Lectures 3", "Lectures 4")
WORK = ("Science", "Engineering", "Arts", "Medicine")
CANTEENS = ("Canteen N", "Canteen S")
BUILDINGS = (*HALLS, *LECTURES, *WORK, *CANTEENS, "Library", "Gym", "Centre", "Offices")
PLACE = {name: number for number, name in enumerate(BUILDINGS)}
OTHERWISE = 0.15  # of hours: not as planned, but one of `CHANGES`; v is a visit to any building
UNSEEN = 0.05  # of hours: the telephone was off
CHANGES = ("h", "b", "c", "v", ".")
FloatArray = npt.NDArray[np.float64]


@frozen(kw_only=True)
class Kind:
    """One kind of person: how common, where they live and work, and how their day may look.

    A day has 24 letters, one an hour from midnight on: h home, l lecture, w work, m meal,
    b library, g gym, c student centre, o offices, and a dot for elsewhere. Each person has one of
    the kind's days, moved by up to an hour.
    """

    name: str
    share: float
    homes: tuple[str, ...]  # none: they live off campus, and at home they are elsewhere
    work: tuple[str, ...]
    days: tuple[str, ...]


#                   0     6     12    18    (hours)
KINDS = (
    Kind(
        name="first years", share=0.22, homes=("Hall A", "Hall B"), work=("Lectures 1",),
        days=("hhhhhhhmllllmllbbgmcchhh", "hhhhhhhhmlllmlllbbmbbhhh", "hhhhhhhmllbbmllgghmcccch"),
    ),
    Kind(
        name="later years", share=0.28, homes=("Hall B", "Hall C", "Hall D"), work=LECTURES[1:],
        days=("hhhhhhhhmllbmllbbcmbbbhh", "chhhhhhhhmlllmllggmccccc", "hhhhhhhhmbblmwwwwgmbbbhh"),
    ),
    Kind(
        name="graduates", share=0.24, homes=("Hall E", "Hall F"), work=WORK,
        days=("hhhhhhhhwwwwmwwwwwmwwhhh", "whhhhhhhhhwwmwwwwwmwwwww", "hhhhhhhgmwwwmwwwbbmbbhhh"),
    ),
    Kind(
        name="commuters", share=0.12, homes=(), work=("Lectures 2", "Lectures 4"),
        days=("........lllbmllbb.......", ".........bllmllbbbc.....", "............mlllbbbb...."),
    ),
    Kind(
        name="staff", share=0.11, homes=(), work=(*WORK, "Offices"),
        days=("........wwwwmwwww.......", ".......wwwwwmwwoowg....."),
    ),
    Kind(
        name="night shift", share=0.03, homes=(), work=("Offices", "Science", "Medicine"),
        days=("wwwmwww...............ww",),
    ),
)  # fmt: skip


def simulate(people: int = PEOPLE, seed: int = SEED) -> npt.NDArray[np.int8]:
    """The building every person is in, every hour of one day.

    Returns
    -------
    array (people, 24)
        Numbers of `BUILDINGS`, or `ELSEWHERE`: a person is in at most one building an hour, so has
        at most 24 records, and at most one in any cell of hour × building.

    Examples
    --------
    >>> day = simulate()
    >>> day.shape, int(day.min()) == ELSEWHERE, int(day.max()) < len(BUILDINGS)
    ((3243, 24), True, True)
    """
    if people < 1:
        raise DataError("A campus has at least one person.")
    random = np.random.default_rng(seed)
    kinds = random.choice(len(KINDS), size=people, p=[kind.share for kind in KINDS])
    days = np.full((people, HOURS), ELSEWHERE, np.int8)
    for number, kind in enumerate(KINDS):
        who = np.flatnonzero(kinds == number)
        days[who] = _days(kind, len(who), random)
    days[random.random(days.shape) < UNSEEN] = ELSEWHERE
    return days


def _days(kind: Kind, people: int, random: np.random.Generator) -> npt.NDArray[np.int8]:
    """The days of people of one kind."""
    days = np.array([list(day) for day in kind.days])
    letters = days[random.integers(len(days), size=people)]
    moved = (np.arange(HOURS) - random.integers(-1, 2, size=people)[:, None]) % HOURS
    letters = np.take_along_axis(letters, moved, axis=1)
    changed = random.random(letters.shape) < OTHERWISE
    letters = np.where(changed, random.choice(CHANGES, size=letters.shape), letters)
    # One home, one place of work, one canteen and one timetable a person.
    canteen = [PLACE[name] for name in CANTEENS]
    halls = [PLACE[name] for name in LECTURES]
    timetable = random.choice(halls, size=(6, HOURS))[random.integers(6, size=people)]
    own = {
        "h": _one(kind.homes, people, random),
        "w": _one(kind.work, people, random),
        "m": random.choice(canteen, size=(people, 1), p=(0.6, 0.4)),
        "b": PLACE["Library"],
        "g": PLACE["Gym"],
        "c": PLACE["Centre"],
        "o": PLACE["Offices"],
        "l": timetable,
        "v": random.integers(len(BUILDINGS), size=(people, HOURS)),
    }
    places = np.full((people, HOURS), ELSEWHERE)
    for letter, place in own.items():
        places = np.where(letters == letter, place, places)
    return places.astype(np.int8)


def _one(
    names: tuple[str, ...], people: int, random: np.random.Generator
) -> npt.NDArray[np.int64] | int:
    places = [PLACE[name] for name in names]
    return random.choice(places, size=(people, 1)) if places else ELSEWHERE


def presence(days: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
    """Behaviour as vectors: whether a person was in each building in each hour.

    >>> presence(simulate(5)).shape
    (5, 480)
    """
    seen = days[:, :, None] == np.arange(len(BUILDINGS))
    return np.asarray(seen.reshape(len(days), -1), np.float64)


def k_means(points: FloatArray, groups: int, seed: int = 1) -> npt.NDArray[np.int64]:
    """The group of every point, numbered from the largest to the smallest.

    Lloyd's algorithm from a k-means++ start; the same points, number and seed give the same groups.

    Whoever computes groups from people's data has looked at the data. A group is then a figure like
    any other: its label tells about the person in it, and about everybody who shaped the centres.
    Nothing here is protected, and a publication needs groups that are known beforehand.

    Examples
    --------
    >>> k_means(np.array([[0.0], [0.1], [0.2], [9.0], [9.1]]), 2).tolist()
    [0, 0, 0, 1, 1]
    """
    if not 1 <= groups <= len(np.unique(points, axis=0)):
        raise DataError("There must be at least one group, and no more than different points.")
    start = _spread(points, groups, np.random.default_rng(seed))
    centres, _ = kmeans(points, start, thresh=0.0)  # until nothing improves
    nearest, _ = vq(points, centres)
    order = np.argsort(-np.bincount(nearest, minlength=groups), kind="stable")
    return np.asarray(np.argsort(order)[nearest])


def _spread(points: FloatArray, groups: int, random: np.random.Generator) -> FloatArray:
    """Starting centres, each drawn with probability proportional to the squared distance so far."""
    chosen = [int(random.integers(len(points)))]
    least = cdist(points, points[chosen], "sqeuclidean").min(axis=1)
    while len(chosen) < groups:
        chosen.append(int(random.choice(len(points), p=least / least.sum())))
        least = np.minimum(least, cdist(points, points[chosen[-1:]], "sqeuclidean")[:, 0])
    return np.asarray(points[chosen])
