"""A table that is read from text, grouped and joined."""

import io

import pandas

rows = "".join(f"{i % 997},{i % 31},{i * 0.5},name {i % 5003}\n" for i in range(400_000))
table = pandas.read_csv(io.StringIO("key,group,value,name\n" + rows))
for _ in range(3):
    sums = table.groupby(["group", "name"]).value.sum().reset_index()
    joined = table.merge(sums, on=["group", "name"], suffixes=("", "_sum"))
print(len(joined))
