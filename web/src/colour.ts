// The colours of the nodes, and the legend.
//
// A colour means the same in every view: ranks come from the whole session, not from what is shown.

import { type Data, FATES, Kind, knownFates } from "./data.ts";
import { NATIVE, OWN, STANDARD, owners } from "./module.ts";
import { changeColours, changeOf, CHANGES } from "./change.ts";
import type { Sums, View } from "./totals.ts";
import { type Tree, What } from "./tree.ts";

export type ColourBy = "change" | "package" | "type" | "fate";
export type Theme = "light" | "dark";

/** A colour and its meaning. */
export interface Swatch {
  label: string;
  colour: string;
  share: number;
}

/** A way to colour nodes: a node has one colour, or it is divided between several by their shares. */
export interface Colouring {
  /** Every colour that can occur. */
  legend: Swatch[];
  /** The colour of a node that has one colour only. */
  solid(node: number): string | null;
  /** The sizes of a node's parts; divided by their sum, they are shares. Used if the node has no solid colour. */
  parts(node: number): ArrayLike<number>;
  /** The colours of the parts. */
  colours: string[];
}

/** Hues for what is ranked, in the order in which they are used. */
const HUES = [145, 320, 200, 95, 285, 20, 115];
const OWN_HUE = 60;
const STANDARD_HUE = 250;

/** How much lighter or darker the functions of one package are, so that neighbours are distinguishable. */
const SHADES = [0, 0.025, -0.025, 0.0125, -0.0125];

function hue(theme: Theme, degrees: number, lighter = 0): string {
  return theme === "light" ? `oklch(${0.83 + lighter} 0.105 ${degrees})` : `oklch(${0.44 + lighter} 0.095 ${degrees})`;
}

export function grey(theme: Theme): string {
  return theme === "light" ? "oklch(0.88 0.008 250)" : "oklch(0.38 0.012 250)";
}

/** What is grey but not the same as other greys: darker. */
function slate(theme: Theme): string {
  return theme === "light" ? "oklch(0.77 0.02 250)" : "oklch(0.47 0.02 250)";
}

/** By the fate's number: green died young, amber freed later, red survived, violet alive at the end. */
export function fateColours(theme: Theme): string[] {
  return theme === "light"
    ? ["oklch(0.8 0.14 150)", "oklch(0.86 0.13 85)", "oklch(0.74 0.15 28)", "oklch(0.75 0.12 300)"]
    : ["oklch(0.44 0.11 150)", "oklch(0.46 0.1 80)", "oklch(0.46 0.15 27)", "oklch(0.45 0.14 300)"];
}

/** What a session's colours mean. It depends on the profile only, never on what is shown. */
export class Palette {
  /** By package's rank: your code, the standard library, packages, other packages, native code, the collector, no function. */
  readonly labels: string[];
  /** Whether any function has this rank. */
  readonly present: boolean[];
  readonly #ofOwner: Uint8Array;
  readonly #ofFunction: Uint32Array;
  /** By type. */
  readonly typeRank: Uint8Array;
  readonly typeLabels: string[];

  constructor(data: Data) {
    const { names, ofFunction } = owners(data);
    this.#ofFunction = ofFunction;
    const byOwner = new Float64Array(names.length);
    const byType = new Float64Array(data.header.types.length);
    const { length, stack, type, shape, count } = data.allocations;
    const each = data.shapes.bytes.estimate;
    const noFunction = (stack: number) => stack === 0 || data.frameKind[data.stackFrame[stack]!] === Kind.Note;
    const ownerOf = (stack: number) => ofFunction[data.frameFunction[data.stackFrame[stack]!]!]!;
    for (let i = 0; i < length; i++) {
      const size = count[i]! * each[shape[i]!]!;
      byType[type[i]!]! += size;
      if (!noFunction(stack[i]!)) byOwner[ownerOf(stack[i]!)]! += size;
    }
    if (length === 0) data.cpu.stack.forEach((stack, i) => noFunction(stack) || (byOwner[ownerOf(stack)]! += data.cpu.count[i]!));
    const special = new Set([OWN, STANDARD, NATIVE]);
    const ranked = names.map((_, at) => at).filter((at) => !special.has(names[at]!));
    ranked.sort((a, b) => byOwner[b]! - byOwner[a]! || a - b);
    const packages = ranked.slice(0, HUES.length);
    this.labels = [OWN, STANDARD, ...packages.map((at) => names[at]!), "other packages", NATIVE, "garbage collector", "no function"];
    const other = packages.length + 2;
    this.#ofOwner = Uint8Array.from(names, (name, at) => {
      if (name === NATIVE) return other + 1;
      if (special.has(name)) return name === OWN ? 0 : 1;
      return packages.includes(at) ? 2 + packages.indexOf(at) : other;
    });
    this.present = this.labels.map(() => false);
    this.present[this.labels.length - 1] = true;
    data.frameFunction.forEach((at, frame) => {
      const kind = data.frameKind[frame]!;
      if (kind === Kind.Gc) this.present[this.labels.length - 2] = true;
      else if (kind !== Kind.Note) this.present[this.#ofOwner[ofFunction[at]!]!] = true;
    });
    const types = Array.from(byType.keys()).filter((at) => byType[at]! > 0);
    types.sort((a, b) => byType[b]! - byType[a]! || a - b);
    const first = types.slice(0, HUES.length + 2);
    this.typeLabels = [...first.map((at) => data.header.types[at] || "unknown type"), "other types"];
    this.typeRank = new Uint8Array(byType.length).fill(first.length);
    first.forEach((at, rank) => {
      this.typeRank[at] = rank;
    });
  }

  /** The rank of a node among `labels`. A type's node has that of its caller, which allocated the objects. */
  rank(tree: Tree, node: number): number {
    const owner = tree.what[node] === What.Type ? tree.parent[node]! : node;
    const last = this.labels.length - 1;
    if (tree.what[owner] !== What.Frame) return last;
    const kind = tree.kind[owner]!;
    if (kind === Kind.Gc) return last - 1;
    if (kind === Kind.Note) return last;
    return this.#ofOwner[this.#ofFunction[tree.id[owner]!]!]!;
  }

  colour(theme: Theme, rank: number, lighter = 0): string {
    const last = this.labels.length - 1;
    if (rank === 0) return hue(theme, OWN_HUE, lighter);
    if (rank === 1) return hue(theme, STANDARD_HUE, lighter);
    if (rank === last) return grey(theme);
    if (rank === last - 1) return theme === "light" ? "oklch(0.82 0.09 40)" : "oklch(0.42 0.09 35)";
    if (rank === last - 2) return slate(theme);
    if (rank === last - 3) return theme === "light" ? "oklch(0.87 0.035 170)" : "oklch(0.42 0.035 170)";
    return hue(theme, HUES[rank - 2]!, lighter);
  }
}

/** Computes the colouring of a tree. Shares in the legend are those of `whole`, the tree of all. */
export function colouring(
  by: ColourBy,
  palette: Palette,
  data: Data,
  shown: View,
  whole: View,
  allocates: boolean,
  theme: Theme,
): Colouring {
  if (by === "change" && shown.totals.change) return byChange(shown, whole, theme);
  // Time samples allocate nothing, so they have neither types nor fates.
  if (by === "fate" && allocates) return byFate(data, shown, whole.totals.shown, theme);
  if (by === "type" && allocates) return byType(palette, shown, whole, theme);
  return byPackage(palette, shown.tree, whole, theme);
}

/** The sums of the nodes alone, by a key of the node, as shares. */
function shares(whole: View, size: number, key: (node: number) => number): Float64Array {
  const sums = new Float64Array(size);
  const { self, estimate } = whole.totals.shown;
  for (let node = 1; node < whole.tree.length; node++) {
    if (self[node]! > 0) sums[key(node)]! += self[node]!;
  }
  const all = estimate[0]!;
  return all > 0 ? sums.map((sum) => sum / all) : sums;
}

function byChange(shown: View, whole: View, theme: Theme): Colouring {
  const colours = changeColours(theme);
  const of = (pair: View) => {
    const change = pair.totals.change!;
    const [old, now] = [change.old.all().total, change.new.all().total];
    return (node: number) => changeOf(old, now, node);
  };
  const parts = shares(whole, CHANGES.length, of(whole));
  const changed = of(shown);
  return {
    legend: CHANGES.map((label, at) => ({ label, colour: colours[at]!, share: parts[at]! })),
    colours,
    parts: () => [],
    solid: (node) => colours[changed(node)]!,
  };
}

function byFate(data: Data, shown: View, whole: Sums, theme: Theme): Colouring {
  const colours = fateColours(theme);
  const all = whole.estimate[0]!;
  const sums = whole.fates(0);
  const known = knownFates(data.allocations);
  const running = shown.totals.shown.fateSums();
  const parts = new Float64Array(FATES);
  return {
    legend: data.header.fates
      .map((label, fate) => ({ label, colour: colours[fate]!, share: all > 0 ? sums[fate]! / all : 0 }))
      .filter((_, fate) => known.has(fate)),
    colours,
    solid: () => null,
    parts(node) {
      for (let fate = 0; fate < FATES; fate++) {
        parts[fate] = running[fate]![shown.tree.end[node]!]! - running[fate]![node]!;
      }
      return parts;
    },
  };
}

function byPackage(palette: Palette, tree: Tree, whole: View, theme: Theme): Colouring {
  const { labels } = palette;
  const parts = shares(whole, labels.length, (node) => palette.rank(whole.tree, node));
  const shades = SHADES.map((lighter) => labels.map((_, rank) => palette.colour(theme, rank, lighter)));
  return {
    legend: labels
      .map((label, rank) => ({ label, colour: shades[0]![rank]!, share: parts[rank]! }))
      .filter((_, rank) => palette.present[rank]),
    colours: [],
    parts: () => [],
    solid: (node) => shades[tree.id[node]! % SHADES.length]![palette.rank(tree, node)]!,
  };
}

function byType(palette: Palette, shown: View, whole: View, theme: Theme): Colouring {
  const { typeLabels, typeRank } = palette;
  const hues = [OWN_HUE, STANDARD_HUE, ...HUES].map((degrees) => hue(theme, degrees));
  const rest = typeLabels.length - 1;
  const colours = typeLabels.map((_, rank) => (rank === rest ? grey(theme) : hues[rank]!));
  const rank = (tree: Tree) => (node: number) => (tree.what[node] === What.Type ? typeRank[tree.id[node]!]! : rest);
  const sums = shares(whole, typeLabels.length, rank(whole.tree));
  const { tree, totals } = shown;
  const rankOf = rank(tree);
  // Sums over all nodes before each node, so that a subtree's sum is a difference.
  const running = typeLabels.map(() => new Float64Array(tree.length + 1));
  for (let node = 0; node < tree.length; node++) {
    const own = totals.shown.self[node]!;
    for (let at = 0; at < running.length; at++) running[at]![node + 1] = running[at]![node]!;
    if (own > 0) running[rankOf(node)]![node + 1]! += own;
  }
  const parts = new Float64Array(typeLabels.length);
  return {
    legend: typeLabels
      .map((label, at) => ({ label, colour: colours[at]!, share: sums[at]! }))
      .filter((swatch, at) => at < rest || swatch.share > 0),
    colours,
    solid: (node) => (tree.what[node] === What.Type ? colours[rankOf(node)]! : null),
    parts(node) {
      for (let at = 0; at < parts.length; at++) parts[at] = running[at]![tree.end[node]!]! - running[at]![node]!;
      return parts;
    },
  };
}
