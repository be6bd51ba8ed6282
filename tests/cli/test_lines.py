"""A file or a pipe gets what rich would write there, without rich."""

import io
import json
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from rich.markup import escape as escape_of_rich

import subspacedp as sdp
from subspacedp.cli import lines, terminal
from subspacedp.cli.app import app
from subspacedp.cli.lines import Indented, Lines, Table, cell_lines, escape
from subspacedp.microdata import verify_folder
from subspacedp.stated import UNSEEN, visible

SIGNS = st.sampled_from("[]\\/ab \n:#@=(±ε中e\u0301🙂\x07\r\t\x1b\x9b\u2028\u202e\ud800")
TEXTS = st.text(st.one_of(SIGNS, st.characters(exclude_categories=["Cs", "Cc"])), max_size=12)


def by_rich(content, **layout):
    file = io.StringIO()
    Console(file=file, width=terminal.UNBOUNDED, highlight=False, emoji=False).print(
        content, **layout
    )
    return file.getvalue()


def ours(content):
    return "".join(f"{line}\n" for line in cell_lines(content))


@given(TEXTS, st.booleans())
def test_texts_are_those_of_rich(text, soft_wrap):
    assert escape(text) == escape_of_rich(visible(text))
    marked = f"[bold yellow]{escape(text)}[/] {escape(text)}[dim]b[/]"
    assert ours(marked) == by_rich(marked, soft_wrap=soft_wrap)
    assert ours(Indented(marked)) == by_rich(Indented(marked))


@given(
    st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=4),
    st.booleans(),
    st.sets(st.integers(0, 2)),
    st.integers(1, 2),
)
@example(rows=[("", "", "0 ")], named=False, numbers={2}, apart=1)
def test_tables_are_those_of_rich(rows, named, numbers, apart):
    headings = ("a", "wide ±", "[dim]c[/]") if named else ("", "", "")
    table = Table(*headings, numbers=numbers, apart=apart)
    for row in rows:
        table.add_row(*map(escape, row))
    assert ours(table) == by_rich(table)
    assert ours(Indented(table)) == by_rich(Indented(table))


def test_screens_are_drawn_by_rich_and_files_are_not(monkeypatch, capsys):
    for name in terminal.AS_A_SCREEN:
        monkeypatch.delenv(name, raising=False)
    assert isinstance(terminal.printer(), Lines)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert isinstance(terminal.printer(stderr=True), Console)
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert isinstance(terminal.printer(), Console)
    assert isinstance(terminal.printer(stderr=True), Lines)
    terminal.printer(stderr=True).print("[bold]:smile: [/]")
    assert capsys.readouterr() == ("", ":smile: \n")


@pytest.mark.parametrize("soft_wrap", [False, True])
def test_labels_with_colons_stay_what_they_are_on_a_screen_too(monkeypatch, capsys, soft_wrap):
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal.printer().print("a:smile:b", soft_wrap=soft_wrap)
    assert "a:smile:b" in capsys.readouterr().out


HOSTILE = "evil\x1b[1A\x1b[2K\nok  all\r\t\x9b2J \u202etxt\u2028\ud800"
SHOWN = r"evil\x1b[1A\x1b[2K\nok  all\r\t\x9b2J \u202etxt\u2028\ud800"


def verified_with_a_hostile_name(tmp_path, capfdbinary, monkeypatch, *, screen):
    domain = sdp.Domain([sdp.Axis("sex", ["F", "M"])])
    design = sdp.design(domain, sdp.hold(), sdp.PureDP(1), mechanism="projected", decimals=0)
    folder = tmp_path / "release"
    design.release(sdp.Table([5, 7], domain)).save(folder)
    (folder / "evil\x1b[1A\x1b[2K\nok  all").touch()
    for name in terminal.AS_A_SCREEN:
        monkeypatch.delenv(name, raising=False)
    if screen:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as end:
        app(["verify", str(folder)])
    assert end.value.code == 1
    return capfdbinary.readouterr().out.decode()


@pytest.mark.parametrize("screen", [False, True])
def test_names_of_files_move_no_cursor_and_forge_no_line(
    tmp_path, capfdbinary, monkeypatch, screen
):
    said = verified_with_a_hostile_name(tmp_path, capfdbinary, monkeypatch, screen=screen)
    assert said.count(r"`evil\x1b[1A\x1b[2K\nok  all`") == 2
    assert "\x1b[1A" not in said
    assert not any(line.startswith("ok") for line in said.split("\n"))


def test_a_twin_that_escapes_markup_alone_lets_a_name_erase_a_line(
    tmp_path, capfdbinary, monkeypatch
):
    monkeypatch.setattr(lines, "visible", lambda text: text)
    said = verified_with_a_hostile_name(tmp_path, capfdbinary, monkeypatch, screen=False)
    assert "\x1b[1A\x1b[2K\nok  all" in said


def test_names_of_files_forge_no_line_in_python(tmp_path):
    domain = sdp.Domain([sdp.Axis("sex", ["F", "M"])])
    design = sdp.design(domain, sdp.hold(), sdp.PureDP(1), mechanism="projected", decimals=0)
    design.release(sdp.Table([5, 7], domain)).save(tmp_path / "release")
    (tmp_path / "release" / "evil\x1b[1A\x1b[2K\nok  all").touch()
    said = str(verify_folder(tmp_path / "release"))
    assert said.count(r"`evil\x1b[1A\x1b[2K\nok  all`") == 2
    assert "\x1b" not in said
    assert "\nok  all" not in said


def test_letters_stay_and_controls_are_written_out():
    assert visible(HOSTILE) == SHOWN
    letters = "naïve\xa0中 🙂 e\u0301 \u200c \u2009 [red] \\x1b"
    assert visible(letters) == letters


def test_errors_are_one_line_whatever_they_quote():
    name = "evil\x1b[1A\nok"
    code = "from subspacedp.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "verify", name], capture_output=True, text=True, check=False
    )
    assert done.stderr == "subspacedp: There is no folder `evil\\x1b[1A\\nok`.\n"


def audited(tmp_path, capsys):
    spec = {
        "data": {"source": "people.csv", "unit": "row"},
        "axes": {"sex": {"labels": ["F\x1b[2J", "M"]}},
        "hold": [],
        "privacy": {"epsilon": 1.0},
        "publish": {"to": "out"},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    with pytest.raises(SystemExit):
        app(["audit", str(tmp_path / "spec.json"), "--structure"])
    return capsys.readouterr().out


def test_results_quote_labels_without_their_controls(tmp_path, capsys, monkeypatch):
    said = audited(tmp_path, capsys)
    assert r"+1 in F\x1b[2J, -1 in M" in said
    assert "\x1b" not in said
    monkeypatch.setattr(terminal, "visible", lambda text: text)
    assert "\x1b[2J" in audited(tmp_path, capsys)


HOSTILE_ACCOUNT = "naïve \x9b2J\x7f\u202etxt\u2028\nForged."


def ledger_says(capsys, tmp_path, verb, *options):
    ledger = str(tmp_path / "ledger.db")
    capsys.readouterr()
    with pytest.raises(SystemExit):
        app(["ledger", verb, ledger, *options])
    return capsys.readouterr().out


def test_sentences_and_json_quote_names_without_their_controls(tmp_path, capsys, monkeypatch):
    said = ledger_says(capsys, tmp_path, "create", HOSTILE_ACCOUNT, "--epsilon", "1")
    assert visible(HOSTILE_ACCOUNT) in said
    assert said.count("\n") == 1
    for verb, *options in (["export"], ["show", "--json"]):
        said = ledger_says(capsys, tmp_path, verb, *options)
        assert json.loads(said)["accounts"][0]["name"] == HOSTILE_ACCOUNT
        assert "naïve" in said
        assert not UNSEEN.search(said.replace("\n", ""))
    monkeypatch.setattr(terminal, "json_text", lambda data: json.dumps(data, ensure_ascii=False))
    assert UNSEEN.search(ledger_says(capsys, tmp_path, "show", "--json"))


def test_json_of_a_lone_surrogate_can_be_written_and_read():
    said = terminal.json_text({"a": ["\ud800", "\n", "é"]}, indent=1)
    assert json.loads(said.encode()) == {"a": ["\ud800", "\n", "é"]}
