"""The file of a profile is claimed before the session begins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nthbyte import _claim
from nthbyte._claim import MAGIC, claim, confirm

OLD = MAGIC + b"an old profile"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "out.nthb"
    path.write_bytes(OLD)
    return path


def test_a_replaced_profile_is_back_if_no_session_begins(old: Path) -> None:
    claimed = claim(str(old), force=True)
    assert (claimed.path, old.read_bytes()) == (str(old), MAGIC)
    claimed.withdraw()
    assert old.read_bytes() == OLD
    assert os.listdir(old.parent) == [old.name]


def test_a_session_that_still_writes_keeps_its_own_file(old: Path) -> None:
    with old.open("r+b") as file:
        confirm(claim(str(old), force=True))
        file.seek(0, os.SEEK_END)
        file.write(b" goes on")
    assert old.read_bytes() == MAGIC
    assert os.listdir(old.parent) == [old.name]


def test_a_program_that_cannot_be_executed_leaves_nothing(old: Path) -> None:
    claimed = claim(str(old), force=True)
    confirm(claimed)
    claimed.withdraw()
    assert os.listdir(old.parent) == []


def test_links_stay(old: Path) -> None:
    link, other = old.parent / "link.nthb", old.parent / "other.nthb"
    link.symlink_to(old.name)
    other.hardlink_to(old)
    confirm(claim(str(link), force=True))
    assert link.is_symlink() and link.read_bytes() == MAGIC
    assert other.read_bytes() == OLD


def test_where_no_link_is_possible_the_file_itself_is_used(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    before = old.stat().st_ino
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        claimed = claim(str(old), force=True)
    assert (claimed.path, old.stat().st_ino, old.read_bytes()) == (str(old), before, OLD)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        claim(str(old), force=True)
    assert os.listdir(old.parent) == [old.name]
    claimed.withdraw()
    assert old.read_bytes() == OLD


def test_what_was_just_claimed_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.nthb"
    first, second = (claim(str(path), force=True) for _ in range(2))
    assert [first.path, second.path] == [str(path), str(tmp_path / "out-2.nthb")]
    # A session that was killed at its start leaves such a file, too.
    os.utime(path, (0, path.stat().st_mtime - 2 * _claim._LONGEST_START))
    assert claim(str(path), force=True).path == str(path)


def test_a_replaced_file_is_looked_at_again(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may replace it while this one waits for the lock."""
    lock = _claim._lock

    def replace_first(file: int) -> None:
        monkeypatch.setattr(_claim, "_lock", lock)
        claim(str(old), force=True)
        lock(file)

    monkeypatch.setattr(_claim, "_lock", replace_first)
    assert claim(str(old), force=True).path == str(old.parent / "out-2.nthb")


def test_a_free_name_is_what_a_claim_takes(old: Path) -> None:
    for name in ("out.nthb", "new.nthb", "empty.nthb"):
        (old.parent / "empty.nthb").touch()
        path = str(old.parent / name)
        free = _claim.free_name(path)
        assert free == claim(path).path
