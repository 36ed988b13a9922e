"""The figures of the documents are the raw results' in docs/measurements; quick runs measure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICK = ROOT / "build" / "bench" / "quick"
RENDER = """
import json, sys
from pathlib import Path
sys.path.insert(0, "bench")
from evaluation import page, results
print(json.dumps(page.render(Path(sys.argv[1]) if len(sys.argv) > 1 else results.KEPT)))
"""


def rendered(*arguments: str) -> dict[str, str]:
    words = [sys.executable, "-c", RENDER, *arguments]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages: dict[str, str] = json.loads(done.stdout)
    return pages


def test_pages_and_plots_are_made_of_the_raw_results() -> None:
    pages = rendered()
    different = [name for name, text in pages.items() if (ROOT / name).read_text() != text]
    assert different == [], "run bench/run.py --pages"
    kept = {f"docs/measurements/{path.name}" for path in (ROOT / "docs" / "measurements").glob("*.svg")}
    assert kept <= pages.keys()


def test_a_changed_raw_result_changes_its_page(tmp_path: Path) -> None:
    before = rendered()
    changed = False
    for path in (ROOT / "docs" / "measurements").glob("*.json"):
        text = path.read_text()
        if path.stem == "overhead":
            text, changed = re.sub(r'"cpu": [\d.]+', '"cpu": 77.7', text), True
        (tmp_path / path.name).write_text(text)
    if not changed:
        pytest.skip("there is no result of `overhead`")
    after = rendered(str(tmp_path))
    assert after["docs/evaluation.md"] != before["docs/evaluation.md"]


def test_a_quick_run_measures_every_experiment() -> None:
    names = subprocess.run(
        [sys.executable, "bench/run.py", "--list"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in (line.split()[0] for line in names.stdout.splitlines()):
        result = json.loads((QUICK / f"{name}.json").read_text())
        assert result["raw"] or result["notes"], name
