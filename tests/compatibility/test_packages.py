"""The tests of two small packages have the same outcomes under nthbyte."""

from __future__ import annotations

import pytest

from compatibility import comparison, packages
from harness import cpythons

# Packages that are installed with their tests.
SMALL = ["simplejson", "zope.interface"]


@pytest.mark.parametrize("name", SMALL)
def test_packages(name: str) -> None:
    interpreter = next((one for one in cpythons() if not one.tree), None)
    if interpreter is None:
        pytest.skip("this system has no CPython")
    package = next(one for one in packages.table().packages if one.name == name)
    with packages.prepared(package, interpreter, keep=True) as suite:
        result = comparison.compare(suite, ())
    assert result.state == comparison.COMPARED, result
    assert not result.differences, f"{result.differences}\n{result.output}"
    assert result.counts["passed"] > 100
