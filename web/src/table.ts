// The table below the graph: functions, types or files, with what each allocated.

import type { Data } from "./data.ts";
import { visible } from "./format.ts";
import { type Totals, type Tree, What } from "./tree.ts";

export type TableOf = "functions" | "types" | "files";

/** One row: a thing and its estimates. */
export interface Row {
  /** A function, a type or a file, by number. */
  id: number;
  name: string;
  place: string;
  self: number;
  selfVariance: number;
  selfSamples: number;
  total: number;
  totalVariance: number;
  totalSamples: number;
}

/** Adds up nodes by function, by type, or by file. A call within a call of the same thing counts once. */
export function rowsOf(of: TableOf, data: Data, tree: Tree, totals: Totals): Row[] {
  const { functions, files, types } = data.header;
  const fileOf = functions.file;
  const size = { functions: functions.name.length, types: types.length, files: files.length }[of];
  const keyOf = (node: number): number => {
    if (tree.what[node] === What.Type) return of === "types" ? tree.id[node]! : -1;
    if (tree.what[node] === What.Root || of === "types") return -1;
    return of === "functions" ? tree.id[node]! : fileOf[tree.id[node]!]!;
  };
  const sums = Array.from({ length: 6 }, () => new Float64Array(size));
  const [self, selfVariance, selfSamples, total, totalVariance, totalSamples] = sums as [
    Float64Array, Float64Array, Float64Array, Float64Array, Float64Array, Float64Array,
  ];

  const open = new Uint32Array(size);
  eachInAndOut(tree, (node, entering) => {
    const key = keyOf(node);
    if (key < 0) return;
    if (!entering) {
      open[key]!--;
      return;
    }
    if (open[key]!++ === 0) {
      total[key]! += totals.total[node]!;
      totalVariance[key]! += totals.totalVariance[node]!;
      totalSamples[key]! += totals.totalSamples[node]!;
    }
    addSelf(node, key);
  });

  // What a frame itself allocated is in the types' nodes on top of it.
  function addSelf(node: number, key: number) {
    const add = (from: number) => {
      self[key]! += totals.self[from]!;
      selfVariance[key]! += totals.selfVariance[from]!;
      selfSamples[key]! += totals.selfSamples[from]!;
    };
    add(node);
    if (tree.what[node] === What.Type) return;
    for (let at = tree.firstChild[node]!; at < tree.firstChild[node + 1]!; at++) {
      const child = tree.child[at]!;
      if (tree.what[child] === What.Type) add(child);
    }
  }

  const rows: Row[] = [];
  for (let id = 0; id < size; id++) {
    if (totalSamples[id] === 0) continue;
    rows.push({
      id,
      ...named(of, data, id),
      self: self[id]!,
      selfVariance: selfVariance[id]!,
      selfSamples: selfSamples[id]!,
      total: total[id]!,
      totalVariance: totalVariance[id]!,
      totalSamples: totalSamples[id]!,
    });
  }
  return rows;
}

function named(of: TableOf, data: Data, id: number): { name: string; place: string } {
  const { functions, files, types } = data.header;
  if (of === "types") return { name: visible(types[id]! || "type not known"), place: "" };
  if (of === "files") return { name: visible(files[id]! || "no file"), place: "" };
  const file = files[functions.file[id]!]!;
  const line = functions.line[id]!;
  return { name: visible(functions.name[id]!), place: visible(line > 0 ? `${file}:${line}` : file) };
}

/** Visits every node before and after what is above it. */
function eachInAndOut(tree: Tree, visit: (node: number, entering: boolean) => void): void {
  const next = tree.firstChild.slice(0, tree.length);
  let node = 0;
  visit(0, true);
  for (;;) {
    if (next[node]! < tree.firstChild[node + 1]!) {
      node = tree.child[next[node]!++]!;
      visit(node, true);
    } else {
      visit(node, false);
      if (node === 0) return;
      node = tree.parent[node]!;
    }
  }
}

export type SortKey = "name" | "self" | "total" | "samples";

/** Sorts rows; names from A to Z or back, numbers from the highest or back. */
export function sorted(rows: Row[], key: SortKey, ascending: boolean): Row[] {
  const names = new Intl.Collator("en", { numeric: true });
  const compare: Record<SortKey, (a: Row, b: Row) => number> = {
    name: (a, b) => names.compare(a.name, b.name),
    self: (a, b) => a.self - b.self,
    total: (a, b) => a.total - b.total,
    samples: (a, b) => a.totalSamples - b.totalSamples,
  };
  const sign = ascending ? 1 : -1;
  return rows.slice().sort((a, b) => sign * compare[key](a, b) || names.compare(a.name, b.name));
}
