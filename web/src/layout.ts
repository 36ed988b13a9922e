// The places of the nodes. d3-hierarchy's partition lays out only nodes that are wide enough to be
// visible, so the cost depends on the width of the screen, not on the size of the profile.

import { hierarchy, partition } from "d3-hierarchy";

import type { Totals, Tree } from "./tree.ts";

/** Nodes narrower than this, in pixels, are not drawn, and neither are their children. */
const NARROWEST = 0.5;

/** A node's place: its row counted from the root, and its horizontal extent as a share of the whole width. */
export interface Place {
  node: number;
  row: number;
  from: number;
  to: number;
}

/** All places, by row; within a row, from left to right. */
export type Rows = Place[][];

/** Lays out the tree zoomed to a node: its callers, the node, and what it called. */
export function layout(tree: Tree, totals: Totals, focus: number, width: number): Rows {
  const whole = totals.total.estimate[focus]!;
  const rows: Rows = [];
  for (let node = focus; ; node = tree.parent[node]!) {
    rows.unshift([{ node, row: 0, from: 0, to: 1 }]);
    if (node === 0) break;
  }
  rows.forEach((row, at) => {
    row[0]!.row = at;
  });
  if (!(whole > 0)) return rows;

  const least = (whole * NARROWEST) / Math.max(width, 1);
  const seen = (node: number): number[] => {
    const children: number[] = [];
    for (let at = tree.firstChild[node]!; at < tree.firstChild[node + 1]!; at++) {
      const child = tree.child[at]!;
      if (totals.total.estimate[child]! >= least) children.push(child);
    }
    return children;
  };
  const root = hierarchy(focus, seen);
  // Not `sum`: a node's total also includes its own allocations and the children that are too narrow.
  root.each((place) => {
    (place as { value?: number }).value = totals.total.estimate[place.data]!;
  });
  root.sort((a, b) => b.value! - a.value! || a.data - b.data);
  const first = rows.length - 1;
  partition<number>()(root).each((place) => {
    if (place.depth === 0) return;
    const row = first + place.depth;
    (rows[row] ??= []).push({ node: place.data, row, from: place.x0, to: place.x1 });
  });
  for (const row of rows) row.sort((a, b) => a.from - b.from);
  return rows;
}

/** The place at a point: a row and a share of the width. */
export function placeAt(rows: Rows, row: number, at: number): Place | null {
  const places = rows[row];
  if (!places) return null;
  let low = 0;
  let high = places.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle]!.to <= at) low = middle + 1;
    else high = middle;
  }
  const place = places[low];
  return place && place.from <= at ? place : null;
}
