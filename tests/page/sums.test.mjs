// The sums of the page's tree: what a move of the range sums again, against sums from nothing.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";

import { pageModule } from "./pages.mjs";

test("a package's file is shown with its folder", async () => {
  const { shortened } = await pageModule("texts.ts");
  for (const [file, shown] of [
    ["/lib/python3.11/json/__init__.py", "json/__init__.py"],
    ["/lib/python3.11/json/decoder.py", "decoder.py"],
    ["C:\\app\\shop\\__main__.py", "shop/__main__.py"],
    ["__main__.py", "__main__.py"],
    ["<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"],
    ["", ""],
  ]) {
    assert.equal(shortened(file), shown);
  }
});

const PARTS = 24;
const SHAPES = 5;

let Sums;

before(async () => {
  ({ Sums } = await pageModule("totals.ts"));
});

/** Numbers below a limit, the same for a seed (Lehmer's generator). */
function random(seed) {
  let state = seed;
  return (limit) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % limit;
  };
}

/** A tree with nodes in depth-first order, and records of its nodes. With `twice`, it has two roots with the same records. */
function madeUp(draw, twice) {
  const parent = [0];
  const grow = (root, nodes) => {
    const path = [root];
    for (let i = 0; i < nodes; i++) {
      path.length = 1 + draw(path.length);
      path.push(parent.length);
      parent.push(path.at(-2));
    }
  };
  grow(0, 60);
  const callers = parent.length;
  if (twice) {
    parent.push(callers);
    grow(callers, 20);
  }
  const { length } = parent;
  const end = Uint32Array.from({ length }, (_, node) => node + 1);
  for (let node = length - 1; node > 0; node--) {
    if (parent[node] !== node) end[parent[node]] = Math.max(end[parent[node]], end[node]);
  }
  const start = [0];
  const rows = [];
  for (let node = 0; node < length; node++) {
    for (let left = draw(3) === 0 ? 0 : draw(8); left > 0; left--) rows.push([draw(PARTS), draw(4), draw(SHAPES), 1 + draw(3)]);
    start.push(rows.length);
  }
  const column = (type, at) => type.from(rows, (row) => row[at]);
  const tree = { length, parent: Uint32Array.from(parent), end, what: new Uint8Array(length).fill(1), callers };
  const records = {
    start: Uint32Array.from(start),
    bucket: column(Uint16Array, 0),
    fate: column(Uint8Array, 1),
    shape: column(Uint32Array, 2),
    count: column(Uint32Array, 3),
  };
  return { tree, records };
}

/** What one sample of each shape adds: no binary fractions, so that another order of additions has another sum. */
function shapes() {
  const column = (scale) => Float64Array.from({ length: SHAPES }, (_, at) => scale / (3 + at));
  return { estimate: column(1), seen: column(0.1), variance: column(10), third: column(100) };
}

/** All figures that the page takes from the sums. */
function figures(sums) {
  const { total, self } = sums.all();
  const columns = [total, self].flatMap(({ estimate, samples, seen, variance, third }) => [estimate, samples, seen, variance, third]);
  return { sums: [sums.estimate, sums.samples, sums.self, ...columns, sums.fateSums()].map((column) => Array.from(column)), root: sums.fates(0) };
}

describe("sums", () => {
  for (const twice of [false, true]) {
    test(`are those of the range, whatever was selected before${twice ? ", with callers and callees" : ""}`, () => {
      for (let seed = 1; seed <= 20; seed++) {
        const draw = random(seed);
        const { tree, records } = madeUp(draw, twice);
        const side = { shapes: { bytes: shapes(), allocations: shapes() }, tick: 0.1 };
        const make = () => new Sums(side, tree, { allocations: records, cpu: records }, PARTS);
        const moved = make();
        let range = [0, PARTS];
        for (let step = 0; step < 25; step++) {
          // Mostly an end of the range moves a little, as when it is dragged; else all is chosen anew.
          if (draw(4) > 0) range[1] = Math.min(PARTS, range[1] + draw(3));
          else range = [draw(PARTS), PARTS];
          if (draw(3) === 0) range[0] = Math.max(0, range[0] - draw(4));
          range[1] = Math.max(range[0] + 1, range[1] - draw(5));
          const objects = step % 10 < 6 ? "all" : "survived";
          const selection = { measure: "bytes", objects, from: range[0], to: range[1] };
          moved.update(selection);
          const fresh = make();
          fresh.update(selection);
          // The moments of one node before those of all: these are computed in another way.
          const node = draw(tree.length);
          assert.deepEqual(moved.moments(node), fresh.moments(node), `seed ${seed}, step ${step}, node ${node}`);
          // From the counts of shapes, in the order of shapes: the same whole numbers, so the same sum.
          assert.deepEqual(moved.moments(0), fresh.moments(0), `seed ${seed}, step ${step}`);
          assert.deepEqual(figures(moved), figures(fresh), `seed ${seed}, step ${step}`);
        }
      }
    });
  }

  test("a small move looks at few records", () => {
    const { tree, records } = madeUp(random(7), false);
    const side = { shapes: { bytes: shapes(), allocations: shapes() }, tick: 0.1 };
    const sums = new Sums(side, tree, { allocations: records, cpu: records }, PARTS);
    const update = (from, to) => sums.update({ measure: "bytes", objects: "all", from, to });
    assert.equal(update(0, PARTS), records.bucket.length);
    assert.equal(update(3, 4), records.bucket.length, "most of all has changed");
    assert.ok(update(3, 5) < records.bucket.length / 2);
    assert.equal(update(3, 5), 0);
  });
});
