// Sums over the selected records, by node.
//
// What each change of the selection needs (estimates and numbers of samples) is summed at once, into the same arrays
// as before. The moments for intervals are summed when they are asked for: of one node from its records, or of all.

import { type Data, FATES, type Side } from "./data.ts";
import type { Moments } from "./interval.ts";
import { MomentColumns } from "./moments.ts";
import { COUNTED, type Selection, timeSample } from "./selection.ts";
import { type NodeRecords, type SideRecords, type Tree, What } from "./tree.ts";

/** The sums of one side. */
export class Sums {
  /** Including everything that the node called. */
  readonly estimate: Float64Array;
  /** The number of samples in it. */
  readonly samples: Float64Array;
  /** The estimate of the node alone. */
  readonly self: Float64Array;
  #records!: NodeRecords;
  #adds!: MomentColumns;
  #counted: boolean[] = [];
  #from = 0;
  #to = 0;
  #all: { total: MomentColumns; self: MomentColumns } | null = null;
  #fates: Float64Array[] | null = null;
  /** The number of selected samples of each shape below node 0. */
  #shapes = new Float64Array(0);
  /** The last node whose moments were summed: the page asks for those of one node several times. */
  #last: { node: number; moments: Moments } | null = null;

  constructor(
    private readonly side: Side,
    private readonly tree: Tree,
    private readonly lists: SideRecords,
  ) {
    this.estimate = new Float64Array(tree.length);
    this.samples = new Float64Array(tree.length);
    this.self = new Float64Array(tree.length);
  }

  /** Sums the records of a selection. The result is the number of records that were looked at. */
  update(selection: Selection): number {
    const time = selection.measure === "time";
    this.#records = time ? this.lists.cpu : this.lists.allocations;
    this.#adds = time ? timeSample(this.side.tick) : this.side.shapes[selection.measure as "bytes" | "allocations"];
    this.#counted = time ? [true] : [0, 1, 2, 3].map(COUNTED[selection.objects]);
    [this.#from, this.#to] = [selection.from, selection.to];
    this.#all = null;
    this.#fates = null;
    this.#last = null;
    const { start, bucket, fate, shape, count } = this.#records;
    const [from, to] = [this.#from, this.#to];
    const counted = Uint8Array.from({ length: FATES }, (_, at) => (this.#counted[at] ? 1 : 0));
    const each = this.#adds.estimate;
    const { estimate, samples, self, tree } = this;
    if (this.#shapes.length === each.length) this.#shapes.fill(0);
    else this.#shapes = new Float64Array(each.length);
    const shapes = this.#shapes;
    // A second root has records of the first once more.
    const once = start[tree.end[0]!]!;
    for (let node = 0, at = 0; node < tree.length; node++) {
      let sum = 0;
      let seen = 0;
      for (const last = start[node + 1]!; at < last; at++) {
        const when = bucket[at]!;
        if (when < from || when >= to || counted[fate[at]!] === 0) continue;
        sum += count[at]! * each[shape[at]!]!;
        seen += count[at]!;
        if (at < once) shapes[shape[at]!]! += count[at]!;
      }
      self[node] = sum;
      estimate[node] = sum;
      samples[node] = seen;
    }
    const { parent } = tree;
    for (let node = tree.length - 1; node > 0; node--) {
      const up = parent[node]!;
      if (up === node || samples[node] === 0) continue;
      estimate[up]! += estimate[node]!;
      samples[up]! += samples[node]!;
    }
    return this.#records.count.length;
  }

  /** The moments of a node and of what it called. */
  moments(node: number): Moments {
    if (this.#all) return this.#all.total.get(node);
    if (this.#last?.node !== node) {
      const moments = node === 0 ? this.#whole() : this.#sum([[node, this.tree.end[node]!]]);
      this.#last = { node, moments };
    }
    return this.#last.moments;
  }

  /** The moments of a node's own allocations: of the node and its types. */
  own(node: number): Moments {
    const { tree } = this;
    const ranges: [number, number][] = [[node, node + 1]];
    for (let child = node + 1; child < tree.end[node]!; child = tree.end[child]!) {
      if (tree.what[child] === What.Type) ranges.push([child, child + 1]);
    }
    return this.#sum(ranges);
  }

  /** The moments of several subtrees that do not overlap. */
  momentsOf(nodes: Iterable<number>): Moments {
    return this.#sum(Array.from(nodes, (node) => [node, this.tree.end[node]!]));
  }

  /** The moments of all nodes. */
  all(): { total: MomentColumns; self: MomentColumns } {
    if (this.#all) return this.#all;
    const { tree } = this;
    const self = new MomentColumns(tree.length);
    for (let node = 0; node < tree.length; node++) this.#each(node, node + 1, (at, count) => self.add(node, this.#adds, at, count));
    const total = self.clone();
    for (let node = tree.length - 1; node > 0; node--) {
      if (tree.parent[node] !== node && total.samples[node]! > 0) total.add(tree.parent[node]!, total, node);
    }
    this.#all = { total, self };
    return this.#all;
  }

  /** A node's estimate by fate. All 0 for time samples. */
  fates(node: number): Float64Array {
    const sums = new Float64Array(FATES);
    if (this.#records === this.lists.cpu) return sums;
    const each = this.#adds.estimate;
    this.#each(node, this.tree.end[node]!, (shape, count, fate) => {
      sums[fate]! += count * each[shape]!;
    });
    return sums;
  }

  /** By fate, the sums over all nodes before a node; entry `length` has those of all. */
  fateSums(): Float64Array[] {
    if (this.#fates) return this.#fates;
    const { length } = this.tree;
    const sums = Array.from({ length: FATES }, () => new Float64Array(length + 1));
    const running = new Float64Array(FATES);
    const each = this.#adds.estimate;
    for (let node = 0; node < length; node++) {
      if (this.#records !== this.lists.cpu) {
        this.#each(node, node + 1, (shape, count, fate) => {
          running[fate]! += count * each[shape]!;
        });
      }
      for (let fate = 0; fate < FATES; fate++) sums[fate]![node + 1] = running[fate]!;
    }
    this.#fates = sums;
    return sums;
  }

  /** Visits the selected records of some consecutive nodes. */
  #each(first: number, end: number, visit: (shape: number, count: number, fate: number) => void): void {
    const { start, bucket, fate, shape, count } = this.#records;
    const last = start[end]!;
    for (let at = start[first]!; at < last; at++) {
      if (bucket[at]! < this.#from || bucket[at]! >= this.#to || !this.#counted[fate[at]!]) continue;
      visit(shape[at]!, count[at]!, fate[at]!);
    }
  }

  /** The moments of node 0, from the number of samples of each shape. */
  #whole(): Moments {
    const sum = { estimate: 0, seen: 0, variance: 0, third: 0 };
    const { estimate, seen, variance, third } = this.#adds;
    this.#shapes.forEach((count, at) => {
      sum.estimate += count * estimate[at]!;
      sum.seen += count * seen[at]!;
      sum.variance += count * variance[at]!;
      sum.third += count * third[at]!;
    });
    return sum;
  }

  #sum(ranges: [number, number][]): Moments {
    const sum = { estimate: 0, seen: 0, variance: 0, third: 0 };
    const { estimate, seen, variance, third } = this.#adds;
    for (const [first, end] of ranges) {
      this.#each(first, end, (at, count) => {
        sum.estimate += count * estimate[at]!;
        sum.seen += count * seen[at]!;
        sum.variance += count * variance[at]!;
        sum.third += count * third[at]!;
      });
    }
    return sum;
  }
}

/** A side of a difference; a page of one profile has the new one only. */
export type Shown = "new" | "old";

/** The sums of a tree: of the side that is shown, and on a page of a difference of both. */
export class Totals {
  readonly #new: Sums;
  readonly #old: Sums | null;
  #shown: Shown = "new";
  /** What the last update looked at. */
  work = { records: 0, nodes: 0 };

  constructor(data: Data, tree: Tree) {
    this.#new = new Sums(data, tree, tree.records);
    this.#old = data.base && new Sums(data.base, tree, tree.baseRecords!);
  }

  /** Sums the selected records. */
  update(selection: Selection, shown: Shown): void {
    this.#shown = shown;
    const records = this.#new.update(selection) + (this.#old?.update(selection) ?? 0);
    this.work = { records, nodes: this.#new.estimate.length * (this.#old ? 2 : 1) };
  }

  /** The sums of the side that is shown. */
  get shown(): Sums {
    return this.#shown === "old" ? this.#old! : this.#new;
  }

  /** Both sides of a difference. */
  get change(): { old: Sums; new: Sums } | null {
    return this.#old && { old: this.#old, new: this.#new };
  }
}

/** A tree, and its sums. */
export interface View {
  tree: Tree;
  totals: Totals;
}
