"""What a script in Python is."""

from __future__ import annotations

import pytest

from nthbyte._command_line import is_python_script

PYTHON = (
    "#!/usr/bin/python3.13\nimport this",
    "#!/usr/bin/env pypy3\n",
    "#!/usr/bin/env -S uv run\n",
    "#!/bin/sh\n'''exec' \"/a long folder/bin/python3\" \"$0\" \"$@\"\n' '''\n",
)
OTHERS = ("#!/bin/sh\n# Sets python up.\npython3 setup.py\n", "#!/usr/bin/perl\n", "import this\n", "")


@pytest.mark.parametrize("head", PYTHON + OTHERS)
def test_interpreter_lines(head: str) -> None:
    assert is_python_script(head.encode()) == (head in PYTHON)
