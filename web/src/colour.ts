// The colours of the nodes, and the legend.

import { type Data, FATES, Kind } from "./data.ts";
import { modules } from "./module.ts";
import { type MomentColumns } from "./moments.ts";
import { type Totals, type Tree, What } from "./tree.ts";

export type ColourBy = "change" | "module" | "type" | "fate";
export type Theme = "light" | "dark";

/** A colour and its meaning. */
export interface Swatch {
  label: string;
  colour: string;
  share: number;
}

/** A way to colour nodes: a node has one colour, or it is divided between several by their shares. */
export interface Colouring {
  /** The legend, the largest share first. */
  legend: Swatch[];
  /** The colour of a node that has one colour only. */
  solid(node: number): string | null;
  /** The sizes of a node's parts; divided by their sum, they are shares. Used if the node has no solid colour. */
  parts(node: number): Float64Array;
  /** The colours of the parts. */
  colours: string[];
}

// Hues that are easy to distinguish, in the order in which they are used.
const HUES = [55, 250, 145, 320, 85, 200, 20, 285, 115];
/** Everything else is grey. */
const DISTINCT = HUES.length;

/** How much lighter or darker the functions of one module are, so that neighbours are distinguishable. */
const SHADES = [0, 0.03, -0.03, 0.015, -0.015];

function hue(theme: Theme, degrees: number, lighter = 0): string {
  return theme === "light" ? `oklch(${0.83 + lighter} 0.105 ${degrees})` : `oklch(${0.46 + lighter} 0.095 ${degrees})`;
}

function grey(theme: Theme): string {
  return theme === "light" ? "oklch(0.88 0.008 250)" : "oklch(0.38 0.012 250)";
}

/** By the fate's number: green died young, amber freed later, red survived, violet still alive. */
export function fateColours(theme: Theme): string[] {
  return theme === "light"
    ? ["oklch(0.8 0.14 150)", "oklch(0.86 0.13 85)", "oklch(0.74 0.15 28)", "oklch(0.75 0.12 300)"]
    : ["oklch(0.5 0.12 150)", "oklch(0.56 0.11 80)", "oklch(0.5 0.15 27)", "oklch(0.49 0.14 300)"];
}

/** The colour of frames that are not Python code. It is the same for every way of colouring. */
function kindColour(theme: Theme, kind: number): string | null {
  if (kind === Kind.Gc) return theme === "light" ? "oklch(0.82 0.09 60)" : "oklch(0.45 0.08 60)";
  if (kind === Kind.Native || kind === Kind.Note) return grey(theme);
  return null;
}

/** Computes the colouring of the tree that is shown. */
export function colouring(by: ColourBy, data: Data, tree: Tree, totals: Totals, theme: Theme): Colouring {
  if (by === "change" && totals.change) return byChange(tree, totals, totals.change, theme);
  // Time samples allocate nothing, so they have neither types nor fates.
  const allocates = totals.byFate.subarray(0, FATES).some((part) => part > 0);
  if (by === "fate" && allocates) return byFate(data, totals, theme);
  if (by === "type" && allocates) return byType(data, tree, totals, theme);
  return byModule(data, tree, totals, theme);
}

/** What a change is, from the largest growth to the largest shrinking. */
const CHANGES = ["doubled, or new", "grew", "may be chance", "shrank", "halved, or gone"];
const CHANCE = 2;

/** Red grew, blue shrank. */
function changeColours(theme: Theme): string[] {
  return theme === "light"
    ? ["oklch(0.68 0.19 27)", "oklch(0.85 0.09 27)", grey(theme), "oklch(0.85 0.07 250)", "oklch(0.68 0.15 250)"]
    : ["oklch(0.52 0.19 27)", "oklch(0.44 0.1 27)", grey(theme), "oklch(0.44 0.08 250)", "oklch(0.52 0.16 250)"];
}

/** The place in CHANGES of what became of a node. */
export function changeOf(change: { old: MomentColumns; new: MomentColumns }, node: number): number {
  const old = change.old.estimate[node]!;
  const now = change.new.estimate[node]!;
  // Three standard deviations, for there are many boxes. Enough for a colour; `nthbyte diff` has the exact test.
  const deviation = Math.sqrt(change.old.variance[node]! + change.new.variance[node]!);
  if (old === now || Math.abs(now - old) < 3 * deviation) return CHANCE;
  if (now > old) return now >= 2 * old ? 0 : 1;
  return now <= old / 2 ? 4 : 3;
}

function byChange(tree: Tree, totals: Totals, change: { old: MomentColumns; new: MomentColumns }, theme: Theme): Colouring {
  const colours = changeColours(theme);
  const shares = new Float64Array(CHANGES.length);
  for (let node = 1; node < tree.length; node++) {
    shares[changeOf(change, node)]! += totals.self.estimate[node]! / totals.total.estimate[0]!;
  }
  const none = new Float64Array(0);
  return {
    legend: CHANGES.map((label, at) => ({ label, colour: colours[at]!, share: shares[at]! })),
    colours,
    parts: () => none,
    solid: (node) => colours[changeOf(change, node)]!,
  };
}

function byFate(data: Data, totals: Totals, theme: Theme): Colouring {
  const colours = fateColours(theme);
  const whole = totals.total.estimate[0]!;
  const legend = data.header.fates.map((label, fate) => ({
    label,
    colour: colours[fate]!,
    share: totals.byFate[fate]! / whole,
  }));
  return {
    legend: legend.filter((swatch) => swatch.share > 0),
    colours,
    solid: () => null,
    parts: (node) => totals.byFate.subarray(FATES * node, FATES * (node + 1)),
  };
}

/** Gives a colour to each of the keys with the largest sums, and grey to all others: rank by key, colours by rank. */
function ranked(sums: Map<number, number>, label: (key: number) => string, whole: number, theme: Theme) {
  const order = [...sums].filter(([, sum]) => sum > 0).sort((a, b) => b[1] - a[1]);
  const rank = new Map(order.slice(0, DISTINCT).map(([key], at) => [key, at]));
  const colours = [...HUES.map((degrees) => hue(theme, degrees)), grey(theme)];
  const legend: Swatch[] = order.slice(0, DISTINCT).map(([key, sum], at) => ({
    label: label(key),
    colour: colours[at]!,
    share: sum / whole,
  }));
  const rest = order.slice(DISTINCT).reduce((sum, entry) => sum + entry[1], 0);
  if (rest > 0) legend.push({ label: "everything else", colour: colours[DISTINCT]!, share: rest / whole });
  return { rank, colours, legend };
}

function byModule(data: Data, tree: Tree, totals: Totals, theme: Theme): Colouring {
  const { ofFunction, names } = modules(data);
  // A type's node has the module of its caller, which allocated the objects.
  const owner = (node: number) => (tree.what[node] === What.Type ? tree.parent[node]! : node);
  const sums = new Map<number, number>();
  for (let node = 1; node < tree.length; node++) {
    if (totals.self.estimate[node] === 0 || tree.what[owner(node)] !== What.Frame) continue;
    const module = ofFunction[tree.id[owner(node)]!]!;
    sums.set(module, (sums.get(module) ?? 0) + totals.self.estimate[node]!);
  }
  const { rank, colours, legend } = ranked(sums, (module) => names[module]!, totals.total.estimate[0]!, theme);
  const none = new Float64Array(0);
  const shades = SHADES.map((lighter) => HUES.map((degrees) => hue(theme, degrees, lighter)));
  return {
    legend,
    colours,
    parts: () => none,
    solid(node) {
      if (tree.what[owner(node)] !== What.Frame) return grey(theme);
      const frame = owner(node);
      const special = kindColour(theme, tree.kind[frame]!);
      if (special !== null) return special;
      const ranked = rank.get(ofFunction[tree.id[frame]!]!);
      return ranked === undefined ? grey(theme) : shades[tree.id[frame]! % SHADES.length]![ranked]!;
    },
  };
}

function byType(data: Data, tree: Tree, totals: Totals, theme: Theme): Colouring {
  const sums = new Map<number, number>();
  for (let node = 1; node < tree.length; node++) {
    if (tree.what[node] !== What.Type) continue;
    sums.set(tree.id[node]!, (sums.get(tree.id[node]!) ?? 0) + totals.self.estimate[node]!);
  }
  const name = (type: number) => data.header.types[type] || "unknown type";
  const { rank, colours, legend } = ranked(sums, name, totals.total.estimate[0]!, theme);
  const width = colours.length;
  const parts = new Float64Array(width * tree.length);
  for (let node = tree.length - 1; node > 0; node--) {
    if (tree.what[node] === What.Type) {
      parts[width * node + (rank.get(tree.id[node]!) ?? DISTINCT)]! += totals.self.estimate[node]!;
    }
    const up = width * tree.parent[node]!;
    for (let part = 0; part < width; part++) parts[up + part]! += parts[width * node + part]!;
  }
  return {
    legend,
    colours,
    solid: (node) => (tree.what[node] === What.Type ? colours[rank.get(tree.id[node]!) ?? DISTINCT]! : null),
    parts: (node) => parts.subarray(width * node, width * (node + 1)),
  };
}
