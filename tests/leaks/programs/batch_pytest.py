"""A run of three thousand tests."""

import tempfile
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.fixture
def rows():
    return [str(number) for number in range(300)]

@pytest.mark.parametrize("number", range(3000))
def test_rows(rows, number):
    assert sorted(rows)[number % 300] in rows
"""

with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "test_rows.py").write_text(TESTS)
    pytest.main(["-q", "-p", "no:cacheprovider", folder])
