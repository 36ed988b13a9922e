"""The wheel of the reports for macOS: it compiles, is what its tag says, and pip takes it. Nothing here can run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "release"))

import mach_o  # noqa: E402

# Made by `make test-macos`.
[WHEEL] = (ROOT / "build" / "macos").glob("*.whl")


def test_it_is_what_its_tag_says() -> None:
    check = [ROOT / "build/release/tools/bin/python", ROOT / "release/check.py", WHEEL]
    done = subprocess.run(check, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_pip_takes_it_on_a_mac_only(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", "site"]
    assert subprocess.run([*pip, WHEEL], cwd=tmp_path, capture_output=True).returncode
    mac = ["--only-binary", ":all:", "--platform", "macosx_11_0_arm64"]
    subprocess.run([*pip, *mac, WHEEL], cwd=tmp_path, check=True)
    assert (tmp_path / "site/nthbyte/bin/nthbyte").stat().st_mode & 0o111 == 0o111
    assert not list(tmp_path.rglob("*.so"))


def test_a_changed_program_has_no_valid_signature(tmp_path: Path) -> None:
    """The check would see a tool that changes the program after it was signed, as the one that strips it does."""
    mac = ["--only-binary", ":all:", "--platform", "macosx_11_0_arm64"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", tmp_path]
    subprocess.run([*pip, *mac, WHEEL], check=True)
    program = bytearray((tmp_path / "nthbyte/bin/nthbyte").read_bytes())
    assert mach_o.read(bytes(program)).signature == "valid"
    program[100_000] ^= 1
    assert mach_o.read(bytes(program)).signature.endswith("differs")


def test_recording_is_refused_in_one_line() -> None:
    """Where the wheel has no agents."""
    program = """
import sys
from nthbyte import _agent
sys.platform = "darwin"
_agent._FOLDER = "/nothing"
try:
    _agent.load()
except _agent.Error as error:
    print(error)
"""
    environment = {"PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout == "programs are recorded on Linux only; this machine reads their profiles\n", (
        done.stderr
    )
