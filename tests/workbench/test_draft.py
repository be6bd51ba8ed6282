"""Nothing that was typed is lost, and nobody's file is overwritten."""

import stat

import pytest

from subspacedp.errors import ReleaseError
from subspacedp.workbench.draft import NEW, Draft


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "publication.yaml"
    path.write_text("title: first\n", "utf-8")
    return path


def test_steps_back_and_forth(path):
    draft = Draft(path)
    draft.put("title: second\n")
    draft.put("title: third\n")
    draft.step(-1)
    assert draft.text == "title: second\n"
    draft.step(-5)
    assert draft.text == "title: first\n"
    assert draft.saved
    draft.step(2)
    assert draft.text == "title: third\n"
    draft.step(-1)
    draft.put("title: other\n")
    draft.step(1)
    assert draft.text == "title: other\n"
    assert path.read_text("utf-8") == "title: first\n"


def test_a_drag_of_the_slider_is_one_step(path):
    now = [0.0]
    draft = Draft(path, clock=lambda: now[0])
    for number in range(20):
        now[0] += 0.2
        draft.put(f"budget: {number}\n", "budget")
    draft.step(-1)
    assert draft.text == "title: first\n"
    draft.step(1)
    now[0] += 10
    draft.put("budget: 99\n", "budget")
    draft.step(-1)
    assert draft.text == "budget: 19\n"


def test_what_was_not_saved_is_there_again_for_its_owner_alone(path):
    draft = Draft(path)
    draft.put("title: not saved\n")
    assert stat.S_IMODE(draft.copy.stat().st_mode) == 0o600
    again = Draft(path)
    assert again.recovered
    assert again.text == "title: not saved\n"
    again.step(-1)
    assert again.text == "title: first\n"
    again.step(1)
    again.save()
    assert not again.copy.exists()
    assert path.read_text("utf-8") == "title: not saved\n"
    assert not Draft(path).recovered


def test_a_file_that_changed_meanwhile_is_not_overwritten(path):
    draft = Draft(path)
    draft.put("title: mine\n")
    path.write_text("title: theirs\n", "utf-8")
    with pytest.raises(ReleaseError, match="changed on disk"):
        draft.save()
    assert path.read_text("utf-8") == "title: theirs\n"
    draft.take()
    assert draft.text == "title: theirs\n"
    draft.step(-1)
    assert draft.text == "title: mine\n"
    draft.save()
    assert path.read_text("utf-8") == "title: mine\n"


def test_a_new_file_is_for_its_owner_alone_and_takes_no_others_place(path, tmp_path):
    draft = Draft(tmp_path / "new.yaml")
    assert draft.text == NEW
    with pytest.raises(ReleaseError, match="already"):
        draft.move("publication.yaml")
    for name in ("", "../up.yaml", "a/b.yaml", ".hidden"):
        with pytest.raises(ReleaseError, match="plain"):
            draft.move(name)
    draft.save()
    assert stat.S_IMODE(draft.path.stat().st_mode) == 0o600
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["new.yaml", "publication.yaml"]


def test_a_folder_that_cannot_be_written_to_is_said(path, monkeypatch):
    draft = Draft(path)

    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("subspacedp.workbench.draft.write_durably", refuse)
    draft.put("title: kept in memory\n")
    assert draft.text == "title: kept in memory\n"
    assert "Read-only file system" in draft.copied
