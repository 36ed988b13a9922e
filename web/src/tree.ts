// The call tree: stacks merged by function or by line, with types as leaves; and its totals.

import { type Data, FATES, Kind, type Numbers, type Side } from "./data.ts";
import { MomentColumns } from "./moments.ts";
import type { Selection } from "./selection.ts";

/** The kind of a node. */
export const What = { Root: 0, Frame: 1, Type: 2 } as const;

/** The nodes, as columns. Node 0 is the root; parents come before their children. */
export interface Tree {
  length: number;
  parent: Numbers;
  depth: Uint16Array;
  what: Uint8Array;
  /** A function; for a type's node, the type. */
  id: Numbers;
  /** The line that runs, if nodes are merged by line; else 0. */
  line: Numbers;
  kind: Uint8Array;
  /** The node that a record belongs to. */
  nodes: RecordNodes;
  /** The same for the old side of a difference. */
  baseNodes: RecordNodes | null;
  /** The node's children are `child[firstChild[n]]` up to `child[firstChild[n + 1]]`. */
  firstChild: Numbers;
  child: Numbers;
}

/** The nodes that the records of a side belong to. */
export interface RecordNodes {
  allocation: Numbers;
  cpu: Numbers;
}

/** Deeper stacks are cut to this depth: a depth has 16 bits. */
const DEEPEST = 0xffff;

/** Merges the stacks; with `byLine`, frames of one function at different lines are different nodes. */
export function merge(data: Data, byLine: boolean): Tree {
  const most = data.stackParent.length + data.allocations.length + (data.base?.allocations.length ?? 0);
  const parent = new Uint32Array(most);
  const depth = new Uint16Array(most);
  const what = new Uint8Array(most);
  const id = new Uint32Array(most);
  const line = new Uint32Array(most);
  const kind = new Uint8Array(most);
  let length = 1;

  const ids = Math.max(data.frameFunction.length, data.header.functions.name.length, data.header.types.length) * 2;
  const known = new Map<number, number>();
  const child = (of: number, key: number): number => {
    const whole = of * ids + key;
    const found = known.get(whole);
    if (found !== undefined) return found;
    known.set(whole, length);
    parent[length] = of;
    depth[length] = Math.min(depth[of]! + 1, DEEPEST);
    return length++;
  };

  const stackNode = new Uint32Array(data.stackParent.length);
  for (let stack = 1; stack < stackNode.length; stack++) {
    const frame = data.stackFrame[stack]!;
    const before = length;
    const node = child(stackNode[data.stackParent[stack]!]!, 2 * (byLine ? frame : data.frameFunction[frame]!));
    if (length > before) {
      what[node] = What.Frame;
      id[node] = data.frameFunction[frame]!;
      line[node] = byLine ? data.frameLine[frame]! : 0;
      kind[node] = data.frameKind[frame]!;
    } else if (kind[node] !== data.frameKind[frame]!) {
      // A function that runs both interpreted and compiled is one node without a special colour.
      kind[node] = Kind.Interpreted;
    }
    stackNode[stack] = node;
  }

  const nodesOf = (side: Side): RecordNodes => {
    const { stack: stacks, type: types } = side.allocations;
    const allocation = new Uint32Array(stacks.length);
    for (let i = 0; i < stacks.length; i++) {
      const before = length;
      const top = child(stackNode[stacks[i]!]!, 2 * types[i]! + 1);
      if (length > before) {
        what[top] = What.Type;
        id[top] = types[i]!;
      }
      allocation[i] = top;
    }
    return { allocation, cpu: side.cpu.stack.map((stack) => stackNode[stack]!) };
  };
  const nodes = nodesOf(data);
  const baseNodes = data.base && nodesOf(data.base);

  const { firstChild, child: children } = childrenOf(parent, length);
  return {
    length,
    parent: parent.subarray(0, length),
    depth: depth.subarray(0, length),
    what: what.subarray(0, length),
    id: id.subarray(0, length),
    line: line.subarray(0, length),
    kind: kind.subarray(0, length),
    nodes,
    baseNodes,
    firstChild,
    child: children,
  };
}

function childrenOf(parent: Numbers, length: number) {
  const firstChild = new Uint32Array(length + 1);
  for (let node = 1; node < length; node++) firstChild[parent[node]! + 1]!++;
  for (let node = 0; node < length; node++) firstChild[node + 1]! += firstChild[node]!;
  const next = firstChild.slice();
  const child = new Uint32Array(Math.max(length - 1, 0));
  for (let node = 1; node < length; node++) child[next[parent[node]!]!++] = node;
  return { firstChild, child };
}

/** The totals of each node, for one selection of records. */
export interface Totals {
  /** Including everything that it called. */
  total: MomentColumns;
  /** The node alone. */
  self: MomentColumns;
  /** The total's estimate by fate: entry `FATES * node + fate`. All 0 for time samples. */
  byFate: Float64Array;
  /** On a page of a difference: the total of each side. What is above is that of the side that is shown. */
  change: { old: MomentColumns; new: MomentColumns } | null;
}

/** A side of a difference; a page of one profile has the new one only. */
export type Shown = "new" | "old";

/** Sums the selected records. */
export function totals(data: Data, tree: Tree, selection: Selection, shown: Shown = "new"): Totals {
  const ofNew = sums(data, tree, tree.nodes, selection);
  if (!data.base || !tree.baseNodes) return { ...ofNew, change: null };
  const ofOld = sums(data.base, tree, tree.baseNodes, selection);
  return { ...(shown === "old" ? ofOld : ofNew), change: { old: ofOld.total, new: ofNew.total } };
}

function sums(side: Side, tree: Tree, nodes: RecordNodes, selection: Selection): Omit<Totals, "change"> {
  const self = new MomentColumns(tree.length);
  const byFate = new Float64Array(FATES * tree.length);
  selection.each(side, (record, from, at, count, fate) => {
    const node = fate < 0 ? nodes.cpu[record]! : nodes.allocation[record]!;
    self.add(node, from, at, count);
    if (fate >= 0) byFate[FATES * node + fate]! += count * from.estimate[at]!;
  });
  const total = self.clone();
  for (let node = tree.length - 1; node > 0; node--) {
    const up = tree.parent[node]!;
    total.add(up, total, node);
    for (let fate = 0; fate < FATES; fate++) {
      byFate[FATES * up + fate]! += byFate[FATES * node + fate]!;
    }
  }
  return { total, self, byFate };
}

/** The nodes that a node's own allocations belong to: the node, and its types. */
export function ownNodes(tree: Tree, node: number): number[] {
  const own = [node];
  for (let at = tree.firstChild[node]!; at < tree.firstChild[node + 1]!; at++) {
    if (tree.what[tree.child[at]!] === What.Type) own.push(tree.child[at]!);
  }
  return own;
}
