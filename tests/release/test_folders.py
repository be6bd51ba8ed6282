"""Folders that appear complete or not at all."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.release import check_new_folder, new_folder
from subspacedp.release.folders import check_room


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("wanted", [0o755, 0o700])
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_a_folder_appears_with_its_mode_when_it_is_complete(tmp_path, wanted, umask):
    before = os.umask(umask)
    try:
        with new_folder(tmp_path / "r", mode=wanted) as scratch:
            assert scratch.parent == tmp_path  # one file system: renaming is atomic
            assert scratch.name.startswith(".r-")
            assert mode(scratch) == 0o700
            assert not (tmp_path / "r").exists()
            (scratch / "inner").mkdir()
            (scratch / "inner" / "file").write_text("x")
    finally:
        os.umask(before)
    assert mode(tmp_path / "r") == wanted
    assert (tmp_path / "r" / "inner" / "file").read_text() == "x"
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, ReleaseError])
def test_an_error_within_goes_on_and_leaves_nothing(tmp_path, error):
    def fail():
        with new_folder(tmp_path / "r") as scratch:
            (scratch / "file").write_text("x")
            raise error("no")

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_system_becomes_a_sentence(tmp_path):
    def fail():
        with new_folder(tmp_path / "r") as scratch:
            (scratch / "file").write_text("x")
            raise OSError(28, "No space left on device")

    with pytest.raises(ReleaseError, match=r"^Cannot write `.*r`: No space left on device\.$"):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "empty folder", "folder", "link", "broken link"])
def test_what_exists_is_refused_and_not_touched(tmp_path, kind):
    target, elsewhere = tmp_path / "r", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "file":
        target.write_text("mine")
    elif "folder" in kind:
        target.mkdir()
        if kind == "folder":
            (target / "file").write_text("mine")
    else:
        target.symlink_to(elsewhere if kind == "link" else tmp_path / "nowhere")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ReleaseError, match="exists already"):
        check_new_folder(target)
    with pytest.raises(ReleaseError, match="exists already"), new_folder(target):
        raise AssertionError("the block is not entered")
    assert sorted(tmp_path.rglob("*")) == before
    assert list(elsewhere.iterdir()) == []


def test_a_link_on_the_way_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with new_folder(tmp_path / "link" / "r") as scratch:
        (scratch / "file").write_text("x")
    assert (tmp_path / "real" / "r" / "file").read_text() == "x"


def test_parents_are_made(tmp_path):
    with new_folder(tmp_path / "a" / "b" / "r") as scratch:
        (scratch / "file").write_text("x")
    assert (tmp_path / "a" / "b" / "r" / "file").read_text() == "x"


def test_parents_that_were_made_are_gone_after_an_error(tmp_path):
    def fail():
        with new_folder(tmp_path / "a" / "b" / "r"):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ReleaseError, match="Cannot write to"), new_folder(tmp_path / "file" / "r"):
        raise AssertionError("the block is not entered")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_appears_meanwhile_is_not_touched(tmp_path, kind):
    target = tmp_path / "r"

    def race():
        with new_folder(target) as scratch:
            (scratch / "file").write_text("ours")
            if kind == "file":
                target.write_text("mine")
            else:
                target.mkdir()
                (target / "file").write_text("mine")

    with pytest.raises(ReleaseError, match=r"Cannot write|exists already"):
        race()
    assert [p.name for p in tmp_path.iterdir()] == ["r"]
    assert (target if kind == "file" else target / "file").read_text() == "mine"


def test_an_empty_folder_that_appears_meanwhile_is_not_replaced(tmp_path):
    def race():
        with new_folder(tmp_path / "r") as scratch:
            (scratch / "file").write_text("ours")
            (tmp_path / "r").mkdir()

    with pytest.raises(ReleaseError):
        race()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("x" * 300),
        pytest.param("a\0b"),
        "x" * 250,
    ],
    ids=["too long", "NUL", "too long with the scratch folder's suffix"],
)
def test_names_that_cannot_be_are_refused_in_a_sentence(tmp_path, name):
    with pytest.raises(SubspaceDPError), new_folder(tmp_path / name):
        raise AssertionError("the block is not entered")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["r/..", "r/../s", "a/b/../../s", "nowhere/r", "loop/r"])
def test_a_path_that_leads_nowhere_is_refused(tmp_path, path):
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ReleaseError, match=r"^Cannot write to "):
        check_new_folder(tmp_path / path)
    with pytest.raises(ReleaseError, match=r"^Cannot write to "), new_folder(tmp_path / path):
        raise AssertionError("the block is not entered")
    assert sorted(tmp_path.iterdir()) == before


def test_up_from_a_folder_that_exists_is_a_path_like_others(tmp_path):
    (tmp_path / "a").mkdir()
    with new_folder(tmp_path / "a" / ".." / "r"):
        pass
    assert (tmp_path / "r").is_dir()


def test_looking_writes_and_takes_away_again(tmp_path, monkeypatch):
    assert check_new_folder(tmp_path / "a" / "r") == tmp_path / "a" / "r"
    assert list(tmp_path.iterdir()) == []

    def read_only(*_arguments, **_options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkdtemp", read_only)
    with pytest.raises(ReleaseError, match="Read-only file system"):
        check_new_folder(tmp_path / "a" / "r")
    assert list(tmp_path.iterdir()) == []


def test_a_name_too_long_for_the_scratch_folder_is_refused_when_asked(tmp_path):
    with pytest.raises(ReleaseError):
        check_new_folder(tmp_path / ("x" * 250))


def test_room_is_counted_by_file_system(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=3_000_000))
    one, two = tmp_path / "deep" / "one", tmp_path / "two"
    check_room({one: 2_000_000})
    check_room({one: 1_500_000, two: 1_500_000})
    with pytest.raises(ReleaseError, match=r"it has 3\.0 MB of room, and .* need 4\.0 MB\.$"):
        check_room({one: 2_000_000, two: 2_000_000})


def test_a_file_system_that_does_not_tell_is_trusted(tmp_path, monkeypatch):
    def unknown(_path):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(shutil, "disk_usage", unknown)
    check_room({tmp_path / "r": 10**18})


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert check_new_folder("r") == Path("r")
    with new_folder("r"):
        pass
    assert (tmp_path / "r").is_dir()
    with pytest.raises(ReleaseError):
        check_new_folder(".")
