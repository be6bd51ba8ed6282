"""The published JSON Schema: in step with the models, and of one mind with the reader."""

import copy
import json

import jsonschema
import pytest
from tests.publication.test_specification import EXAMPLES

from subspacedp.publication import SpecificationError, read_specification, specification_schema
from subspacedp.publication.reading import load_yaml
from subspacedp.publication.schema import generated_schema

SCHEMA = json.loads(specification_schema())
CHECK = jsonschema.Draft202012Validator(SCHEMA)


def test_it_is_in_step_with_the_models():
    # To write it anew: subspacedp.publication.schema.write_schema()
    assert json.loads(generated_schema()) == SCHEMA


def test_it_is_a_schema_of_draft_2020_12():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"].endswith("2020-12/schema")


def test_every_key_is_described():
    for section in [SCHEMA, *SCHEMA["$defs"].values()]:
        assert section["additionalProperties"] is False
        assert section["description"]
        for key, value in section["properties"].items():
            told = value.get("description")
            if told is None:  # a section that is described where it is defined
                told = SCHEMA["$defs"][value["$ref"].rpartition("/")[2]]["description"]
            assert told.endswith("."), key


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_accepts_the_examples(name):
    CHECK.validate(load_yaml(EXAMPLES[name]).data)


def change(path, value):
    def act(data):
        for key in path[:-1]:
            data = data[key]
        if value is ...:
            del data[path[-1]]
        else:
            data[path[-1]] = value

    return act


TWINS = [
    ("records", ("data",), ...),
    ("records", ("axes",), {}),
    ("records", ("privacy",), {}),
    ("records", ("extra",), 1),
    ("records", ("axes", "sex", "lables"), ["F"]),
    ("records", ("axes", "sex", "labels"), []),
    ("records", ("axes", "sex", "labels"), [1.5]),
    ("records", ("axes", "sex", "labels"), [True]),
    ("records", ("axes", "sex", "labels"), 7),
    ("records", ("axes", "sex", "bins"), [1, 2]),
    ("records", ("axes", "sex", "column"), None),
    ("records", ("axes", "age", "bins"), ["0"]),
    ("records", ("axes", "county", "levels"), "state"),
    ("records", ("hold",), ["state"]),
    ("records", ("hold",), None),
    ("records", ("privacy", "rho"), 1),
    ("records", ("privacy", "epsilon"), 0),
    ("records", ("privacy", "epsilon"), ...),
    ("records", ("privacy", "delta"), 1),
    ("records", ("privacy", "neighbours"), "nobody"),
    ("records", ("mechanism",), "magic"),
    ("records", ("publish", "decimals"), 13),
    ("several", ("tables", "by_sex", "publish", "to"), "elsewhere"),
    ("records", ("data", "unit"), ...),
    ("records", ("data", "counts"), {"source": "a.csv"}),
    ("records", ("data", "records"), 0),
    ("records", ("sums", "income", "share"), ...),
    ("records", ("sums", "income", "share"), 1.5),
    ("records", ("budget", "account"), ...),
    ("wide", ("axes", "race", "column"), "x"),
    ("wide", ("data", "unit"), "row"),
    ("wide", ("data", "key"), "id"),
    ("wide", ("data", "table"), "t"),
    ("several", ("hold",), [["sex"]]),
    ("several", ("sums",), {"a": {"lower": 0, "upper": 1, "share": 0.1}}),
    ("several", ("tables", "by_sex", "axes"), []),
    ("several", ("tables", "by_sex", "share"), 0),
    ("several", ("tables",), {}),
    ("levels", ("levels",), ["county"]),
    ("levels", ("importance",), {"state": 2}),
    ("levels", ("mechanism",), "hierarchical"),
    ("levels", ("publish", "cells"), "at most"),
    ("levels", ("publish", "cells"), "at most 5"),
    ("levels", ("publish", "cells"), 1),
    ("levels", ("publish", "weights"), [1, -1, 1]),
    ("margins", ("publish", "margins"), []),
    ("margins", ("publish", "margins"), ...),
    ("margins", ("publish", "cells"), "no"),
    ("margins", ("publish", "weights"), []),
    ("margins", ("publish", "weights"), [1, 0]),
]


@pytest.mark.parametrize(("name", "path", "value"), TWINS)
def test_it_rejects_broken_twins_and_so_does_the_reader(name, path, value):
    data = load_yaml(EXAMPLES[name]).data
    twin = copy.deepcopy(data)
    change(path, value)(twin)
    assert CHECK.is_valid(data)
    assert not CHECK.is_valid(twin)
    with pytest.raises(SpecificationError):
        read_specification(twin)


def test_null_decimals_are_real_values():
    data = load_yaml(EXAMPLES["records"]).data
    data["publish"]["decimals"] = None
    assert CHECK.is_valid(data)
    assert read_specification(data).table().publish.decimals is None
