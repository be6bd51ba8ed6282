"""Secrets, plans and the words they give; dealers."""

import json
import os
import pickle
import stat
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.agents.conftest import SECRET, own, plan_of
from tests.strategies import both_engines, using

import subspacedp as sdp
from subspacedp.agents import (
    AgentPlan,
    Partition,
    collect,
    deal,
    make_plan,
    make_secret,
    privatize,
    privatize_share,
    read_secret,
    read_share,
)
from subspacedp.agents.secret import deal_with
from subspacedp.errors import ReleaseError
from subspacedp.noise import DiscreteLaplace, Keystream, ReleaseKeys, RoundedGaussian, draw
from subspacedp.noise.draw import noise_at, threshold_table, words_at

Z = 6.5  # two-sided probability of a normal variable beyond it: 8e-11


# ------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize("law", [DiscreteLaplace(Fraction(3, 10000)), RoundedGaussian(2000.0)])
def test_noise_by_random_access_is_the_noise_in_a_row(law):
    keys = ReleaseKeys(bytes(32), "0" * 32, b"")
    whole = draw(law, keys, 0, 200_000)
    rng = np.random.default_rng(5)
    for cells in (
        np.sort(rng.choice(200_000, 3000, replace=False)),
        np.arange(7, 90_000),
        np.arange(0, 200_000, 1000),
        np.zeros(0, np.int64),
    ):
        assert np.array_equal(noise_at(law, keys, cells), whole[cells])
    stream = keys.stream("dither")
    places = np.sort(rng.choice(10**12, 50, replace=False))
    assert words_at(stream, places).tolist() == [int(stream.words(int(p), 1)[0]) for p in places]


@both_engines
def test_words_on_a_threshold_are_refined_by_the_number_of_their_cell(engine, monkeypatch):
    """Every word of the noise equals a threshold, so that refinement alone tells cells apart."""
    law, keys = DiscreteLaplace(Fraction(3, 10)), ReleaseKeys(bytes(32), "0" * 32, b"")
    table = threshold_table(law)
    word = table.thresholds[-table.first]  # of the value 0
    key, real = keys.subkey("noise/0"), Keystream.words

    def on_threshold(self, start, count, scratch=None):
        found = real(self, start, count, scratch)
        return np.full(count, word, np.uint64) if self._key == key else found

    monkeypatch.setattr(Keystream, "words", on_threshold)
    cells = np.concatenate([np.arange(3, 200, 7), [70_000, 70_001, 10**9]])
    with using(engine):
        found = noise_at(law, keys, cells)
        assert found.tolist() == [int(draw(law, keys, int(cell), 1)[0]) for cell in cells]
    assert len(np.unique(found)) == 2


def correlation_z(one, other):
    a, b = one - one.mean(), other - other.mean()
    return abs(float(a @ b) / np.sqrt(float(a @ a) * float(b @ b))) * np.sqrt(a.size)


def test_noise_of_two_plans_under_one_secret_is_independent():
    domain = sdp.Domain([sdp.Axis("cell", range(40_000))])
    mechanism = sdp.design(domain, sdp.hold(), sdp.PureDP(0.1))
    parts = Partition.from_dict(domain, {"all": {"cells": [[0, 39_999]]}})
    one, other = make_plan(mechanism, parts), make_plan(mechanism, parts)
    cells = np.arange(40_000)
    noise = [noise_at(p.mechanism.law, SECRET.keys(p), cells).astype(float) for p in (one, other)]
    assert correlation_z(*noise) < Z
    assert correlation_z(np.abs(noise[0]), np.abs(noise[1])) < Z
    words = [SECRET.keys(p).stream("noise/0").words(0, 1000) for p in (one, other)]
    assert not np.any(words[0] == words[1])
    # A twin whose keys are not bound to the plan.
    twin = noise_at(one.mechanism.law, SECRET.keys(one), cells).astype(float)
    assert correlation_z(noise[0], twin) > Z


def test_a_plan_that_differs_in_anything_has_other_noise(plan):
    data = json.loads(json.dumps({**plan.content(), "sha256": plan.digest}))
    altered = replace(plan, partition=Partition.by(plan.mechanism.domain, "county"))
    assert altered.plan_id == plan.plan_id
    assert altered.digest != plan.digest
    streams = [SECRET.keys(p).stream("noise/0").words(0, 8).tolist() for p in (plan, altered)]
    assert streams[0] != streams[1]
    assert SECRET.noise_id(plan) != SECRET.noise_id(altered)
    again = AgentPlan.from_dict(data)
    assert SECRET.keys(again).stream("noise/0").words(0, 8).tolist() == streams[0]


def test_purposes_have_words_of_their_own(plan):
    derived = {SECRET.derive(plan, p) for p in (b"noise", b"noise id", b"fingerprint")}
    assert len(derived) == 3
    assert SECRET.noise_id(plan) not in SECRET.content.hex()


# ------------------------------------------------------------------------------------------ dealer


@pytest.mark.parametrize(
    ("decimals", "mechanism"), [(None, "projected"), (0, "projected"), (2, "projected"),
                                (None, "extended")],
)  # fmt: skip
def test_shares_give_the_same_parts_as_the_secret(decimals, mechanism, tmp_path):
    plan = plan_of(decimals, mechanism=mechanism)
    deal_with(plan, tmp_path / "shares", SECRET)
    for name in plan.partition.names:
        dealt = read_share(tmp_path / "shares" / f"{name}.share")
        by_share = privatize_share(plan, dealt, own(plan, name)).part
        by_secret = privatize(plan, name, own(plan, name), SECRET, record=tmp_path / "r").part
        assert np.array_equal(by_share.values, by_secret.values)
        assert by_share.noise_id == by_secret.noise_id
        assert by_share.trust is not by_secret.trust


def test_a_deal_makes_a_release_that_says_so(plan, tmp_path):
    noise_id = deal(plan, tmp_path / "shares")
    assert stat.S_IMODE((tmp_path / "shares").stat().st_mode) == 0o700
    parts = []
    for name in plan.partition.names:
        path = tmp_path / "shares" / f"{name}.share"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        dealt = read_share(path)
        assert dealt.noise_id == noise_id
        parts.append(privatize_share(plan, dealt, own(plan, name)).part)
    release = collect(plan, parts)
    release.save(tmp_path / "release")
    loaded = sdp.Release.load(tmp_path / "release")
    assert loaded.certificate()["distributed"]["trust"] == "dealer"
    assert "dealer" in loaded.certificate()["stamp"]
    assert loaded.certificate()["for_publication"] is True
    total = np.concatenate([own(plan, name) for name in plan.partition.names]).sum()
    assert int(release.values.sum()) == total


def test_shares_sum_to_zero_over_held_groups(plan, tmp_path):
    deal(plan, tmp_path / "shares")
    total = np.zeros(plan.mechanism.query.size, np.int64)
    for name in plan.partition.names:
        dealt = read_share(tmp_path / "shares" / f"{name}.share")
        total[plan.partition.cells(name)] = dealt.share.whole
    assert total.any()
    sums = plan.mechanism.held.sums(total.reshape(plan.mechanism.query.shape))
    assert not any(s.any() for s in sums)


def test_two_deals_differ_and_do_not_mix(plan, tmp_path):
    first, second = deal(plan, tmp_path / "a"), deal(plan, tmp_path / "b")
    assert first != second
    names = plan.partition.names
    parts = [
        privatize_share(
            plan, read_share(tmp_path / ("a" if i else "b") / f"{name}.share"), own(plan, name)
        ).part
        for i, name in enumerate(names)
    ]
    with pytest.raises(ReleaseError, match="different secrets"):
        collect(plan, parts)


def test_a_share_of_another_plan_is_refused(plan, tmp_path):
    deal(plan, tmp_path / "shares")
    dealt = read_share(tmp_path / "shares" / "0.share")
    with pytest.raises(ReleaseError, match="dealt for another plan"):
        privatize_share(plan_of(), dealt, own(plan, "0"))
    altered = replace(plan, partition=Partition.by(plan.mechanism.domain, "county"))
    with pytest.raises(ReleaseError, match="altered after the share"):
        privatize_share(altered, dealt, own(plan, "0"))


def test_a_share_that_others_can_read_is_refused(plan, tmp_path):
    deal(plan, tmp_path / "shares")
    path = tmp_path / "shares" / "0.share"
    path.chmod(0o640)
    with pytest.raises(ReleaseError, match="can be read by others"):
        read_share(path)


# ------------------------------------------------------------------------------------------ secret


def test_secrets_are_made_for_their_owner(tmp_path):
    make_secret(tmp_path / "s")
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    assert read_secret(tmp_path / "s").content.hex() == (tmp_path / "s").read_text().strip()
    with pytest.raises(ReleaseError, match="never overwritten"):
        make_secret(tmp_path / "s")


def test_a_secret_may_be_base64_or_in_the_environment(tmp_path, monkeypatch):
    import base64

    content = os.urandom(32)
    (tmp_path / "s").write_bytes(base64.b64encode(content) + b"\n")
    (tmp_path / "s").chmod(0o600)
    assert read_secret(tmp_path / "s").content == content
    monkeypatch.setenv("SUBSPACEDP_SECRET", content.hex())
    assert read_secret().content == content
    monkeypatch.delenv("SUBSPACEDP_SECRET")
    with pytest.raises(ReleaseError, match="There is no secret"):
        read_secret()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("abcdef", "too short"), ("ab" * 40, "too long"), ("not a secret!", "must be 32 bytes"),
     ("", "too short"), ("00" * 32, "not random"), ("é" * 32, "must be 32 bytes")],
)  # fmt: skip
def test_bad_secrets(content, sentence, tmp_path):
    (tmp_path / "s").write_text(content, "utf-8")
    (tmp_path / "s").chmod(0o600)
    with pytest.raises(ReleaseError, match=sentence) as error:
        read_secret(tmp_path / "s")
    assert not content or content not in str(error.value).replace(str(tmp_path), "")


def test_a_secret_that_others_can_read_is_refused(tmp_path):
    make_secret(tmp_path / "s")
    for mode in (0o644, 0o640, 0o604, 0o620):
        (tmp_path / "s").chmod(mode)
        with pytest.raises(ReleaseError, match="can be read by others"):
            read_secret(tmp_path / "s")


def test_nothing_shows_or_pickles_a_secret(plan, tmp_path):
    assert SECRET.content.hex() not in repr(SECRET)
    deal(plan, tmp_path / "shares")
    dealt = read_share(tmp_path / "shares" / "0.share")
    for thing in (dealt, dealt.share):
        assert "hidden" in repr(thing)
    for thing in (SECRET, dealt.share):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(thing)
