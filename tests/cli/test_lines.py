"""A file or a pipe gets what rich would write there, without rich."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.markup import escape as escape_of_rich

from subspacedp.cli import terminal
from subspacedp.cli.lines import Indented, Lines, Table, cell_lines, escape

SIGNS = st.sampled_from("[]\\/ab \n:#@=(±ε中e\u0301🙂\x07\r")
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
    assert escape(text) == escape_of_rich(text)
    marked = f"[bold yellow]{escape(text)}[/] {escape(text)}[dim]b[/]"
    assert ours(marked) == by_rich(marked, soft_wrap=soft_wrap)
    assert ours(Indented(marked)) == by_rich(Indented(marked))


@given(
    st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=4),
    st.booleans(),
    st.sets(st.integers(0, 2)),
    st.integers(1, 2),
)
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
