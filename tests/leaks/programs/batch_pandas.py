"""Tables are made, joined and grouped."""

import numpy
import pandas

random = numpy.random.default_rng(1)
parts = []
for month in range(36):
    frame = pandas.DataFrame(
        {
            "customer": random.integers(0, 5000, 60000),
            "price": random.normal(100, 20, 60000),
            "month": month,
        }
    )
    parts.append(frame.groupby(["customer", "month"], as_index=False)["price"].sum())
sales = pandas.concat(parts)
pivot = sales.pivot_table(index="customer", columns="month", values="price", aggfunc="sum")
names = pandas.DataFrame({"customer": range(5000), "name": [f"customer {number}" for number in range(5000)]})
print(pivot.merge(names, on="customer").describe().shape)
