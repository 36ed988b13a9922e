"""Builds the source distribution and, from it, the wheels of a release, into ``dist``.

The wheels are built from the unpacked source distribution, so it is known to build. Each wheel is checked
(``check.py``). The time in them is SOURCE_DATE_EPOCH, or the last commit's: two builds of a commit are
byte-identical, which ``--twice`` checks, with a second build from nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from check import problems_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hatch_build import TARGETS  # noqa: E402

DIST = ROOT / "dist"
SOURCES = ROOT / "build" / "release" / "sources"


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--targets", nargs="*", default=["x86_64", "aarch64"], help=f"of {', '.join(TARGETS)}"
    )
    parser.add_argument("--twice", action="store_true", help="build everything a second time, and compare")
    arguments = parser.parse_args()
    targets = [target for target in arguments.targets if _can_build(target)]
    target_folder = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    built = build(targets, DIST, target_folder)
    failed = len(targets) < len(arguments.targets)
    for wheel in built[1:]:
        problems = problems_of(wheel)
        print("\n".join(problems) or f"nthbyte: {wheel.name} is good", file=sys.stderr)
        failed |= bool(problems)
    if arguments.twice:
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as second:
            again = build(targets, Path(second, "dist"), Path(second, "target"))
            for first, other in zip(built, again):
                same = first.name == other.name and _digest(first) == _digest(other)
                print(
                    f"nthbyte: {first.name}: two builds {'are the same' if same else 'DIFFER'}",
                    file=sys.stderr,
                )
                failed |= not same
    for file in built:
        print(f"{_digest(file)}  {file.stat().st_size:,} bytes  {file.relative_to(ROOT)}")
    return 1 if failed else 0


def build(targets: list[str], dist: Path, target_folder: Path) -> list[Path]:
    """Builds everything into the folder ``dist``, and returns the files: the source distribution first."""
    shutil.rmtree(dist, ignore_errors=True)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _run("git", "log", "-1", "--format=%ct").strip()
    # A developer's variables may ask for lighter builds.
    own = {name: value for name, value in os.environ.items() if not name.startswith("CARGO_PROFILE_")}
    environment = {**own, "SOURCE_DATE_EPOCH": epoch, "CARGO_TARGET_DIR": str(target_folder)}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment.setdefault("NTHBYTE_PYTHONS", ";".join(shlex.join(words) for words in _pythons()))
    hatchling = [sys.executable, "-m", "hatchling", "build", "-d", str(dist)]
    subprocess.run([*hatchling, "-t", "sdist"], cwd=ROOT, env=environment, check=True)
    (sdist,) = dist.glob("*.tar.gz")
    shutil.rmtree(SOURCES, ignore_errors=True)
    SOURCES.mkdir(parents=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(SOURCES)
    (unpacked,) = SOURCES.iterdir()
    for target in targets:
        print(f"nthbyte: building the wheel for {target}", file=sys.stderr)
        of_target = {**environment, "NTHBYTE_TARGET": target}
        subprocess.run([*hatchling, "-t", "wheel"], cwd=unpacked, env=of_target, check=True)
    return [sdist, *sorted(dist.glob("*.whl"))]


def _can_build(target: str) -> bool:
    triple = TARGETS[target].triple.partition(".")[0]
    if Path(_run("rustc", "--print", "target-libdir", "--target", triple).strip()).is_dir():
        return True
    print(f"nthbyte: no wheel for {target}; first: rustup target add {triple}", file=sys.stderr)
    return False


def _pythons() -> list[list[str]]:
    """The commands of the interpreters whose bytecode is in the wheels: one of each version that is here."""
    names = ["python3.11", "python3.12", "python3.13", "python3.14", "python3.15", "pypy3"]
    found: dict[str, list[str]] = {}
    for name in names:
        folders = [*sorted(Path.home().glob(".pyenv/versions/*/bin"), reverse=True), Path("/usr/bin")]
        paths = [shutil.which(name, path=str(folder)) for folder in folders] + [shutil.which(name)]
        commands = [[path] for path in paths if path]
        for tree in sorted((ROOT / "build" / "interpreters").glob("*/complete")):
            commands.append(["chroot", str(tree.parent), name])
        for command in commands:
            try:
                done = subprocess.run(
                    [*command, "-c", "import sys; print(sys.implementation.cache_tag)"],
                    capture_output=True,
                    text=True,
                )
            except OSError:
                continue
            if done.returncode == 0:
                found.setdefault(done.stdout.strip(), command)
    return [found[tag] for tag in sorted(found)]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _run(*words: str) -> str:
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
