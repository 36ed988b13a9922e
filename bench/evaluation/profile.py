"""What nthbyte says of a profile."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from evaluation.interpreters import SCRIPT


def summary(profile: Path, *options: str) -> Any:
    """Returns ``nthbyte summary --json``."""
    words = [str(SCRIPT), "summary", "--json", *options, str(profile)]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
