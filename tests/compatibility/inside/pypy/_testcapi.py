"""In place of PyPy's module, whose C sources Debian does not package: tests that need it are skipped."""

raise ImportError("the C sources of _testcapi are missing")
