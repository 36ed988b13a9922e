"""Tables are made, joined and grouped by polars."""

import polars

parts = []
for month in range(40):
    frame = polars.DataFrame({"key": range(200000), "month": [month] * 200000}).with_columns(
        (polars.col("key") * 7 % 997).alias("group")
    )
    parts.append(frame.group_by("group", "month").agg(polars.col("key").sum()))
whole = polars.concat(parts)
print(whole.pivot("month", index="group", values="key").shape)
