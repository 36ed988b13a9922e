// The callers and the callees of one function: both are trees whose root is the function.

import type { Numbers } from "./data.ts";
import { type NodeRecords, type SideRecords, type Tree, TreeBuilder, What, emptyRecords, lazy } from "./tree.ts";

/**
 * Merges all calls of a function. Below node 0 is what it called. Below the second root (`callers`) are its callers,
 * the nearest first; each path of them has all that the calls along it allocated. A call inside a call of the same
 * function is a callee of it, so that nothing counts twice.
 */
export function sandwich(whole: Tree, id: number): Tree {
  const builder = new TreeBuilder(1024);
  builder.root(What.Frame, id);
  const callers = builder.root(What.Frame, id);
  const mapped = new Uint32Array(whole.length);
  /** Triples: a node of the new tree, and the first and the last but one node of the old tree whose records it gets. */
  const parts: number[] = [];
  for (let call = 1; call < whole.length; call++) {
    if (whole.what[call] !== What.Frame || whole.id[call] !== id) continue;
    const end = whole.end[call]!;
    mapped[call] = 0;
    parts.push(0, call, call + 1);
    for (let node = call + 1; node < end; node++) {
      mapped[node] = copied(builder, mapped[whole.parent[node]!]!, whole, node);
      parts.push(mapped[node]!, node, node + 1);
    }
    let caller = callers;
    for (let up = whole.parent[call]!; up !== 0; up = whole.parent[up]!) caller = copied(builder, caller, whole, up);
    parts.push(caller, call, end);
    call = end - 1;
  }
  const { tree, place } = builder.finish();
  const of = (from: NodeRecords) => gathered(tree.length, place, parts, from);
  const side = ({ allocations, cpu, peak, asked, living }: SideRecords): SideRecords => ({
    allocations: of(allocations),
    cpu: of(cpu),
    peak: peak && of(peak),
    asked: asked && of(asked),
    living: living && lazy(() => of(living())),
  });
  return { ...tree, groups: whole.groups, records: side(whole.records), baseRecords: whole.baseRecords && side(whole.baseRecords) };
}

function copied(builder: TreeBuilder, parent: number, from: Tree, node: number): number {
  return builder.child(parent, from.what[node]!, from.id[node]!, from.line[node]!, from.kind[node]!);
}

/** The records of the parts, sorted by the new nodes. */
function gathered(length: number, place: Numbers, parts: number[], from: NodeRecords): NodeRecords {
  const start = new Uint32Array(length + 1);
  for (let i = 0; i < parts.length; i += 3) {
    start[place[parts[i]!]! + 1]! += from.start[parts[i + 2]!]! - from.start[parts[i + 1]!]!;
  }
  for (let node = 0; node < length; node++) start[node + 1]! += start[node]!;
  const records = emptyRecords(start, start[length]!, from.count instanceof Int32Array);
  const next = start.slice();
  for (let i = 0; i < parts.length; i += 3) {
    const to = place[parts[i]!]!;
    const [first, last] = [from.start[parts[i + 1]!]!, from.start[parts[i + 2]!]!];
    for (const column of ["bucket", "fate", "shape", "count"] as const) {
      records[column].set(from[column].subarray(first, last), next[to]!);
    }
    next[to]! += last - first;
  }
  return records;
}
