"""From records to a verified release by following only what each command prints."""

import csv
import datetime
import random
import re
import shlex
from collections import Counter

import numpy as np

import subspacedp as sdp

SURE = 1e-9  # the chance that the test fails with intervals that are right
PLACES = {f"{number:03d}": f"Kreis {'äöü'[number % 3]}" for number in range(1, 25)}


def records(persons=9_000, seed=5):
    """Fifteen columns as they come: gaps, dates, leading zeros, nested places, three visits."""
    draw = random.Random(seed)
    for person in range(persons):
        place = draw.choice(list(PLACES))
        born = datetime.date(1930, 1, 1) + datetime.timedelta(days=draw.randrange(30_000))
        fixed = {
            "person_id": f"{person:06d}",
            "name": f"N{draw.random():.12f}",
            "place": draw.choice([place] * 9 + [""]),
            "district": PLACES[place],
            "sex": draw.choice(["F", "M", "M", "F", ""]),
            "born": born.isoformat(),
            "state": draw.choice(["Zürich", "Genève", "Graubünden/Grischun", "it's"]),
            "citizen": draw.choice(["true", "false"]),
        }
        for _ in range(draw.choice([1, 1, 1, 2, 3])):
            seen = datetime.date(2023, 11, 1) + datetime.timedelta(days=draw.randrange(200))
            yield fixed | {
                "visit": seen.isoformat(),
                "age": draw.choice([draw.randrange(100), ""]),
                "reason": draw.choice(["01", "02", "1", " "]),
                "income": f"{draw.random() * 1e5:.2f}",
                "children": draw.randrange(6),
                "empty": "",
                "score": draw.choice([1, 2, 3]),
            }


def label(row, name):
    """The label of a row on an axis or level, in plain Python."""
    text = str(row["visit" if name == "year" else "place" if name == "district" else name]).strip()
    if not text:
        return "not stated"
    if name == "district":
        return PLACES[text]
    if name == "age":
        edges = [0, 5, 18, 25, 45, 65, 85, 200]
        at = next(i for i in range(7) if int(text) < edges[i + 1])
        return "85+" if at == 6 else f"{edges[at]}-{edges[at + 1] - 1}"
    if name == "born":
        start = int(text[:3] + "0")
        return (
            f"{start}-01-01 and later"
            if text[:3] == LAST[:3]
            else f"{start}-01-01 to {start + 9}-12-31"
        )
    return {"year": text[:4], "visit": text[:7]}.get(name, text)


ROWS = list(records())
LAST = max(row["born"] for row in ROWS)


def test_init_plan_release_verify_by_what_is_printed(call, tmp_path):
    with (tmp_path / "persons.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)
    command, verbs = "subspacedp init persons.csv", []
    while command:
        _, *arguments = shlex.split(command)
        status, out, err = call(*arguments)
        assert status == 0, (command, out, err)
        verbs.append(arguments[0])
        following = re.search(r"^Next: (.*)$", out, re.MULTILINE)
        command = following and following[1]
    assert verbs == ["init", "plan", "audit", "release", "verify"]

    proposed = (tmp_path / "publication.yaml").read_text("utf-8")
    public, _, confidential = proposed.partition("# Seen in the data, without any protection")
    for left in ("name", "income", "empty"):
        assert f"# Left out: {left}: " in confidential
        assert f"  {left}: " not in public
    assert "levels: [district]" in public
    assert "records: 3" in public
    release = sdp.load(tmp_path / arguments[1])
    margins = [m.names for m in release.mechanism.query.margins]
    assert ("district",) in margins
    figures = inside = far = 0
    for names in margins:
        margin = release.margin(*names)
        frame = margin.to_frame("pandas")
        truth = Counter(tuple(label(row, name) for name in names) for row in ROWS)
        labels = list(frame[list(names)].astype(str).itertuples(index=False, name=None))
        want = np.array([truth.pop(key, 0) for key in labels])
        assert not truth, names  # every record is counted
        value = frame["value"].to_numpy()
        assert value.sum() == len(ROWS)  # the total is exact in every margin
        for low, high, number in (interval(margin, 0.95), interval(margin, 1 - SURE / 10_000)):
            within = (low <= want) & (want <= high)
            if number == 0.95:
                figures, inside = figures + want.size, inside + int(within.sum())
            else:
                assert within.all(), names
                third = np.abs(value - want) > (high - low) / 6  # a twin of a third of the noise
                far += int(third.sum())
    assert figures < 10_000
    assert far > 0
    # Of thousands of figures about 95 in 100; their share varies by less than one in 100.
    assert 0.92 < inside / figures < 0.98


def interval(margin, level):
    low, high = margin.interval(level)
    return np.ravel(low), np.ravel(high), level
