// The call tree: stacks merged by function or by line, with types as leaves.
//
// Nodes are numbered in depth-first order, so the nodes below node `n` are `n + 1` up to `end[n]`, and the
// records of a subtree are neighbours. Sums over subtrees are then loops over consecutive numbers.

import { type By, areGroups, groupNames, valuesOf } from "./groups.ts";
import { type AllocationRecords, type Changes, type Data, Fate, Kind, type Numbers, type Side } from "./data.ts";

/** The kind of a node. */
export const What = { Root: 0, Frame: 1, Type: 2, Group: 3 } as const;

/** Records in the order of the nodes: node `n`'s are `start[n]` up to `start[n + 1]`. */
export interface NodeRecords {
  start: Numbers;
  bucket: Uint16Array;
  fate: Uint8Array;
  shape: Numbers;
  count: Numbers | Int32Array;
}

/** The records of one side. */
export interface SideRecords {
  allocations: NodeRecords;
  cpu: NodeRecords;
  /** What was alive at the peak, and at the moment that the page was made for, if that is known. */
  peak: NodeRecords | null;
  asked: NodeRecords | null;
  /**
   * What comes and goes: the records of the parts of time before a moment add up to what was alive then. They are made when they are
   * first needed.
   */
  living: (() => NodeRecords) | null;
}

/** Makes something when it is first needed. */
export function lazy<T>(make: () => T): () => T {
  let made: T | null = null;
  return () => (made ??= make());
}

/** The nodes, as columns. Node 0 is the root. */
export interface Tree {
  length: number;
  parent: Numbers;
  /** The number after the last node below a node. */
  end: Numbers;
  depth: Uint16Array;
  what: Uint8Array;
  /** A function; for a type's node, the type; for a group's, its number among `groups`. */
  id: Numbers;
  /** The line that runs, if nodes are merged by line; else 0. */
  line: Numbers;
  kind: Uint8Array;
  /** The names of the groups at the top. */
  groups: string[];
  /**
   * In the tree of one function's callers and callees, the second root: its children are the callers of node 0.
   * It is its own parent. In other trees, the number of nodes.
   */
  callers: number;
  records: SideRecords;
  /** The same for the old side of a difference. */
  baseRecords: SideRecords | null;
}

/** Deeper stacks are cut to this depth: a depth has 16 bits. */
const DEEPEST = 0xffff;
/** No node. */
export const NONE = 0xffffffff;

/** Adds nodes one by one; a hash table finds those that exist. */
export class TreeBuilder {
  length = 0;
  #parent: Numbers;
  #what: Uint8Array;
  #id: Numbers;
  #line: Numbers;
  #kind: Uint8Array;
  /** Open addressing: a node's number plus 1, or 0. */
  #slots: Numbers;

  constructor(expected: number) {
    const most = Math.max(expected, 16);
    this.#parent = new Uint32Array(most);
    this.#what = new Uint8Array(most);
    this.#id = new Uint32Array(most);
    this.#line = new Uint32Array(most);
    this.#kind = new Uint8Array(most);
    this.#slots = new Uint32Array(2 ** Math.ceil(Math.log2(2 * most)));
  }

  /** A new root, which is its own parent. */
  root(what: number, id: number): number {
    return this.#add(this.length, what, id, 0, Kind.Interpreted);
  }

  /** The child with this identity; it is added if it does not exist. */
  child(of: number, what: number, id: number, line: number, kind: number): number {
    const mask = this.#slots.length - 1;
    let slot = hash(of, what, id, line) & mask;
    for (let found = this.#slots[slot]!; found !== 0; found = this.#slots[slot]!) {
      const node = found - 1;
      if (this.#parent[node] === of && this.#id[node] === id && this.#line[node] === line && this.#what[node] === what && node !== of) {
        // A function that runs both interpreted and compiled is one node without a special colour.
        if (this.#kind[node] !== kind) this.#kind[node] = Kind.Interpreted;
        return node;
      }
      slot = (slot + 1) & mask;
    }
    this.#slots[slot] = this.length + 1;
    return this.#add(of, what, id, line, kind);
  }

  #add(parent: number, what: number, id: number, line: number, kind: number): number {
    if (this.length === this.#parent.length) this.#grow();
    const node = this.length++;
    this.#parent[node] = parent;
    this.#what[node] = what;
    this.#id[node] = id;
    this.#line[node] = line;
    this.#kind[node] = kind;
    return node;
  }

  #grow(): void {
    const wide = <T extends Uint8Array | Numbers>(of: T): T => {
      const made = new (of.constructor as { new (length: number): T })(2 * of.length);
      made.set(of);
      return made;
    };
    this.#parent = wide(this.#parent);
    this.#what = wide(this.#what);
    this.#id = wide(this.#id);
    this.#line = wide(this.#line);
    this.#kind = wide(this.#kind);
    const slots = new Uint32Array(2 * this.#slots.length);
    const mask = slots.length - 1;
    for (let node = 0; node < this.length; node++) {
      if (this.#parent[node] === node) continue;
      let slot = hash(this.#parent[node]!, this.#what[node]!, this.#id[node]!, this.#line[node]!) & mask;
      while (slots[slot] !== 0) slot = (slot + 1) & mask;
      slots[slot] = node + 1;
    }
    this.#slots = slots;
  }

  /** Numbers the nodes in depth-first order. The result also has each node's new number. */
  finish(): { tree: Omit<Tree, "records" | "baseRecords" | "groups">; place: Numbers } {
    const { length } = this;
    const size = new Uint32Array(length).fill(1);
    // Parents come before their children.
    for (let node = length - 1; node >= 0; node--) {
      const up = this.#parent[node]!;
      if (up !== node) size[up]! += size[node]!;
    }
    const place = new Uint32Array(length);
    const next = new Uint32Array(length);
    const tree = {
      length,
      parent: new Uint32Array(length),
      end: new Uint32Array(length),
      depth: new Uint16Array(length),
      what: new Uint8Array(length),
      id: new Uint32Array(length),
      line: new Uint32Array(length),
      kind: new Uint8Array(length),
      callers: length,
    };
    let roots = 0;
    for (let node = 0; node < length; node++) {
      const up = this.#parent[node]!;
      const isRoot = up === node;
      const at = isRoot ? roots : next[up]!;
      if (isRoot) {
        if (at > 0) tree.callers = at;
        roots += size[node]!;
      } else next[up]! += size[node]!;
      next[node] = at + 1;
      place[node] = at;
      tree.parent[at] = place[up]!;
      tree.end[at] = at + size[node]!;
      tree.depth[at] = isRoot ? 0 : Math.min(tree.depth[place[up]!]! + 1, DEEPEST);
      tree.what[at] = this.#what[node]!;
      tree.id[at] = this.#id[node]!;
      tree.line[at] = this.#line[node]!;
      tree.kind[at] = this.#kind[node]!;
    }
    return { tree, place };
  }
}

function hash(parent: number, what: number, id: number, line: number): number {
  let mixed = Math.imul(parent, 0x9e3779b1) ^ Math.imul(2 * id + what, 0x85ebca6b) ^ Math.imul(line, 0xc2b2ae35);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x2c1b3c6d);
  return (mixed ^ (mixed >>> 13)) >>> 0;
}

/**
 * Merges the stacks; with `byLine`, frames of one function at different lines are different nodes. `by`: the rows at the
 * top, with their own calls below it.
 */
export function merge(data: Data, byLine: boolean, by: By): Tree {
  const builder = new TreeBuilder(data.stackParent.length + (data.allocations.length >> 1));
  builder.root(What.Root, 0);
  const isGroup = areGroups(data);
  const values = by === "calls" || by === "type" ? null : valuesOf(data, Number(by));
  const group = (id: number) => builder.child(0, What.Group, id, 0, Kind.Interpreted);
  /** Adds the nodes of the stacks that are needed, or of all below one top. */
  const call = (caller: number, stack: number): number => {
    const frame = data.stackFrame[stack]!;
    const name = data.frameFunction[frame]!;
    if (isGroup[name] === 1) return values ? group(values[stack]!) : caller;
    return builder.child(caller, What.Frame, name, byLine ? data.frameLine[frame]! : 0, data.frameKind[frame]!);
  };
  const stackNode = new Uint32Array(data.stackParent.length);
  const isUsed = by === "calls" ? null : used(data);
  if (by !== "type") {
    for (let stack = 1; stack < stackNode.length; stack++) {
      if (isUsed === null || isUsed[stack] === 1) stackNode[stack] = call(stackNode[data.stackParent[stack]!]!, stack);
    }
  }
  /** By type: the nodes of its stacks, plus 1, as far as they are made. */
  const ofTypes = new Map<number, Numbers>();
  const below = (type: number, stack: number): number => {
    if (by !== "type") return stackNode[stack]!;
    let made = ofTypes.get(type);
    if (!made) {
      made = new Uint32Array(stackNode.length);
      made[0] = group(type) + 1;
      ofTypes.set(type, made);
    }
    const missing: number[] = [];
    let at = stack;
    for (; made[at] === 0; at = data.stackParent[at]!) missing.push(at);
    for (let next = missing.pop(); next !== undefined; next = missing.pop()) {
      made[next] = call(made[at]! - 1, next) + 1;
      at = next;
    }
    return made[stack]! - 1;
  };
  const typeNodes = ({ stack: stacks, type: types }: { stack: Numbers; type: Numbers }): Numbers => {
    const nodes = new Uint32Array(stacks.length);
    for (let i = 0; i < stacks.length; i++) {
      // Neighbours often have the same stack and type.
      const repeated = i > 0 && stacks[i] === stacks[i - 1] && types[i] === types[i - 1];
      nodes[i] = repeated ? nodes[i - 1]! : builder.child(below(types[i]!, stacks[i]!), What.Type, types[i]!, 0, Kind.Interpreted);
    }
    return nodes;
  };
  const nodesOf = (side: Side) => ({ allocations: typeNodes(side.allocations), cpu: side.cpu.stack.map((stack) => stackNode[stack]!) });
  const nodes = nodesOf(data);
  const baseNodes = data.base && nodesOf(data.base);
  const { peak, asked, changes } = data;
  const aliveNodes = [peak, asked, changes].map((of) => (of ? typeNodes(of) : new Uint32Array(0)));
  const { tree, place } = builder.finish();
  const recordsOf = (side: Side, nodes: { allocations: Numbers; cpu: Numbers }) => ({
    allocations: sorted(tree.length, nodes.allocations, place, side.allocations),
    cpu: sorted(tree.length, nodes.cpu, place, side.cpu),
  });
  const living = (changes: Changes): NodeRecords => {
    const { records, kept } = stillLive(data.allocations);
    const all = joined(records, changes);
    const of = new Uint32Array(all.length);
    of.set(kept.map((at) => nodes.allocations[at]!));
    of.set(aliveNodes[2]!, kept.length);
    return sorted(tree.length, of, place, all);
  };
  return {
    ...tree,
    groups: groupNames(data, by),
    records: {
      ...recordsOf(data, nodes),
      peak: peak && sorted(tree.length, aliveNodes[0]!, place, peak),
      asked: asked && sorted(tree.length, aliveNodes[1]!, place, asked),
      living: changes && lazy(() => living(changes)),
    },
    baseRecords: data.base && { ...recordsOf(data.base, baseNodes!), peak: null, asked: null, living: null },
  };
}

/** Whether a stack or what it called has records, by stack. */
function used(data: Data): Uint8Array {
  const used = new Uint8Array(data.stackParent.length);
  const sides = [data, data.base].flatMap((side) => (side ? [side.allocations, side.cpu] : []));
  for (const of of [...sides, data.peak, data.asked, data.changes]) {
    if (of) for (const stack of of.stack) used[stack] = 1;
  }
  for (let stack = used.length - 1; stack > 0; stack--) {
    if (used[stack] === 1) used[data.stackParent[stack]!] = 1;
  }
  return used;
}

/** The records of live memory at the end, and their places among all. */
function stillLive(from: AllocationRecords): { records: Columns; kept: Numbers } {
  const kept = Uint32Array.from(from.fate.keys()).filter((at) => from.fate[at] === Fate.StillLive);
  const column = (of: Numbers | Int32Array) => kept.map((at) => of[at]!);
  const { bucket, fate, shape, count } = from;
  return { kept, records: { length: kept.length, bucket: column(bucket), fate: column(fate), shape: column(shape), count: column(count) } };
}

/** The columns of two tables, one after the other. */
function joined(one: Columns, other: Columns): Columns {
  const column = (name: "bucket" | "fate" | "shape") => {
    const all = new Uint32Array(one.length + other.length);
    all.set(one[name]!);
    all.set(other[name]!, one.length);
    return all;
  };
  const count = new Int32Array(one.length + other.length);
  count.set(one.count);
  count.set(other.count, one.length);
  return { length: count.length, bucket: column("bucket"), fate: column("fate"), shape: column("shape"), count };
}

interface Columns {
  length: number;
  bucket: Numbers;
  count: Numbers | Int32Array;
  fate?: Numbers;
  shape?: Numbers;
}

/** Sorts records by their nodes, by counting. */
function sorted(length: number, nodes: Numbers, place: Numbers, from: Columns): NodeRecords {
  const start = new Uint32Array(length + 1);
  for (let i = 0; i < nodes.length; i++) start[place[nodes[i]!]! + 1]!++;
  for (let node = 0; node < length; node++) start[node + 1]! += start[node]!;
  const next = start.slice();
  const records = emptyRecords(start, from.length, from.count instanceof Int32Array);
  for (let i = 0; i < nodes.length; i++) {
    const at = next[place[nodes[i]!]!]!++;
    records.bucket[at] = from.bucket[i]!;
    records.count[at] = from.count[i]!;
    if (from.fate) records.fate[at] = from.fate[i]!;
    if (from.shape) records.shape[at] = from.shape[i]!;
  }
  return records;
}

/** Space for so many records; `signed`: some counts are below zero. */
export function emptyRecords(start: Numbers, length: number, signed: boolean): NodeRecords {
  return {
    start,
    bucket: new Uint16Array(length),
    fate: new Uint8Array(length),
    shape: new Uint32Array(length),
    count: signed ? new Int32Array(length) : new Uint32Array(length),
  };
}
