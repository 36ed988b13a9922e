"""A package is checked by mypy."""

from mypy import api

out, errors, status = api.run(
    ["--cache-dir=/dev/null", "--no-incremental", "--check-untyped-defs", "-p", "click"]
)
print(out[-200:], errors)
