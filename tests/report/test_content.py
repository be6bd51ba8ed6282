"""What the page says, without a browser."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.microdata import SecondTable
from subspacedp.release.facts import Facts, Replaced
from subspacedp.report import PublishedColumn, PublishedFile, ReportNotes, write_report
from subspacedp.report.page import _environment, rendered
from subspacedp.report.rows import CellErrors, KindErrors, cell_estimates, shown
from subspacedp.report.words import belief_words, guess_words

MOST_BYTES = 3_000_000


def embedded(page: str, what: str = "cells") -> list[dict[str, list[dict[str, list[object]]]]]:
    """The rows of the tables of cells, of margins or of exact figures, one for each release."""
    pattern = rf'<script type="application/json" id="[^"]*{what}rows">(.*?)</script>'
    return [json.loads(text) for text in re.findall(pattern, page, re.DOTALL)]


def words(page: str) -> str:
    """The text of a page, without scripts, styles and tags."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", bare)))


def test_the_headline_says_what_is_published_held_and_promised(page: str) -> None:
    text = words(page)
    for part in (
        "120 figures",
        "county (60 labels, grouped by state (3)) × sex (2 labels)",
        "Every state total: exact, without noise, and not protected.",
        "Right in 55 of 100, not 50",
        "with a probability of 1 % has to think 1.3 % at most; 10 % has to think 12.0 % at most",
        "ε = 0.2",
        "by a factor of at most 1.23",
        "Every person with at most one record",
        "one person's record replaced by another",
        "All 3 hold",
    ):
        assert part in text


def test_the_guarantee_stands_on_the_page_word_for_word(release: sdp.Release, page: str) -> None:
    text = words(page)
    assert " ".join(release.guarantee.sentences()) in text
    for sentence in release.guarantee.not_protected():
        assert sentence in text


def test_a_seeded_release_is_stamped_loudly_and_another_is_not(
    release: sdp.Release, page: str, seeded: sdp.Release
) -> None:
    assert "Not for publication." in words(write_report(seeded, title="Counties"))
    assert "ot for publication" not in words(page)
    both = words(write_report({"good": release, "bad": seeded}, title="Counties"))
    assert "Not for publication." in both
    assert both.count("Not for publication: made from a chosen seed.") == 1


def test_labels_from_data_are_told(hostile: sdp.Release, page: str) -> None:
    assert "Labels were read off the data." in words(write_report(hostile, title="Places"))
    assert "Labels were read off" not in words(page)


def test_a_failing_check_is_shown_as_failing(release: sdp.Release, page: str) -> None:
    altered = release.values.copy()
    altered[0, 0] += 1
    text = words(write_report(replace(release, values=altered), title="Counties"))
    assert "A check fails." in text
    assert "✗ fails held totals are kept" in text
    assert "1 of 3 fail" in text
    assert "✗" not in words(page)


def test_every_cell_is_embedded_with_its_numbers(release: sdp.Release, page: str) -> None:
    (data,) = embedded(page)
    numbers = {c["name"]: c["values"] for c in data["numbers"]}
    assert numbers["value"] == release.values.reshape(-1).tolist()
    assert numbers["stderr"] == release.stderr().reshape(-1).tolist()
    lower, upper = release.interval(0.95)
    np.testing.assert_allclose(numbers["lower"], np.ravel(lower), rtol=0, atol=1e-6)
    np.testing.assert_allclose(numbers["upper"], np.ravel(upper), rtol=0, atol=1e-6)
    columns = release.columns()
    for column in data["labels"]:
        found = [column["texts"][code] for code in column["codes"]]
        assert found == columns[column["name"]].tolist()


def test_the_hash_is_that_of_the_saved_certificate(
    release: sdp.Release, page: str, tmp_path: Path
) -> None:
    release.save(tmp_path / "saved")
    saved = (tmp_path / "saved" / "certificate.json").read_bytes()
    assert hashlib.sha256(saved).hexdigest() in page


def test_the_page_of_a_loaded_release_is_the_same(
    release: sdp.Release, page: str, tmp_path: Path
) -> None:
    release.save(tmp_path / "saved")
    again = sdp.Release.load(tmp_path / "saved")
    assert write_report(again, title="Counties") == page


def test_the_two_lines_of_python_run(
    release: sdp.Release, page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = unescape(re.findall(r"<pre tabindex=\"0\"><code>(.*?)</code>", page, re.DOTALL)[0])
    release.save(tmp_path / "saved")
    exec(lines.replace("FOLDER", str(tmp_path / "saved")), {"subspacedp": sdp})  # noqa: S102 - our own
    assert "stderr" in capsys.readouterr().out


def test_notes_and_files_are_shown(release: sdp.Release) -> None:
    notes = ReportNotes(
        about="First paragraph.\n\nSecond paragraph.",
        contact="the review board",
        source="a register",
        budget=["0.8 is left"],
        contributions="At most one record per person.",
        second_tables={"release": SecondTable(release=release, records=True)},
        signature="Signed by the office.",
        margins={"release": [("sex",)]},
    )
    column = PublishedColumn(name="lower", meaning="the lower end", type="number", unit="records")
    file = PublishedFile(
        name="sex.csv", holds="Totals by sex.", size=12_345, sha256="ab12", columns=[column]
    )
    page = write_report(release, title="Counties", notes=notes, files=[file])
    text = words(page)
    for part in (
        "First paragraph.", "Second paragraph.", "the review board", "a register", "0.8 is left",
        "At most one record per person.", "A second table, without negative values",
        "one for each one that this table counts", "Signed by the office.", "sex.csv",
        "Totals by sex.", "12.3 kB", "ab12", "the lower end", "Every sex",
    ):  # fmt: skip
        assert part in text
    assert "values.csv" not in text
    assert page.count('<p class="lede">') == 2


def articles(page: str) -> list[str]:
    return [words(part) for part in re.findall(r"<article.*?</article>", page, re.DOTALL)]


def test_notes_on_one_release_stand_in_its_part_alone(release: sdp.Release) -> None:
    notes = ReportNotes(
        contributions={"b": "Two records per person."},
        second_tables={"a": SecondTable(release=release)},
    )
    first, second = articles(write_report({"a": release, "b": release}, title="x", notes=notes))
    assert "A second table, without negative values" in first
    assert "A second table, without negative values" not in second
    assert "Two records per person." in second
    assert "Records of one person" not in first


def test_sums_are_said_to_be_clipped_and_rounded() -> None:
    domain = sdp.Domain([sdp.Axis("sex", ["F", "M"])])
    query = sdp.ClippedSums(domain, "<i>inc</i>", 0, 50_000, 100)
    release = sdp.design(query, None, sdp.PureDP(1.0)).release(np.array([30, 40]), seed=1)
    text = words(page := write_report(release, title="Incomes"))
    clipped = (
        "each value moved into 0 to 50,000 and rounded to 100; larger values count as 50,000, so "
        "it is biased for the plain sum"
    )
    for part in (
        f"Sums of `<i>inc</i>` by sex (2 labels): {clipped}.",
        f"Apart from noise, every figure is the sum of `<i>inc</i>`, {clipped}.",
        f"which has noise of mean zero: sum of `<i>inc</i>`, {clipped}",
        "2 sums",
        "that of `<i>inc</i>`",
    ):
        assert part in text
    assert "<i>" not in page


def test_plain_counts_need_no_note(page: str) -> None:
    assert "Apart from noise" not in words(page)


@pytest.mark.parametrize(
    ("neighbours", "card", "change"),
    [
        (
            sdp.ReplaceOne(records=2),
            "Every person; at most 2 records of each count",
            "one person's records, of which at most 2 count, replaced by others",
        ),
        (
            sdp.ReplaceOne(),
            "Every person; at most 1 record of each counts",
            "one person's records, of which at most 1 counts, replaced by others",
        ),
        (
            sdp.AddRemoveOne(records=5, per_cell=2),
            "Every person; at most 5 records of each count, at most 2 of them in one cell",
            "one person's records, of which at most 5 count, at most 2 of them in a cell, added or "
            "removed",
        ),
    ],
)
def test_everybody_is_protected_where_only_some_records_count(
    neighbours: sdp.ReplaceOne | sdp.AddRemoveOne, card: str, change: str
) -> None:
    domain = sdp.Domain([sdp.Axis("sex", ["F", "M"])])
    mechanism = sdp.design(domain, None, sdp.PureDP(1.0), neighbours=neighbours, capped=True)
    table = sdp.Table([30, 40], domain)
    page = write_report(mechanism.release(table, everything=table, seed=1), title="People")
    text = words(page)
    assert card in text
    assert f"Neighbouring data differ by {change};" in text
    assert "with at most" not in text


def test_without_files_those_of_save_are_described(page: str) -> None:
    text = words(page)
    for part in ("values.csv", "values.parquet", "certificate.json", "group of county, one of 3"):
        assert part in text


def test_the_chart_is_of_the_coarsest_margin_that_is_not_held(
    release: sdp.Release, page: str
) -> None:
    assert "Every sex" in words(page)
    notes = ReportNotes(margins={"release": ["state", ("county",)]})  # state totals are held
    text = words(write_report(release, title="Counties", notes=notes))
    assert "By county: 24 of 60, the larger half" in text
    assert "By county: 24 of 60, the smaller half" in text


def test_unknown_names_are_refused_in_one_sentence(release: sdp.Release) -> None:
    with pytest.raises(ReleaseError, match="names the release 'other'"):
        write_report(release, title="x", notes=ReportNotes(margins={"other": [("sex",)]}))
    with pytest.raises(ReleaseError, match="no level `sx`; did you mean `sex`"):
        write_report(release, title="x", notes=ReportNotes(margins={"release": [("sx",)]}))
    with pytest.raises(ReleaseError, match="at least one release"):
        write_report({}, title="x")
    with pytest.raises(ReleaseError, match="title"):
        write_report(release, title=" ")


@pytest.mark.parametrize("library", ["jinja2", "markupsafe"])
def test_a_missing_library_is_one_sentence(
    release: sdp.Release, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _environment.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ReleaseError, match=r"`\w+` is not installed.*subspacedp\[publish\]"):
        write_report(release, title="Counties")


def test_compiled_templates_are_kept_and_say_the_same(
    release: sdp.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read back, compiled anew as a text has changed, and where nothing can be kept."""
    package = tmp_path / "subspacedp_pages"
    (package / "templates").mkdir(parents=True)
    (package / "__init__.py").touch()
    template = package / "templates" / "one.html"
    template.write_text("{{ page }} & {{ style }}", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)

    def page() -> str:
        _environment.cache_clear()
        return rendered("one.html", "<b>", style="x", package=package.name)

    assert page() == "&lt;b&gt; & x"
    (kept,) = (package / "templates" / "__pycache__").iterdir()
    assert importlib.metadata.version("jinja2") in kept.name
    written = kept.stat().st_mtime_ns
    monkeypatch.setattr("jinja2.Environment.compile", lambda *_, **__: 1 / 0)
    assert page() == "&lt;b&gt; & x"
    assert kept.stat().st_mtime_ns == written
    template.write_text("{{ style }}", "utf-8")
    with pytest.raises(ZeroDivisionError):
        page()
    monkeypatch.undo()
    monkeypatch.syspath_prepend(tmp_path)
    kept.unlink()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert page() == "x"
    assert not kept.exists()


def test_hostile_labels_are_text_everywhere(hostile: sdp.Release) -> None:
    page = write_report(
        {"<i>name</i>": hostile, "other": hostile},
        title="<u>title</u>",
        notes=ReportNotes(about="<img src=y>", budget=["</script>"]),
    )
    for tag in ("<script>alert", "<img", "<b>", "<i>", "<u>"):
        assert tag not in page
    assert "{{ 7 * 7 }} {% raw %} &amp; 'one'" in words(page)
    # One style, one program, cells and exact figures of each release, and what catalogues read.
    assert (page.count("<style"), page.count("<script"), page.count("</script")) == (1, 6, 6)
    texts = embedded(page)[0]["labels"][0]["texts"]
    assert sorted(map(str, texts)) == sorted(map(str, hostile.mechanism.domain.axes[0].labels))


def test_the_page_links_to_nothing(page: str) -> None:
    assert page.count('http-equiv="Content-Security-Policy"') == 1
    # The names of two vocabularies, which nothing loads.
    assert re.findall(r"http[^-\"]*", page.replace("http-equiv", "")) == [
        "https://schema.org/",
        "http://purl.org/dc/terms/",
    ]
    assert not re.search(
        r"\b(src|srcset|action|data)\s*=", re.sub(r"<script>.*", "", page, flags=re.S)
    )
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', page))
    assert "url(" not in page
    assert "@import" not in page


def test_the_policy_names_the_style_and_the_script_by_digest(page: str) -> None:
    policy = unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', page)[0])
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none';")
    for tag in ("style", "script"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert " style=" not in page
    assert not re.search(r" on[a-z]+=", page)


def test_charts_have_text_alternatives(page: str) -> None:
    drawings = re.findall(r"<svg[^>]*>", page)
    assert len(drawings) >= 2
    for drawing in drawings:
        assert 'role="img"' in drawing
        assert re.search(r'aria-label="[^"]{20,}"', drawing)
        assert "viewBox" in drawing
    assert page.count("The figures of this chart") == len(drawings)


def test_a_large_release_shows_its_largest_margin_and_stays_small(large: sdp.Release) -> None:
    page = write_report(large, title="Large")
    assert len(page.encode()) < MOST_BYTES
    (data,) = embedded(page)
    assert "The release has 100,000 cells, too many for a page." in words(page)
    assert [column["name"] for column in data["labels"]] == ["place", "decade"]
    numbers = {c["name"]: c["values"] for c in data["numbers"]}
    found = large.margin("place", "decade")
    assert numbers["value"] == np.ravel(found.value).tolist()
    assert numbers["stderr"] == np.ravel(found.stderr).tolist()


def test_long_labels_and_many_releases_stay_within_the_bound(release: sdp.Release) -> None:
    labels = [f"{i} " + "long " * 400 for i in range(3000)]
    groups = [f"group {i // 100}" for i in range(3000)]
    domain = sdp.Domain([sdp.Axis("place", labels, levels={"group": groups})])
    table = sdp.Table(np.full(3000, 50), domain)
    long = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0)).release(table, seed=1)
    page = write_report({"long": long, "short": release}, title="Long")
    assert len(page.encode()) < MOST_BYTES
    first, second = embedded(page)
    assert [c["name"] for c in first["labels"]] == ["group"]
    assert len(second["numbers"][0]["values"]) == release.values.size


def releases_of_every_kind() -> dict[str, sdp.Release]:
    domain = sdp.Domain([sdp.Axis("age", ["0-17", "18-39", "40-64", "65+"])])
    table = sdp.Table([4, 7, 1, 9], domain)
    odd = sdp.LinearInvariants([[1, 0, 1, 0]], labels=["first and third"])
    running = sdp.LinearQuery(np.tril(np.ones((4, 4))))

    def noisy(counts: np.ndarray) -> np.ndarray:
        return counts + np.array([1, -2, 0, 3])

    designs = {
        "plain": sdp.design(domain, sdp.hold(), sdp.PureDP(1.0)),
        "nothing held": sdp.design(domain, None, sdp.ApproxDP(1.0, 1e-6), decimals=0),
        "linear": sdp.design(domain, odd, sdp.ZCDP(0.1), mechanism="extended"),
        "query": sdp.design(running, None, sdp.GaussianDP(0.5)),
        "several records": sdp.design(
            domain, sdp.hold(), sdp.PureDP(1.0), neighbours=sdp.AddRemoveOne(records=3, per_cell=2)
        ),
    }
    out = {name: mechanism.release(table, seed=1) for name, mechanism in designs.items()}
    imposed = sdp.impose_on(domain, sdp.hold(), noisy, budget=sdp.PureDP(1.0))
    return {**out, "imposed": imposed.release(table)}


def test_releases_of_every_kind_have_a_page() -> None:
    releases = releases_of_every_kind()
    page = write_report(releases, title="Every kind")
    text = words(page)
    for release in releases.values():
        assert " ".join(release.guarantee.sentences()) in text
    for part in (
        "Every person with at most 3 records, at most 2 of them in one cell",
        "Not declared",
        "standard errors are not known",
        "the answers to a list of questions".capitalize(),
        "Rényi divergence",
        "a normal variable with mean 0",
        "and by δ beyond that",
    ):
        assert part in text
    assert len(embedded(page)) == len(releases)
    assert "nan" not in re.sub(r"[a-z]nan|nan[a-z]", "", text.lower())


def test_whole_numbers_that_a_browser_would_round_are_text(release: sdp.Release) -> None:
    domain = sdp.Domain([sdp.Axis("a", ["x", "y"])])
    table = sdp.Table([2**60, 5], domain)
    huge = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0), decimals=0).release(table, seed=1)
    (data,) = embedded(write_report(huge, title="Huge"))
    assert data["numbers"][0]["values"] == [str(huge.values[0]), int(huge.values[1])]


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [
        (1234567, 2, "1,234,567"),
        (-1234.567, 1, "-1,234.6"),
        (-0.001, 1, "0.0"),
        (float("nan"), 1, "–"),
        (0.5, 0, "0"),
    ],
)
def test_numbers_are_shown_as_people_write_them(number: float, digits: int, text: str) -> None:
    assert shown(number, digits) == text


def test_the_median_of_kinds_is_that_of_their_cells():
    """Of kinds of cells the frequent one counts, not the middle one."""
    axis = sdp.Axis("place", range(12), levels={"area": [0] * 9 + [1] * 3})
    domain = sdp.Domain([axis])
    release = sdp.design(domain, sdp.hold("area"), sdp.PureDP(1.0), mechanism="projected").release(
        sdp.Table(np.arange(12), domain), seed=1
    )
    cells = cell_estimates(release)
    kinds = KindErrors(cells, release.mechanism.accuracy().figures)
    assert kinds.noisy_median == pytest.approx(CellErrors(cells).noisy_median)
    assert kinds.noisy_median != pytest.approx(np.median(kinds.noisy))


# -------------------------------------------------------- margins, exact figures, facts, catalogues


def test_all_published_margins_are_in_one_table_those_asked_for_first(release: sdp.Release) -> None:
    notes = ReportNotes(margins={"release": [("county",), "sex", ("state", "sex")]})
    page = write_report(release, title="Counties", notes=notes)
    (data,) = embedded(page, "margins")
    labels = {c["name"]: [c["texts"][code] for code in c["codes"]] for c in data["labels"]}
    assert list(dict.fromkeys(labels["margin"])) == ["county", "sex", "state × sex"]
    numbers = {c["name"]: c["values"] for c in data["numbers"]}
    margins = [release.margin(*names) for names in (["county"], ["sex"], ["state", "sex"])]
    assert numbers["value"] == [v for m in margins for v in np.ravel(m.value).tolist()]
    assert numbers["stderr"] == [s for m in margins for s in np.ravel(m.stderr).tolist()]
    lower = np.concatenate([np.ravel(m.interval(0.95)[0]) for m in margins])
    np.testing.assert_allclose(numbers["lower"], lower, rtol=0, atol=1e-6)
    assert "state × sex 6 0" in words(page)


def test_the_contents_are_in_the_order_of_the_page(
    release: sdp.Release, large: sdp.Release
) -> None:
    for one in (release, large):
        text = write_report(one, title="T")
        linked = re.findall(r'<li><a href="#([^"]+)">', text)
        assert linked == sorted(linked, key=lambda name: text.index(f' id="{name}"'))
        assert "held" in linked


def test_exact_figures_are_all_there(release: sdp.Release, page: str) -> None:
    (data,) = embedded(page, "held")
    (value,) = data["numbers"]
    assert value["values"] == release.exact[0].ravel().tolist()
    groups = {c["name"]: [c["texts"][code] for code in c["codes"]] for c in data["labels"]}
    assert groups == {"margin": ["state"] * 3, "group": ["DE", "IL", "TX"]}
    assert "Without noise: every state total." in words(page)


def test_sums_that_are_held_are_named(release: sdp.Release) -> None:
    domain = sdp.Domain([sdp.Axis("age", ["0-17", "18-39", "40-64", "65+"])])
    odd = sdp.hold() & sdp.LinearInvariants([[1, 0, 1, 0]], labels=["first and third"])
    table = sdp.Table([4, 7, 1, 9], domain)
    made = sdp.design(domain, odd, sdp.ZCDP(0.1), mechanism="extended").release(table, seed=1)
    (data,) = embedded(write_report(made, title="x"), "held")
    groups = [c["texts"][code] for c in data["labels"][1:] for code in c["codes"]]
    assert dict(zip(groups, data["numbers"][0]["values"], strict=True)) == {
        "all": 21,
        "first and third": 5,
    }


def test_what_is_said_of_the_publication_stands_below_its_title(release: sdp.Release) -> None:
    old = Replaced(release_id="0" * 32, certificate_sha256="1" * 64)
    facts = Facts(
        creator="<b>The Office</b>", date="2026-03-01", version="2", licence="CC0", replaces=(old,)
    )
    page = write_report(replace(release, facts=facts), title="Counties")
    text = words(page)
    assert (
        "Published by <b>The Office</b> · 1 March 2026 · version 2 · licence CC0 · replaces "
        f"{'0' * 32}, which is no longer to be used"
    ) in text
    assert "1" * 64 in text
    (linked,) = re.findall(r'<script type="application/ld\+json">(.*?)</script>', page)
    data = json.loads(linked)
    assert data["creator"]["name"] == "<b>The Office</b>"
    assert (data["datePublished"], data["license"], data["version"]) == ("2026-03-01", "CC0", "2")
    assert data["dct:replaces"] == ["0" * 32]
    assert {f["contentUrl"] for f in data["distribution"]} == {
        "values.csv",
        "values.parquet",
        "certificate.json",
    }


def test_files_of_a_folder_are_linked(release: sdp.Release) -> None:
    files = [
        PublishedFile(name="margins/a: b#c.csv", holds="Totals.", size=1),
        PublishedFile(name="x.csv", holds="Not there."),
    ]
    page = write_report(release, title="Counties", files=files)
    links = {link for link in re.findall(r'href="([^"]*)"', page) if not link.startswith("#")}
    assert links == {"./margins/a%3A%20b%23c.csv"}


def test_the_odds_are_those_of_the_budget(release: sdp.Release) -> None:
    """e^0.2 / (1 + e^0.2) is 54.98 %; Gaussian noise of μ = 2 gives Φ(1) = 84.1 %."""
    assert guess_words(release) == "55 of 100"
    made = sdp.design(release.domain, None, sdp.GaussianDP(2.0))
    assert guess_words(made.release(sdp.Table(release.values * 0 + 1, release.domain), seed=1)) == (
        "85 of 100"
    )


def test_limits_of_whole_figures_are_whole(release: sdp.Release, page: str) -> None:
    (data,) = embedded(page)
    assert {c["name"]: c["digits"] for c in data["numbers"]} == {
        "value": 0,
        "stderr": 1,
        "lower": 0,
        "upper": 0,
    }


def test_beliefs_after_a_budget_of_any_size():
    assert belief_words(sdp.PureDP(1.0))[0] == ("1 %", "2.7 %")
    assert {then for _, then in belief_words(sdp.PureDP(1000.0))} == {"100.000 %"}
