"""Specifications that somebody damaged: one sentence each, never a traceback, a hang or a value."""

import copy
import time

import numpy as np
import pytest
import yaml

from subspacedp.errors import SubspaceDPError
from subspacedp.publication import plan, read_specification

QUICK, MANY = 120, 5_000
LONGEST = 20.0  # seconds of a processor for one specification

BASE = {
    "title": "Persons by county and sex",
    "data": {"source": "persons.csv", "unit": "person", "records": 2},
    "axes": {
        "county": {"labels": ["a", "b", "c"], "levels": {"state": {"P": ["a", "b"], "Q": ["c"]}}},
        "sex": {"labels": ["F", "M"]},
        "age": {"column": "AGE", "bins": [0, 18, 65]},
    },
    "hold": [["state"], []],
    "privacy": {"rho": 0.1, "neighbours": "replace-one"},
    "mechanism": "auto",
    "publish": {"decimals": 0, "margins": [["state", "sex"]], "to": "release/"},
}
SEVERAL = {
    "data": {"source": "persons.parquet", "unit": "row"},
    "axes": {"county": {"labels": ["a", "b"]}, "sex": {"labels": ["F", "M"]}},
    "privacy": {"epsilon": 0.5},
    "tables": {
        "one": {"axes": ["county"], "share": 0.5, "hold": [[]]},
        "two": {"axes": ["county", "sex"], "share": 0.5, "publish": {"decimals": 1}},
    },
}
WRONG = (
    None, True, False, 0, -1, 1, 2**31, 2**70, -0.0, 1e-320, 1e308, float("inf"), float("nan"), "",
    " ", "a", "auto", "../../x", "\x00", "é" * 300, [], [[]], [None], [["state"]] * 3, {}, {"a": 1},
    {"": None}, "at most +5 %", "hierarchical", "1e999999999", 10**400, [list(range(50))] * 20,
)  # fmt: skip


def places(data, at=()):
    """Every place in nested data."""
    yield at
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for key, value in items:
        yield from places(value, (*at, key))


def damaged(rng):
    """A specification with one to three things wrong: values, keys, or characters of its text."""
    data = copy.deepcopy(BASE if rng.random() < 0.7 else SEVERAL)
    for _ in range(int(rng.integers(1, 4))):
        at = list(places(data))[1:]
        if not at:
            break
        path = at[int(rng.integers(len(at)))]
        inner = data
        for key in path[:-1]:
            inner = inner[key]
        what = rng.integers(4)
        if what == 0:
            inner[path[-1]] = copy.deepcopy(WRONG[int(rng.integers(len(WRONG)))])
        elif what == 1:
            del inner[path[-1]]
        elif what == 2 and isinstance(inner, dict):
            inner[f"{path[-1]}x"] = inner.pop(path[-1])
        elif isinstance(inner, list):
            inner.append(copy.deepcopy(inner[path[-1]]))
    text = yaml.safe_dump(data, allow_unicode=True, sort_keys=False)
    if rng.random() < 0.3:
        spot = int(rng.integers(len(text)))
        text = text[:spot] + str(rng.choice(list("{}[]:&*!|>%@`\t\"'#-"))) + text[spot + 1 :]
    return text


def check(folder, text):
    path = folder / "publication.yaml"
    path.write_text(text, "utf-8", errors="replace")
    started, sentence = time.process_time(), None
    try:
        plan(read_specification(path))
    except SubspaceDPError as error:
        sentence = str(error)
    assert time.process_time() - started < LONGEST
    if sentence is None:
        return "planned"
    assert "Traceback" not in sentence
    assert len(sentence) < 20_000
    return "refused"


def run_many(folder, number, seed):
    rng = np.random.default_rng(seed)
    outcomes = [check(folder, damaged(rng)) for _ in range(number)]
    assert outcomes.count("refused") > number // 3
    assert outcomes.count("planned") > 0


def test_some_damaged_specifications_are_one_sentence_each(tmp_path):
    run_many(tmp_path, QUICK, seed=17)


@pytest.mark.soak
def test_many_damaged_specifications_are_one_sentence_each(tmp_path):
    run_many(tmp_path, MANY, seed=18)


def test_what_is_not_damaged_is_planned(tmp_path):
    for data in (BASE, SEVERAL):
        assert check(tmp_path, yaml.safe_dump(data, sort_keys=False)) == "planned"
