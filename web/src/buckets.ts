// Records by their part of time, so that a move of the range looks only at the parts that it adds or leaves out.

import type { Numbers } from "./data.ts";
import type { NodeRecords } from "./tree.ts";

/** The records of part `p` are those from `start[p]` up to `start[p + 1]` of the two other columns. */
export interface Buckets {
  start: Numbers;
  /** The place of a record among the tree's. */
  record: Numbers;
  /** Its node. */
  node: Numbers;
}

/** Sorts the records of a tree by their parts of time, by counting. */
export function byBucket(records: NodeRecords, buckets: number): Buckets {
  const { start: ofNode, bucket } = records;
  const { length } = bucket;
  const start = new Uint32Array(buckets + 1);
  for (let at = 0; at < length; at++) start[bucket[at]! + 1]!++;
  for (let part = 0; part < buckets; part++) start[part + 1]! += start[part]!;
  const next = start.slice();
  const record = new Uint32Array(length);
  const node = new Uint32Array(length);
  for (let of = 0, at = 0; at < length; of++) {
    for (const end = ofNode[of + 1]!; at < end; at++) {
      const place = next[bucket[at]!]!++;
      record[place] = at;
      node[place] = of;
    }
  }
  return { start, record, node };
}

/** Parts of time from the first up to the second, and whether they were added or left out. */
export type Change = [first: number, end: number, sign: 1 | -1];

/** How one range of parts becomes another. */
export function changes([oldFrom, oldTo]: [number, number], [from, to]: [number, number]): Change[] {
  const all: Change[] =
    oldTo <= from || to <= oldFrom
      ? [[oldFrom, oldTo, -1], [from, to, 1]]
      : [
          [oldFrom, from, -1],
          [from, oldFrom, 1],
          [to, oldTo, -1],
          [oldTo, to, 1],
        ];
  return all.filter(([first, end]) => first < end);
}
