// The places of the nodes. d3-hierarchy's partition lays out only nodes that are wide enough to be
// visible, so the cost depends on the width of the screen, not on the size of the profile.
//
// Chains are folded: where each of several functions passes nearly all to one callee, the ones in the middle are one
// box that says how many they are.

import { hierarchy, partition } from "d3-hierarchy";

import type { Found } from "./search.ts";
import type { Sums } from "./totals.ts";
import { type Tree, What } from "./tree.ts";

/** Nodes narrower than this, in pixels, are not drawn, and neither are their children. */
const NARROWEST = 0.5;
/** In a chain, a callee has at least this share of its caller, and the last one this share of the first. */
const NEXT = 0.98;
const LAST = 0.9;
/** The least number of nodes that are folded. */
const FEWEST = 3;

/** A node's place: its row, and its horizontal extent as a share of the whole width. */
export interface Place {
  node: number;
  row: number;
  from: number;
  to: number;
  /** For a folded chain: its last node, and how many nodes it has; `node` is the first. */
  chain: Chain | null;
  /** Whether this is a caller of the node that is zoomed to. */
  above: boolean;
}

interface Chain {
  last: number;
  length: number;
}

/** All places, by row; within a row, from left to right. */
export type Rows = Place[][];

/** What decides whether a chain is folded. */
export interface Folding {
  /** Whether chains are folded at all. */
  fold: boolean;
  /** Nodes of chains that the reader opened. */
  opened: ReadonlySet<number>;
  /** A chain with a match in it, or beside it, is not folded. */
  found: Found | null;
}

interface Item {
  node: number;
  chain: Chain | null;
}

/** Lays out the tree zoomed to a node: its callers, the node, and what it called. */
export function layout(tree: Tree, sums: Pick<Sums, "estimate">, focus: number, width: number, folding: Folding): Rows {
  const { estimate } = sums;
  const whole = estimate[focus]!;
  const rows: Rows = callersOf(tree, focus, folding).map((item, row) => [
    { ...item, row, from: 0, to: 1, above: item.node !== focus },
  ]);
  if (!(whole > 0)) return rows;

  const least = (whole * NARROWEST) / Math.max(width, 1);
  const children = (item: Item): Item[] => {
    if (item.chain) return [{ node: heir(tree, estimate, item.chain.last)!, chain: null }];
    const { node } = item;
    // The nearest caller is always shown.
    const folded = node === tree.callers ? null : chainBelow(tree, estimate, node, folding);
    if (folded) return [folded];
    const items: Item[] = [];
    for (let child = node + 1; child < tree.end[node]!; child = tree.end[child]!) {
      if (estimate[child]! >= least) items.push({ node: child, chain: null });
    }
    return items;
  };
  const root = hierarchy<Item>({ node: focus, chain: null }, children);
  // Not `sum`: a node's total also includes its own allocations and the children that are too narrow.
  root.each((place) => {
    (place as { value?: number }).value = estimate[place.data.node]!;
  });
  root.sort((a, b) => b.value! - a.value! || a.data.node - b.data.node);
  const first = rows.length - 1;
  partition<Item>()(root).each((place) => {
    if (place.depth === 0) return;
    const row = first + place.depth;
    (rows[row] ??= []).push({ ...place.data, row, from: place.x0, to: place.x1, above: false });
  });
  for (const row of rows) row.sort((a, b) => a.from - b.from);
  return rows;
}

/** The callee that gets nearly all of a node. */
function heir(tree: Tree, estimate: Float64Array, node: number): number | null {
  for (let child = node + 1; child < tree.end[node]!; child = tree.end[child]!) {
    if (tree.what[child] === What.Frame && estimate[child]! >= NEXT * estimate[node]!) return child;
  }
  return null;
}

/** The nodes below a node that are folded into one box. Their end, which is not folded, comes after them. */
function chainBelow(tree: Tree, estimate: Float64Array, node: number, folding: Folding): Item | null {
  if (!folding.fold) return null;
  const first = heir(tree, estimate, node);
  if (first === null || folding.opened.has(first)) return null;
  let [length, last, end] = [0, node, first];
  for (;;) {
    const next = heir(tree, estimate, end);
    if (next === null || estimate[next]! < LAST * estimate[first]!) break;
    length++;
    [last, end] = [end, next];
  }
  if (length < FEWEST) return null;
  const { found } = folding;
  if (found && found.within(first, tree.end[first]!) > found.within(end, tree.end[end]!)) return null;
  return { node: first, chain: { last, length } };
}

/** The callers of a node from the root, and the node. Many callers are folded, except for the root and the nearest. */
function callersOf(tree: Tree, focus: number, folding: Folding): Item[] {
  const path: number[] = [focus];
  for (let node = focus; tree.parent[node] !== node; ) {
    node = tree.parent[node]!;
    path.unshift(node);
  }
  const items = path.map((node): Item => ({ node, chain: null }));
  const hidden = path.slice(1, -2);
  if (!folding.fold || hidden.length < FEWEST || folding.opened.has(hidden[0]!)) return items;
  if (hidden.some((node) => folding.found?.is(node))) return items;
  items.splice(1, hidden.length, { node: hidden[0]!, chain: { last: hidden.at(-1)!, length: hidden.length } });
  return items;
}

/** The nodes of a folded chain, from the first to the last. */
export function chainNodes(tree: Tree, place: Place): number[] {
  const nodes = [];
  for (let node = place.chain?.last ?? place.node; ; node = tree.parent[node]!) {
    nodes.unshift(node);
    if (node === place.node) return nodes;
  }
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
