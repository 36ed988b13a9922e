// The page writes figures as the terminal does: both must give the texts of tests/numbers.json.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { pageModule, root } from "./pages.mjs";

test("the page writes each figure as tests/numbers.json has it", async () => {
  const { bytes, count, percent, rate, seconds } = await pageModule("format.ts");
  const write = { bytes, count, rate, share: (part) => percent(part, 1), time: seconds };
  const numbers = JSON.parse(readFileSync(join(root, "tests/numbers.json"), "utf8"));
  // Kinds that the page does not write are the terminal's alone.
  const written = numbers.filter(({ kind }) => kind in write);
  assert.deepEqual(new Set(written.map(({ kind }) => kind)), new Set(Object.keys(write)));
  for (const { kind, value, text } of written) assert.equal(write[kind](value), text, `${kind} ${value}`);
});

test("round figures beside an axis have no zeros behind the point", async () => {
  const { ofAxis } = await pageModule("format.ts");
  for (const [figure, shown] of [["2.00 MiB", "2 MiB"], ["1.50 GiB", "1.5 GiB"], ["10.0 s", "10 s"], ["100 ms", "100 ms"], ["1.00k", "1k"], ["0.25 s", "0.25 s"]]) {
    assert.equal(ofAxis(figure), shown);
  }
});

test("a long value of a label keeps its beginning and its end", async () => {
  const { pinched } = await pageModule("format.ts");
  for (const [value, most, shown] of [
    ["endpoint=/api/v2/items/{item}", 29, "endpoint=/api/v2/items/{item}"],
    ["endpoint=/api/v2/items/{item}", 16, "endpoin…s/{item}"],
    ["abcdef", 4, "a…ef"],
    // Pairs of surrogates are not split.
    ["aa😀😀", 5, "aa…😀"],
    ["a😀aaaa", 5, "a…aa"],
  ]) {
    assert.equal(pinched(value, most), shown);
  }
});
