"""Parses, optimises and translates queries like TPC-H's with sqlglot."""

from sqlglot import optimizer, parse_one

SCHEMA = {
    "lineitem": dict.fromkeys(
        ("l_orderkey", "l_partkey", "l_quantity", "l_price", "l_discount", "l_tax"), "double"
    )
    | {"l_flag": "text", "l_shipdate": "date"},
    "orders": {"o_orderkey": "int", "o_custkey": "int", "o_orderdate": "date", "o_priority": "text"},
    "customer": {"c_custkey": "int", "c_name": "text", "c_nationkey": "int", "c_acctbal": "double"},
    "nation": {"n_nationkey": "int", "n_name": "text"},
}
QUERY = """
WITH spending AS (
    SELECT c_custkey, c_name, n_name, SUM(l_price * (1 - l_discount) * (1 + l_tax)) AS spent, COUNT(*) AS items
    FROM customer
    JOIN orders ON c_custkey = o_custkey
    JOIN lineitem ON l_orderkey = o_orderkey
    JOIN nation ON n_nationkey = c_nationkey
    WHERE o_orderdate >= DATE '19{year}-01-01' AND o_orderdate < DATE '19{year}-01-01' + INTERVAL '1' year
      AND l_discount BETWEEN 0.0{part} - 0.01 AND 0.0{part} + 0.01 AND l_quantity < 24 + {part}
      AND (o_priority = '{part}-HIGH' OR l_flag IN ('A', 'N', 'R'))
    GROUP BY c_custkey, c_name, n_name
), ranked AS (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY n_name ORDER BY spent DESC) AS place FROM spending
)
SELECT n_name, c_name, spent, CASE WHEN items > 10 THEN 'many' WHEN items > {part} THEN 'some' ELSE 'few' END AS size
FROM ranked
WHERE place <= 10 AND spent > (SELECT AVG(spent) FROM spending)
ORDER BY n_name, place LIMIT 100
"""

size = 0
for year in range(92, 98):
    for part in range(1, 5):
        tree = parse_one(QUERY.format(year=year, part=part), read="postgres")
        best = optimizer.optimize(tree, schema=SCHEMA)
        size += sum(
            len(best.sql(dialect=dialect, pretty=True)) for dialect in ("duckdb", "spark", "bigquery")
        )
print(f"sqlglot: {size} bytes of SQL")
