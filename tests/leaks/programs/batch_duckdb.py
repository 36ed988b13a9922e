"""Only imports a large package."""

import duckdb

print(duckdb.__version__)
