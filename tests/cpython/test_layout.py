"""The agent checks each field of its layout against the interpreter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import Interpreter

pytestmark = pytest.mark.each

# Prints the check's error after a change of one field: by field, then by change.
PROGRAM = """
import ctypes, itertools, json, sys
library = ctypes.PyDLL(sys.argv[1])
library.layout_field.restype = library.verify_with.restype = ctypes.c_char_p
library.layout_field.argtypes = [ctypes.c_size_t]
library.verify_with.argtypes = [ctypes.c_size_t, ctypes.c_ssize_t]
found = {}
for at in itertools.count():
    name = library.layout_field(at)
    if name is None:
        break
    changes = (0, 4096, -4096) if name == b"interpreter_size" else (0, 1, -1, 8, -8, 16, 64)
    found[name.decode()] = {change: library.verify_with(at, change).decode() for change in changes}
print(json.dumps(found))
"""

# Fields that only some versions have.
SOME = {"thread_cframe", "interpreter_size", "interpreter_gil"}


def test_each_wrong_field_is_refused(seams: Path, cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(PROGRAM)
    found = json.loads(cpython.python("look.py", seams, folder=tmp_path).ok().out)
    assert len(found) > 30
    for field, answers in found.items():
        right = answers.pop("0")
        if right == "unused":
            assert field in SOME
            assert set(answers.values()) == {"unused"}
            continue
        assert right == "fine", field
        accepted = [change for change, answer in answers.items() if answer == "fine"]
        assert accepted == [], f"{field} may be wrong by {accepted}"
