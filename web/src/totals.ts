// Sums over the selected records, by node.
//
// What each change of the selection needs (estimates and numbers of samples) is summed at once, into the same arrays
// as before. Where only the range of time has moved, only the nodes with records in the parts that were added or left
// out are summed again, so that a move costs what it changes. Each node is summed from its own records in their order,
// whatever was selected before: the figures of a range do not depend on the way to it. The moments for intervals are
// summed when they are asked for: of one node from its records, or of all.

import { type Buckets, byBucket, changes } from "./buckets.ts";
import { type Data, FATES, type Side } from "./data.ts";
import type { Moments } from "./interval.ts";
import { MomentColumns } from "./moments.ts";
import { COUNTED, type Selection, isAtMoment, timeSample } from "./selection.ts";
import { type NodeRecords, type SideRecords, type Tree, What } from "./tree.ts";

/** With more records than this share of all in the parts that changed, all are summed. */
const MOST_CHANGED = 0.5;

/** The sums of one side. */
export class Sums {
  /** Including everything that the node called. */
  readonly estimate: Float64Array;
  /** The number of samples in it. */
  readonly samples: Float64Array;
  /** The estimate of the node alone. */
  readonly self: Float64Array;
  /** The number of samples of the node alone. */
  readonly #alone: Float64Array;
  #records!: NodeRecords;
  #adds!: MomentColumns;
  #counted = new Uint8Array(FATES);
  #from = 0;
  #to = 0;
  /** The summed records; null before the first time. */
  #selection: Selection | null = null;
  readonly #buckets = new Map<NodeRecords, Buckets>();
  /** The nodes that are summed again, and by node whether it is among them. */
  #again = new Uint32Array(0);
  #marked = new Uint8Array(0);
  /** The moments of all nodes, in columns that are used again; and whether they are the selection's. */
  #columns: { total: MomentColumns; self: MomentColumns } | null = null;
  #known = false;
  /** By node and fate, the estimate of the node alone; kept up to date once it has been asked for. */
  #fates: Float64Array | null = null;
  #fatesKnown = false;
  /** By node and fate, the sum over all nodes before the node. */
  #fateSums: Float64Array | null = null;
  #fateSumsKnown = false;
  /** The number of selected samples of each shape below node 0. */
  #shapes = new Float64Array(0);
  /** The last node whose moments were summed: the page asks for one node's several times. */
  #last: { node: number; moments: Moments } | null = null;

  constructor(
    private readonly side: Side,
    private readonly tree: Tree,
    private readonly lists: SideRecords,
    /** The number of parts of time. */
    private readonly parts: number,
  ) {
    this.estimate = new Float64Array(tree.length);
    this.samples = new Float64Array(tree.length);
    this.self = new Float64Array(tree.length);
    this.#alone = new Float64Array(tree.length);
  }

  /** Sums the records of a selection. The result is the number of records that were looked at. */
  update(selection: Selection): number {
    const before = this.#selection;
    this.#selection = selection;
    this.#known = this.#fateSumsKnown = false;
    this.#last = null;
    [this.#from, this.#to] = this.#rangeOf(selection);
    const moved = before !== null && before.measure === selection.measure && before.objects === selection.objects;
    const looked = (moved ? this.#move(before, selection) : null) ?? this.#begin(selection);
    this.#addUp();
    return looked;
  }

  /** The parts of time that count. */
  #rangeOf({ measure, objects, from, to, moment }: Selection): [number, number] {
    if (measure === "time" || !isAtMoment(objects)) return [from, to];
    return [0, objects === "moment" ? moment : this.parts];
  }

  /** The records that are summed. */
  #recordsOf({ measure, objects }: Selection): NodeRecords {
    const { allocations, cpu, peak, asked, living } = this.lists;
    if (measure === "time") return cpu;
    if (objects === "moment" && living) return living();
    return (objects === "peak" ? peak : objects === "asked" ? asked : null) ?? allocations;
  }

  /** Sums all records. */
  #begin(selection: Selection): number {
    this.#fatesKnown = false;
    const time = selection.measure === "time";
    this.#records = this.#recordsOf(selection);
    this.#adds = time ? timeSample(this.side.tick) : this.side.shapes[selection.measure as "bytes" | "allocations"];
    this.#counted = Uint8Array.from({ length: FATES }, (_, fate) => (time || COUNTED[selection.objects](fate) ? 1 : 0));
    const [from, to, counted, { length }] = [this.#from, this.#to, this.#counted, this.tree];
    const { start, bucket, fate, shape, count } = this.#records;
    const each = this.#adds.estimate;
    if (this.#shapes.length === each.length) this.#shapes.fill(0);
    else this.#shapes = new Float64Array(each.length);
    const shapes = this.#shapes;
    const [self, alone, once] = [this.self, this.#alone, this.#once];
    for (let node = 0, at = 0; node < length; node++) {
      let sum = 0;
      let seen = 0;
      for (const last = start[node + 1]!; at < last; at++) {
        const when = bucket[at]!;
        if (when < from || when >= to || counted[fate[at]!] === 0) continue;
        sum += count[at]! * each[shape[at]!]!;
        seen += count[at]!;
        if (at < once) shapes[shape[at]!]! += count[at]!;
      }
      // What came and went leaves a rounding error.
      self[node] = seen === 0 ? 0 : sum;
      alone[node] = seen;
    }
    return bucket.length;
  }

  /** Sums the nodes again whose records the new range adds or leaves out; null if too much has changed. */
  #move(before: Selection, after: Selection): number | null {
    const records = this.#records;
    let buckets = this.#buckets.get(records);
    if (!buckets) {
      buckets = byBucket(records, this.parts);
      this.#buckets.set(records, buckets);
      this.#again = new Uint32Array(this.tree.length);
      this.#marked = new Uint8Array(this.tree.length);
    }
    const { start: starts, record, node: nodes } = buckets;
    const changed = changes(this.#rangeOf(before), this.#rangeOf(after));
    let looked = changed.reduce((sum, [first, end]) => sum + starts[end]! - starts[first]!, 0);
    if (looked > MOST_CHANGED * record.length) return null;
    const { fate, shape, count } = records;
    const [counted, shapes, again, marked, once] = [this.#counted, this.#shapes, this.#again, this.#marked, this.#once];
    let found = 0;
    for (const [first, end, sign] of changed) {
      for (let place = starts[first]!; place < starts[end]!; place++) {
        const at = record[place]!;
        if (counted[fate[at]!] === 0) continue;
        if (at < once) shapes[shape[at]!]! += sign * count[at]!;
        const node = nodes[place]!;
        if (marked[node] === 1) continue;
        marked[node] = 1;
        again[found++] = node;
      }
    }
    for (let i = 0; i < found; i++) {
      const node = again[i]!;
      marked[node] = 0;
      looked += this.#sumAlone(node);
    }
    return looked;
  }

  /** Sums one node's own records. The result is their number. */
  #sumAlone(node: number): number {
    const { start, bucket, fate, shape, count } = this.#records;
    const [from, to, counted, each] = [this.#from, this.#to, this.#counted, this.#adds.estimate];
    const [first, last] = [start[node]!, start[node + 1]!];
    let sum = 0;
    let seen = 0;
    for (let at = first; at < last; at++) {
      const when = bucket[at]!;
      if (when < from || when >= to || counted[fate[at]!] === 0) continue;
      sum += count[at]! * each[shape[at]!]!;
      seen += count[at]!;
    }
    this.self[node] = seen === 0 ? 0 : sum;
    this.#alone[node] = seen;
    if (this.#fatesKnown) this.#sumFates(node);
    return last - first;
  }

  /** Sums over what each node called, from the sums of the nodes alone. */
  #addUp(): void {
    const { estimate, samples } = this;
    const { parent, length } = this.tree;
    estimate.set(this.self);
    samples.set(this.#alone);
    for (let node = length - 1; node > 0; node--) {
      const up = parent[node]!;
      if (samples[node] === 0 || up === node) continue;
      estimate[up]! += estimate[node]!;
      samples[up]! += samples[node]!;
    }
  }

  /** The end of the records of the first root: a second one has the same records once more. */
  get #once(): number {
    return this.#records.start[this.tree.end[0]!]!;
  }

  /** The moments of a node and of what it called. */
  moments(node: number): Moments {
    if (this.#known) return this.#columns!.total.get(node);
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

  /** The moments of all nodes. They hold until the next update. */
  all(): { total: MomentColumns; self: MomentColumns } {
    const { length, parent } = this.tree;
    const columns = (this.#columns ??= {
      total: new MomentColumns(length, this.estimate, this.samples),
      self: new MomentColumns(length, this.self, this.#alone),
    });
    if (this.#known) return columns;
    this.#known = true;
    const { self, total } = columns;
    const { start, bucket, fate, shape, count } = this.#records;
    const [from, to, counted, each] = [this.#from, this.#to, this.#counted, this.#adds];
    for (let node = 0; node < length; node++) {
      let seen = 0;
      let variance = 0;
      let third = 0;
      // Most nodes have nothing in a range of time.
      if (this.#alone[node]! > 0) {
        const last = start[node + 1]!;
        for (let at = start[node]!; at < last; at++) {
          const when = bucket[at]!;
          if (when < from || when >= to || counted[fate[at]!] === 0) continue;
          const many = count[at]!;
          const kind = shape[at]!;
          seen += many * each.seen[kind]!;
          variance += many * each.variance[kind]!;
          third += many * each.third[kind]!;
        }
      }
      self.seen[node] = seen;
      self.variance[node] = variance;
      self.third[node] = third;
    }
    total.seen.set(self.seen);
    total.variance.set(self.variance);
    total.third.set(self.third);
    const { seen, variance, third } = total;
    for (let node = length - 1; node > 0; node--) {
      const up = parent[node]!;
      if (this.samples[node] === 0 || up === node) continue;
      seen[up]! += seen[node]!;
      variance[up]! += variance[node]!;
      third[up]! += third[node]!;
    }
    return columns;
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

  /** Sums one node's own records by fate. */
  #sumFates(node: number): void {
    const { start, bucket, fate, shape, count } = this.#records;
    const [from, to, counted, each, fates] = [this.#from, this.#to, this.#counted, this.#adds.estimate, this.#fates!];
    const base = node * FATES;
    fates.fill(0, base, base + FATES);
    const last = start[node + 1]!;
    for (let at = start[node]!; at < last; at++) {
      const when = bucket[at]!;
      if (when < from || when >= to || counted[fate[at]!] === 0) continue;
      fates[base + fate[at]!]! += count[at]! * each[shape[at]!]!;
    }
  }

  /**
   * The sums over all nodes before each node: node `n`'s are the entries from `FATES * n` on, in the order of fates.
   * After the last node are all nodes'. All are 0 for time samples. They hold until the next update.
   */
  fateSums(): Float64Array {
    const { length } = this.tree;
    const sums = (this.#fateSums ??= new Float64Array(FATES * (length + 1)));
    if (this.#fateSumsKnown) return sums;
    this.#fateSumsKnown = true;
    if (this.#records === this.lists.cpu) return sums.fill(0);
    const fates = (this.#fates ??= new Float64Array(FATES * length));
    if (!this.#fatesKnown) {
      for (let node = 0; node < length; node++) this.#sumFates(node);
      this.#fatesKnown = true;
    }
    for (let at = 0; at < fates.length; at++) sums[at + FATES] = sums[at]! + fates[at]!;
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
    this.#new = new Sums(data, tree, tree.records, data.header.buckets);
    this.#old = data.base && new Sums(data.base, tree, tree.baseRecords!, data.header.buckets);
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
