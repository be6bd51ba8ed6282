"""The error model as data gives the standard errors of the package, by a few lines of NumPy."""

import json
from math import prod

import jsonschema
import numpy as np
import pytest
from tests.release.fitted import FITTED

import subspacedp as sdp
from subspacedp.release import verify_folder
from subspacedp.release.certificate import (
    ERROR_MODEL,
    error_model,
    error_model_schema,
    error_model_text,
    same_model,
)
from subspacedp.stated import digest_of

SCHEMA = jsonschema.Draft202012Validator(json.loads(error_model_schema()))


def model_of(name):
    return json.loads(error_model_text(FITTED[name]().mechanism))


def sparse(data):
    out = np.zeros(data["shape"])
    out[data["rows"], data["columns"]] = data["values"]
    return out


def groups(domain, names):
    """The number of the group of every cell, in row-major order."""
    code = np.zeros(domain.shape, np.int64)
    for a, axis in enumerate(domain.axes):
        for level in axis.chain:
            if level.name in names:
                shape = [-1 if b == a else 1 for b in range(len(domain.axes))]
                code = code * level.groups + np.reshape(level.codes, shape)
    return code.ravel()


def indicator_rows(domain, margins):
    """One row for every group of some margins, groupings among them."""
    units = np.eye(domain.size).reshape(-1, *domain.shape)
    columns = [
        np.concatenate([domain.margin(*names).sum(one).ravel() for names in margins])
        for one in units
    ]
    return np.stack(columns, axis=1)


def inside(model, domain, w):
    noise = model["noise"]
    if noise["kind"] == "crossing":
        C = indicator_rows(domain, noise["margins"])
        return w - np.linalg.pinv(C) @ (C @ w)
    if noise["kind"] == "matrix":
        return np.reshape(noise["matrix"]["values"], noise["matrix"]["shape"]).T @ w
    if noise["kind"] == "rows":
        C = sparse(noise["rows"])
        return w - np.linalg.pinv(C) @ (C @ w) if len(C) else w
    for names in noise["margins"]:
        code = groups(domain, names)
        w = w - (np.bincount(code, w) / np.maximum(np.bincount(code), 1))[code]
    return w * np.array(noise.get("deviations", 1.0))


def rounding_variance(model, domain, w):
    rounding = model["rounding"]
    if rounding is None:
        return 0.0
    if rounding["kind"] == "rows":
        return (sparse(rounding["rows"]) @ w) ** 2 @ np.array(rounding["variances"])
    names = [axis.name for axis in domain.axes]
    members = [names.index(m) for axis in rounding["axes"] for m in axis["members"]]
    table = w.reshape(domain.shape).transpose(members)
    table = table.reshape([len(axis["order"]) for axis in rounding["axes"]])
    for a, axis in enumerate(rounding["axes"]):
        table = -np.diff(np.take(table, axis["order"], axis=a), axis=a, append=0.0)
    return (table.ravel() * rounding["step"]) ** 2 @ np.array(rounding["variances"])[
        rounding["variance_of"]
    ]


def stderr(model, domain, w):
    left = inside(model, domain, w)
    if left @ left <= model["zero"] * (w @ w):
        return 0.0
    noise = model["noise"]["variance"] * (left @ left)
    return np.sqrt(noise + rounding_variance(model, domain, w))


@pytest.mark.parametrize("name", FITTED)
def test_it_is_as_its_schema_says_and_the_same_on_every_machine(name):
    model = model_of(name)
    assert list(SCHEMA.iter_errors(model)) == []
    assert same_model(error_model(FITTED[name]().mechanism), model)
    assert model["design_sha256"] == json.loads(
        json.dumps(digest_of(FITTED[name]().mechanism.as_dict()))
    )


PLAIN = [
    name for name in FITTED
    if not name.startswith(("marginals", "imposed unknown"))
]  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_standard_errors_follow_from_it(name):
    mechanism, model = FITTED[name]().mechanism, model_of(name)
    domain = mechanism.query.axes
    rng = np.random.default_rng(4)
    size = mechanism.query.size
    kept = 0
    for w in (np.ones(size), *np.eye(size), *rng.normal(size=(5, size))):
        wanted = mechanism.accuracy(w.reshape(mechanism.query.shape)).stderr
        assert stderr(model, domain, w) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
        wrong = {
            **model,
            "noise": {**model["noise"], "variance": model["noise"]["variance"] * 1.001},
        }
        kept += stderr(wrong, domain, w) == pytest.approx(wanted, rel=1e-6) and wanted > 0
    assert kept == 0


def test_roundings_of_several_tables_are_a_matrix():
    mechanism, model = FITTED["marginals digits"]().mechanism, model_of("marginals digits")
    rng = np.random.default_rng(4)
    for w in rng.integers(0, 2, (5, mechanism.query.size)).astype(float):
        coefficients, variance = mechanism.noise.roundings(w)
        assert rounding_variance(model, None, w) == pytest.approx(coefficients**2 @ variance)


@pytest.mark.parametrize(
    "name", ["projected total", "projected crossing digits", "marginals cells digits"]
)
def test_of_many_cells_roundings_are_bounded(name, monkeypatch):
    mechanism = FITTED[name]().mechanism
    monkeypatch.setattr(type(mechanism.rounding), "most_stated", 3)
    model = error_model(mechanism)
    assert list(SCHEMA.iter_errors(model)) == []
    assert model["rounding"]["kind"] == "at most"
    assert model["rounding"]["variance"] >= mechanism.rounding.variance().max() * (1 - 1e-12)


def test_it_costs_nothing_for_a_large_table():
    """10¹⁰ cells: nothing of their number is made."""
    domain = sdp.Domain([sdp.Axis(name, range(2154)) for name in "abc"])
    held = sdp.hold("a", "b") & sdp.hold("c")
    mechanism = sdp.design(domain, held, sdp.PureDP(1.0), decimals=0).mechanism
    text = error_model_text(mechanism)
    assert len(text) < 1_000
    assert json.loads(text)["rounding"]["kind"] == "at most"


def saved(folder, name="projected total"):
    design = FITTED[name]()
    shape = design.mechanism.query.shape
    table = sdp.Table(np.arange(prod(shape)).reshape(shape), design.mechanism.domain)
    design.release(table, seed=1).save(folder)
    return folder / ERROR_MODEL


def failures(folder):
    return [check.name for check in verify_folder(folder).checks if not check.ok]


def test_verify_derives_it_again(tmp_path):
    path = saved(tmp_path / "release")
    assert failures(tmp_path / "release") == []
    text = path.read_text("utf-8")
    model = json.loads(text)
    model["noise"]["variance"] *= 1 - 1e-6
    path.write_text(json.dumps(model), "utf-8")
    assert failures(tmp_path / "release") == ["digests", ERROR_MODEL]
    path.write_text("{", "utf-8")
    assert failures(tmp_path / "release") == ["digests", ERROR_MODEL]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1.0}, {"a": 1.0 + 1e-12}, True),
        ({"a": 1.0}, {"a": 1.0 + 1e-6}, False),
        ([1.0, 0.0], [1.0, 1e-12], True),
        ([1.0, 0.0], [1.0, 1e-6], False),
        ([1], [1, 2], False),
        ([0.5], "x", False),
        (None, None, True),
        (None, 0, False),
    ],
)
def test_the_same_but_for_last_digits(one, other, same):
    assert same_model(one, other) is same
