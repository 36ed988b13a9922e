"""Groups, joins and changes a table with columns of Python strings in pandas."""

import pandas

count = 100_000
table = pandas.DataFrame(
    {
        "name": pandas.Series([f"name {n % 7919}" for n in range(count)], dtype=object),
        "city": pandas.Series([f"city {n % 211}" for n in range(count)], dtype=object),
        "value": [n % 1013 / 7 for n in range(count)],
    }
)
for _ in range(3):
    table["key"] = table["name"].map(str.upper) + "/" + table["city"]
    sums = table.groupby("city")["value"].agg(["sum", "mean", "max"])
    joined = table.merge(sums.reset_index(), on="city")
    words = joined["key"].str.split("/").str[0].value_counts()
print(f"pandas: {len(joined)} rows, {len(words)} words")
