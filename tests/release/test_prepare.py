"""`make release`: what it writes, and when it refuses."""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import prepare

ROOT = Path(__file__).resolve().parents[2]
TODAY = datetime.date(2030, 1, 2)
NAMES = [*prepare.PLACES, prepare.CHANGELOG]


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    return subprocess.run(
        ["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with this one's files that have the version."""
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for variable in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{variable}_NAME", "test")
        monkeypatch.setenv(f"GIT_{variable}_EMAIL", "test@example.org")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def test_the_version_stands_everywhere_and_is_tagged(clone: Path) -> None:
    prepare.prepare("7.8.9", clone, TODAY)
    assert git(clone, "tag", "--points-at", "HEAD").split() == ["v7.8.9"]
    assert git(clone, "status", "--porcelain") == ""
    for name, pattern in prepare.PLACES.items():
        assert {match[2] for match in re.finditer(pattern, (clone / name).read_text())} == {"7.8.9"}
    # Only versions have changed, and in each file the same number of lines.
    changed = git(clone, "show", "--numstat", "--format=", "HEAD").split("\n")
    for line in filter(None, changed):
        added, removed, name = line.split("\t")
        assert added == removed or name == prepare.CHANGELOG, name


def test_cargo_takes_the_lock_file_with_the_new_version(tmp_path: Path) -> None:
    for name in ("Cargo.toml", "Cargo.lock"):
        text = re.sub(prepare.PLACES[name], r"\g<1>7.8.9\g<3>", (ROOT / name).read_text())
        (tmp_path / name).write_text(text)
    (tmp_path / "crates").symlink_to(ROOT / "crates")
    words = ["cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"]
    subprocess.run(words, cwd=tmp_path, check=True, stdout=subprocess.PIPE)


def test_the_changelog_has_a_new_section(clone: Path) -> None:
    before = (clone / prepare.CHANGELOG).read_text()
    after = prepare.released(before, "7.8.9", TODAY)
    assert "## Unreleased\n\n## 7.8.9 - 2030-01-02\n" in after
    body = before.partition("## Unreleased")[2].partition("\n")[2]
    assert after.endswith(body)
    # And a release without news is none.
    with pytest.raises(prepare.Refusal, match="nothing under Unreleased"):
        prepare.released(after, "7.9.0", TODAY)


@pytest.mark.parametrize("version", ["7", "v7.8.9", "7.8", "7.8.9-dev", "", "7.8.9\n"])
def test_what_is_no_version_is_refused(clone: Path, version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare.main([version], clone) == 2
    assert "make release VERSION=1.2.3" in capsys.readouterr().err


def test_nothing_is_changed_by_a_refusal(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (clone / "README.md").write_text("not committed")
    assert prepare.main(["7.8.9"], clone) == 1
    (clone / "README.md").unlink()
    git(clone, "tag", "v7.8.9")
    assert prepare.main(["7.8.9"], clone) == 1
    lock = clone / "Cargo.toml"
    lock.write_text(
        lock.read_text().replace('path = "crates/host", version = "', 'path = "crates/host", version = "9')
    )
    git(clone, "commit", "--quiet", "--all", "--message", "two versions")
    assert prepare.main(["7.9.0"], clone) == 1
    err = capsys.readouterr().err
    assert [
        word in line for word, line in zip(["not committed", "v7.8.9", "2 versions"], err.splitlines())
    ] == [True] * 3
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "log", "-1", "--format=%s") == "two versions\n"
