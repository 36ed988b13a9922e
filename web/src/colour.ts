// The colours of the nodes, and the legend.
//
// A colour means the same in every view: ranks come from the whole session, not from the view.

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

/** Hues of ranks, in the order in which they are used. */
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

/** Another, darker grey. */
function slate(theme: Theme): string {
  return theme === "light" ? "oklch(0.77 0.02 250)" : "oklch(0.47 0.02 250)";
}

/** By the fate's number: green died young, amber freed later, red survived, violet alive at the end. */
export function fateColours(theme: Theme): string[] {
  return theme === "light"
    ? ["oklch(0.8 0.14 150)", "oklch(0.86 0.13 85)", "oklch(0.74 0.15 28)", "oklch(0.75 0.12 300)"]
    : ["oklch(0.44 0.11 150)", "oklch(0.46 0.1 80)", "oklch(0.46 0.15 27)", "oklch(0.45 0.14 300)"];
}

/** What a session's colours mean. It depends on the profile only, never on the view. */
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
  /** Ranks depend on the tree alone, so a change of the selection uses them again. */
  readonly #ranks = new WeakMap<Tree, Uint8Array>();
  readonly #typeRanks = new WeakMap<Tree, Uint8Array>();
  readonly #typeSums = new WeakMap<Tree, Float64Array>();

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

  /** The rank of a node among `labels`. A type's node has its caller's, which allocated the objects. */
  rank(tree: Tree, node: number): number {
    const owner = tree.what[node] === What.Type ? tree.parent[node]! : node;
    const last = this.labels.length - 1;
    if (tree.what[owner] !== What.Frame) return last;
    const kind = tree.kind[owner]!;
    if (kind === Kind.Gc) return last - 1;
    if (kind === Kind.Note) return last;
    return this.#ofOwner[this.#ofFunction[tree.id[owner]!]!]!;
  }

  /** The rank of a function among `labels`. */
  functionRank(of: number): number {
    return this.#ofOwner[this.#ofFunction[of]!]!;
  }

  /** By node, its rank among `labels`. */
  ranks(tree: Tree): Uint8Array {
    return remembered(this.#ranks, tree, (node) => this.rank(tree, node));
  }

  /** By node, the rank of its type; the last one for nodes that are no types. */
  typeRanks(tree: Tree): Uint8Array {
    const rest = this.typeLabels.length - 1;
    return remembered(this.#typeRanks, tree, (node) => (tree.what[node] === What.Type ? this.typeRank[tree.id[node]!]! : rest));
  }

  /**
   * By node and rank of type, the sum over all nodes before the node: a subtree's sum is a difference. The sums of a
   * tree are written into the same array each time.
   */
  typeSums({ tree, totals }: View): Float64Array {
    const width = this.typeLabels.length;
    const ranks = this.typeRanks(tree);
    let running = this.#typeSums.get(tree);
    if (!running) {
      running = new Float64Array((tree.length + 1) * width);
      this.#typeSums.set(tree, running);
    }
    const { self } = totals.shown;
    for (let node = 0, at = 0; node < tree.length; node++) {
      for (let rank = 0; rank < width; rank++, at++) running[at + width] = running[at]!;
      running[at + ranks[node]!]! += self[node]!;
    }
    return running;
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

/** The colours of types by rank; the last one is all others'. */
function typeColours({ typeLabels }: Palette, theme: Theme): string[] {
  const hues = [OWN_HUE, STANDARD_HUE, ...HUES].map((degrees) => hue(theme, degrees));
  return typeLabels.map((_, rank) => (rank === typeLabels.length - 1 ? grey(theme) : hues[rank]!));
}

/** The colour of something that is no node: of a function's package, of a type, or of live memory. */
export function colourOf(by: ColourBy, palette: Palette, of: { function: number | null; type: number | null }, theme: Theme): string {
  if (by === "fate") return fateColours(theme)[3]!;
  if (by === "type") return of.type === null ? grey(theme) : typeColours(palette, theme)[palette.typeRank[of.type]!]!;
  return of.function === null ? grey(theme) : palette.colour(theme, palette.functionRank(of.function));
}

function remembered(all: WeakMap<Tree, Uint8Array>, tree: Tree, rank: (node: number) => number): Uint8Array {
  let ranks = all.get(tree);
  if (!ranks) {
    ranks = new Uint8Array(tree.length);
    for (let node = 0; node < tree.length; node++) ranks[node] = rank(node);
    all.set(tree, ranks);
  }
  return ranks;
}

/** What has no box of at least this share of all has no entry in the legend. */
const LEAST = 0.001;

/** By rank, the largest share that a box of it has. */
function largest(whole: View, size: number, ranks: Uint8Array): Float64Array {
  const { estimate } = whole.totals.shown;
  const found = new Float64Array(size);
  for (let node = 0; node < ranks.length; node++) found[ranks[node]!] = Math.max(found[ranks[node]!]!, estimate[node]!);
  const all = estimate[0]!;
  return all > 0 ? found.map((most) => most / all) : found;
}

/** Computes the colouring of a tree. Shares in the legend are of `whole`, the tree of all. */
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

/** The sums of the nodes alone, by a key of each node, as shares. */
function shares(whole: View, size: number, keys: Uint8Array): Float64Array {
  const sums = new Float64Array(size);
  const { self, estimate } = whole.totals.shown;
  for (let node = 1; node < keys.length; node++) sums[keys[node]!]! += self[node]!;
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
  const changed = of(shown);
  const ofWhole = shown === whole ? changed : of(whole);
  const parts = shares(whole, CHANGES.length, Uint8Array.from({ length: whole.tree.length }, (_, node) => ofWhole(node)));
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
      const [first, end] = [node * FATES, shown.tree.end[node]! * FATES];
      for (let fate = 0; fate < FATES; fate++) parts[fate] = running[end + fate]! - running[first + fate]!;
      return parts;
    },
  };
}

function byPackage(palette: Palette, tree: Tree, whole: View, theme: Theme): Colouring {
  const { labels } = palette;
  const parts = shares(whole, labels.length, palette.ranks(whole.tree));
  const most = largest(whole, labels.length, palette.ranks(whole.tree));
  const ranks = palette.ranks(tree);
  const shades = SHADES.map((lighter) => labels.map((_, rank) => palette.colour(theme, rank, lighter)));
  return {
    legend: labels
      .map((label, rank) => ({ label, colour: shades[0]![rank]!, share: parts[rank]! }))
      .filter(({ share }, rank) => palette.present[rank] && Math.max(share, most[rank]!) >= LEAST),
    colours: [],
    parts: () => [],
    solid: (node) => shades[tree.id[node]! % SHADES.length]![ranks[node]!]!,
  };
}

function byType(palette: Palette, shown: View, whole: View, theme: Theme): Colouring {
  const { typeLabels } = palette;
  const colours = typeColours(palette, theme);
  const sums = shares(whole, typeLabels.length, palette.typeRanks(whole.tree));
  const { tree } = shown;
  const ranks = palette.typeRanks(tree);
  const running = palette.typeSums(shown);
  const parts = new Float64Array(typeLabels.length);
  return {
    legend: typeLabels
      .map((label, at) => ({ label, colour: colours[at]!, share: sums[at]! }))
      .filter(({ share }) => share >= LEAST),
    colours,
    solid: (node) => (tree.what[node] === What.Type ? colours[ranks[node]!]! : null),
    parts(node) {
      const [first, end] = [node * parts.length, tree.end[node]! * parts.length];
      for (let at = 0; at < parts.length; at++) parts[at] = running[end + at]! - running[first + at]!;
      return parts;
    },
  };
}
