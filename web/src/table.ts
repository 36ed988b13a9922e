// The rows of the table below the graph: what each function, type or file allocated.

import type { Data } from "./data.ts";
import { visible } from "./format.ts";
import { shortPath } from "./module.ts";
import type { Moments } from "./interval.ts";
import { MomentColumns } from "./moments.ts";
import { type Totals, type Tree, What, ownNodes } from "./tree.ts";

export type TableOf = "functions" | "types" | "files";

/** One row of the table. */
export interface Row {
  /** A function, a type or a file, by number. */
  id: number;
  name: string;
  place: string;
  self: Moments;
  total: Moments;
  /** The number of samples in the total. */
  samples: number;
}

/** Sums the nodes by function, by type, or by file. A recursive call counts once. */
export function rowsOf(of: TableOf, data: Data, tree: Tree, totals: Totals): Row[] {
  const { functions, files, types } = data.header;
  const fileOf = functions.file;
  const size = { functions: functions.name.length, types: types.length, files: files.length }[of];
  const keyOf = (node: number): number => {
    if (tree.what[node] === What.Type) return of === "types" ? tree.id[node]! : -1;
    if (tree.what[node] === What.Root || of === "types") return -1;
    return of === "functions" ? tree.id[node]! : fileOf[tree.id[node]!]!;
  };
  const self = new MomentColumns(size);
  const total = new MomentColumns(size);
  const open = new Uint32Array(size);
  eachInAndOut(tree, (node, entering) => {
    const key = keyOf(node);
    if (key < 0) return;
    if (!entering) {
      open[key]!--;
      return;
    }
    if (open[key]!++ === 0) total.add(key, totals.total, node);
    for (const part of ownNodes(tree, node)) self.add(key, totals.self, part);
  });

  const rows: Row[] = [];
  for (let id = 0; id < size; id++) {
    if (total.samples[id] === 0) continue;
    rows.push({ id, ...named(of, data, id), self: self.get(id), total: total.get(id), samples: total.samples[id]! });
  }
  return rows;
}

function named(of: TableOf, data: Data, id: number): { name: string; place: string } {
  const { functions, files, types } = data.header;
  if (of === "types") return { name: visible(types[id]! || "unknown type"), place: "" };
  if (of === "files") return { name: visible(files[id]! || "no file"), place: "" };
  const file = shortPath(files[functions.file[id]!]!);
  const line = functions.line[id]!;
  return { name: visible(functions.name[id]!), place: visible(line > 0 ? `${file}:${line}` : file) };
}

/** Visits every node twice: before and after its children. */
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

/** Sorts rows by a column, ascending or descending. */
export function sorted(rows: Row[], key: SortKey, ascending: boolean): Row[] {
  const names = new Intl.Collator("en", { numeric: true });
  const compare: Record<SortKey, (a: Row, b: Row) => number> = {
    name: (a, b) => names.compare(a.name, b.name),
    self: (a, b) => a.self.estimate - b.self.estimate,
    total: (a, b) => a.total.estimate - b.total.estimate,
    samples: (a, b) => a.samples - b.samples,
  };
  const sign = ascending ? 1 : -1;
  return rows.slice().sort((a, b) => sign * compare[key](a, b) || names.compare(a.name, b.name));
}
