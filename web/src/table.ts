// The rows of the table below the graph: what each function, type or file allocated.

import type { Data } from "./data.ts";
import { visible } from "./format.ts";
import { shortPath } from "./module.ts";
import type { Moments } from "./interval.ts";
import type { MomentColumns } from "./moments.ts";
import type { Sums } from "./totals.ts";
import { type Tree, What } from "./tree.ts";

export type TableOf = "functions" | "types" | "files" | "groups";

/** One row of the table. */
export interface Row {
  /** A function, a type, a file or a group, by number. */
  id: number;
  name: string;
  place: string;
  self: Moments;
  total: Moments;
  /** The number of samples in the total. */
  samples: number;
}

/** Sums the nodes by function, by type, by file, or by the group at the top. A recursive call counts once. */
export function rowsOf(of: TableOf, data: Data, tree: Tree, sums: Sums): Row[] {
  const { functions, files, types } = data.header;
  const fileOf = functions.file;
  const size = { functions: functions.name.length, types: types.length, files: files.length, groups: tree.groups.length }[of];
  const keyOf = (node: number): number => {
    if (tree.what[node] === What.Group) return of === "groups" ? tree.id[node]! : -1;
    if (of === "groups") return -1;
    if (tree.what[node] === What.Type) return of === "types" ? tree.id[node]! : -1;
    if (tree.what[node] === What.Root || of === "types") return -1;
    return of === "functions" ? tree.id[node]! : fileOf[tree.id[node]!]!;
  };
  const { self: alone, total: whole } = sums.all();
  const self = moments(size);
  const total = moments(size);
  const samples = new Float64Array(size);
  /** By key: the end of the outermost call that is open. */
  const until = new Uint32Array(size);
  for (let node = 1; node < tree.length; node++) {
    if (sums.samples[node] === 0) continue;
    const key = keyOf(node);
    if (key >= 0) {
      // All of a group is its own.
      add(self[key]!, of === "groups" ? whole : alone, node);
      if (node >= until[key]!) {
        until[key] = tree.end[node]!;
        add(total[key]!, whole, node);
        samples[key]! += sums.samples[node]!;
      }
    } else if (tree.what[node] === What.Type) {
      // What a function allocates belongs to the types below it.
      const caller = keyOf(tree.parent[node]!);
      if (caller >= 0) add(self[caller]!, alone, node);
    }
  }
  const rows: Row[] = [];
  for (let id = 0; id < size; id++) {
    if (samples[id] === 0) continue;
    rows.push({ id, ...named(of, data, tree, id), self: self[id]!, total: total[id]!, samples: samples[id]! });
  }
  return rows;
}

function moments(size: number): Moments[] {
  return Array.from({ length: size }, () => ({ estimate: 0, seen: 0, variance: 0, third: 0 }));
}

function add(to: Moments, from: MomentColumns, at: number): void {
  to.estimate += from.estimate[at]!;
  to.seen += from.seen[at]!;
  to.variance += from.variance[at]!;
  to.third += from.third[at]!;
}

function named(of: TableOf, data: Data, tree: Tree, id: number): { name: string; place: string } {
  const { functions, files, types } = data.header;
  if (of === "groups") return { name: tree.groups[id]!, place: "" };
  if (of === "types") return { name: visible(types[id]! || "unknown type"), place: "" };
  if (of === "files") return { name: visible(files[id]! || "no file"), place: "" };
  const file = shortPath(files[functions.file[id]!]!);
  const line = functions.line[id]!;
  return { name: visible(functions.name[id]!), place: visible(line > 0 ? `${file}:${line}` : file) };
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
