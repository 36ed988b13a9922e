// Who holds what was alive: an icicle of holders, beside the graph of who allocated it. A choice in one says what it is in the other.

import { type ColourBy, type Palette, type Theme, colourOf } from "./colour.ts";
import type { Data, Interval } from "./data.ts";
import { bytes, clipped, grouped, percent, seconds, visible } from "./format.ts";
import { Graph } from "./graph.ts";
import type { Place } from "./layout.ts";
import { Found, matcher } from "./search.ts";
import * as tip from "./tip.ts";
import { type Tree, What } from "./tree.ts";

/** What of a snapshot the page has: crates/report/src/holders/icicle.rs. */
export interface Held {
  /** Seconds. */
  time: number;
  reason: string;
  samples: number;
  alive: Interval;
  besides: { c_code: Interval; garbage: Interval; not_found: Interval; native: { name: string; bytes: Interval }[] };
  /** In depth-first order. */
  boxes: { parent: number | null; reference: string; what: string; objects: number; bytes: Interval; mostly: string | null }[];
  /** Names and files. */
  functions: [string, string][];
  /** The functions of each stack, the innermost first. */
  stacks: number[][];
  /** A box, a stack, and bytes that the stack allocated and that the box holds, but none in it. */
  joins: [number, number, number][];
}

/** Lines of what a box is in the other graph. */
const LINES = 6;
/** And only this part's of it. */
const WORTH_NAMING = 0.01;

function byId<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** What the card asks of the page. */
export interface HeldEvents {
  /** A function was chosen: the page searches for it. */
  allocatedBy(name: string): void;
}

/** The boxes as a tree: node 0 is all that is alive, and box `b` is node `b + 1`. */
function treeOf({ boxes }: Held): Tree {
  const length = boxes.length + 1;
  const numbers = () => new Uint32Array(length);
  const none = { start: new Uint32Array(length + 1), bucket: new Uint16Array(0), fate: new Uint8Array(0), shape: numbers(), count: numbers() };
  const records = { allocations: none, cpu: none, peak: null, asked: null, living: null };
  const tree: Tree = {
    length, parent: numbers(), end: numbers(), depth: new Uint16Array(length), what: new Uint8Array(length).fill(What.Frame),
    id: numbers(), line: numbers(), kind: new Uint8Array(length), groups: [], callers: length, records, baseRecords: null,
  };
  tree.what[0] = What.Root;
  boxes.forEach(({ parent }, at) => {
    tree.parent[at + 1] = parent === null ? 0 : parent + 1;
    tree.depth[at + 1] = tree.depth[tree.parent[at + 1]!]! + 1;
  });
  for (let node = length - 1; node >= 0; node--) {
    tree.end[node] = Math.max(tree.end[node]!, node + 1);
    if (node > 0) tree.end[tree.parent[node]!] = Math.max(tree.end[tree.parent[node]!]!, tree.end[node]!);
  }
  return tree;
}

function kindsOf({ header }: Data, { boxes, functions, stacks, joins }: Held, tree: Tree): { function: number | null; type: number | null }[] {
  const key = (name: string, file: string) => `${file}\0${name}`;
  const { name, file } = header.functions;
  const numbers = new Map(name.map((itsName, at) => [key(itsName, header.files[file[at]!]!), at]));
  const types = new Map(header.types.map((itsName, at) => [itsName, at]));
  const sums = Array.from({ length: tree.length }, () => new Map<number, number>());
  for (const [at, stack, size] of joins) {
    const number = stacks[stack]!.map((of) => numbers.get(key(...functions[of]!))).find((of) => of !== undefined);
    if (number === undefined) continue;
    for (let node = at + 1; ; node = tree.parent[node]!) {
      sums[node]!.set(number, (sums[node]!.get(number) ?? 0) + size);
      if (node === 0) break;
    }
  }
  return sums.map((of, node) => {
    const [most] = [...of].sort((a, b) => b[1] - a[1]);
    const mostly = node === 0 ? null : boxes[node - 1]!.mostly;
    return { function: most?.[0] ?? null, type: mostly === null ? null : (types.get(mostly) ?? null) };
  });
}

export class HeldCard {
  readonly #held: Held;
  readonly #graph: Graph;
  readonly #tree: Tree;
  readonly #estimate: Float64Array;
  readonly #search = byId<HTMLInputElement>("held-search");
  readonly #tip = byId("tip");
  /** By node: the function that allocated most of what it holds, and the type of most of it, by their numbers in the data. */
  readonly #kinds: { function: number | null; type: number | null }[];
  #found: Found | null = null;
  #colours: string[] = [];

  constructor(data: Data, held: Held, private readonly palette: Palette, private readonly events: HeldEvents) {
    this.#held = held;
    this.#tree = treeOf(held);
    this.#estimate = Float64Array.from([held.alive, ...held.boxes.map((box) => box.bytes)], ({ estimate }) => estimate);
    this.#kinds = kindsOf(data, held, this.#tree);
    byId("held-card").hidden = false;
    this.#graph = new Graph(byId("held"), byId("held-space"), byId<HTMLCanvasElement>("held-canvas"), {
      hover: (place, box, x, below) => this.#hover(place, box, x, below),
      current: (place, box, below) => {
        this.#hover(place, box, Math.max(box.left, 0), below);
        byId("held-node").textContent = this.#sentence(place.node);
      },
      pick: (place) => this.#zoom(place.node === this.#graph.focus ? 0 : place.node),
    });
    byId("held-reset").addEventListener("click", () => this.#zoom(0));
    this.#search.addEventListener("input", () => this.#searched());
    byId("held").addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.#graph.focus === 0) return;
      event.stopPropagation();
      this.#zoom(0);
    });
    this.#say();
  }

  /** Shows the boxes in the colours of the other graph. */
  coloured(by: ColourBy, theme: Theme): void {
    this.#colours = this.#kinds.map((kind) => colourOf(by, this.palette, kind, theme));
    this.#show();
  }

  /** Says who holds what a function allocated, itself or in what it called; null: of no function. */
  allocatedBy(name: string | null, file: string): void {
    const box = byId("held-of");
    const { functions, stacks, joins } = this.#held;
    const number = functions.findIndex(([itsName, itsFile]) => itsName === name && itsFile === file);
    const through = (stack: number) => stacks[stack]!.includes(number);
    const sums = new Map<number, number>();
    let all = 0;
    for (const [at, stack, size] of joins) {
      if (number < 0 || !through(stack)) continue;
      sums.set(at, (sums.get(at) ?? 0) + size);
      all += size;
    }
    box.hidden = all === 0;
    if (all === 0) return;
    const rows = this.#holders(sums, all).sort((a, b) => b[1] - a[1]).slice(0, LINES);
    box.replaceChildren(
      `What ${clipped(visible(name ?? ""), 100)} allocated is held by: `,
      ...this.#links(rows.map(([at, size]) => [this.#path(at + 1), `${percent(size, all)}`, () => this.#zoom(at + 1)])),
    );
  }

  /** The deepest single objects that hold parts of what some boxes hold, with these parts. */
  #holders(own: Map<number, number>, all: number): [number, number][] {
    const { boxes } = this.#held;
    const below = new Float64Array(boxes.length);
    for (let at = boxes.length - 1; at >= 0; at--) {
      below[at] = below[at]! + (own.get(at) ?? 0);
      const { parent } = boxes[at]!;
      if (parent !== null) below[parent] = below[parent]! + below[at]!;
    }
    const found: [number, number][] = [];
    const visit = (node: number) => {
      let rest = node === 0 ? 0 : below[node - 1]!;
      for (let child = node + 1; child < this.#tree.end[node]!; child = this.#tree.end[child]!) {
        if (boxes[child - 1]!.objects > 1 || below[child - 1]! < WORTH_NAMING * all) continue;
        rest -= below[child - 1]!;
        visit(child);
      }
      if (node > 0 && rest >= WORTH_NAMING * all) found.push([node - 1, rest]);
    };
    visit(0);
    return found;
  }

  #links(rows: [string, string, () => void][]): (HTMLElement | string)[] {
    return rows.flatMap(([text, after, action], at) => {
      const link = document.createElement("button");
      link.type = "button";
      link.className = "link";
      link.textContent = clipped(visible(text), 120);
      link.addEventListener("click", action);
      return [at > 0 ? ", " : "", link, ` ${after}`];
    });
  }

  /** How one gets to a box from the top. */
  #path(node: number): string {
    const parts = [];
    for (let at = node; at > 0; at = this.#tree.parent[at]!) parts.unshift(this.#held.boxes[at - 1]!.reference);
    if (parts.length > 1 && parts[0] === "__main__") parts.shift();
    return parts.reduce((path, part) => (/^[[,]/.test(part) ? `${path}${part}` : `${path}.${part}`));
  }

  #label(node: number): { name: string; place: string } {
    if (node === 0) return { name: "all that is alive", place: "" };
    const { reference, what, objects } = this.#held.boxes[node - 1]!;
    const shown = what === reference ? "" : visible(what);
    const times = objects > 1 ? `${shown === "" ? "" : " "}×${grouped(objects)}` : "";
    return { name: visible(reference), place: `${shown}${times}` };
  }

  #show(focus = this.#graph.focus): void {
    const tree = this.#tree;
    this.#graph.show(
      {
        tree,
        totals: { shown: { estimate: this.#estimate } },
        colouring: { legend: [], solid: (node) => this.#colours[node]!, parts: () => [], colours: [] },
        orientation: "icicle",
        found: this.#found,
        folding: { fold: false, opened: new Set(), found: this.#found },
        label: (node) => this.#label(node),
      },
      focus,
    );
  }

  #zoom(node: number): void {
    this.#graph.zoom(node);
    this.#say();
  }

  #searched(): void {
    const query = this.#search.value;
    const matches = query === "" ? null : matcher(query);
    this.#search.setAttribute("aria-invalid", String(query !== "" && matches === null));
    const words = this.#held.boxes.map(({ reference, what }) => `${visible(reference)} ${visible(what)}`);
    this.#found = matches ? new Found(this.#tree, (node) => node > 0 && matches(words[node - 1]!)) : null;
    this.#show();
    const found = this.#found?.outermost(0) ?? [];
    const sum = found.reduce((sum, node) => sum + this.#estimate[node]!, 0);
    const nothing = found.length === 0 ? "nothing found" : `${percent(sum, this.#estimate[0]!)} · ${bytes(sum)}`;
    byId("held-result").textContent = this.#found ? nothing : "";
    const [first] = found.sort((a, b) => this.#estimate[b]! - this.#estimate[a]!);
    this.#graph.mark(first ?? null);
    this.#graph.reveal();
  }

  #sentence(node: number): string {
    const { bytes: size } = node === 0 ? { bytes: this.#held.alive } : this.#held.boxes[node - 1]!;
    const { name, place } = this.#label(node);
    const range = size.high > size.low ? `, 95 %: ${bytes(size.low)} – ${bytes(size.high)}` : "";
    return `${name}${place === "" ? "" : `, ${place}`}: ${bytes(size.estimate)}, ${percent(size.estimate, this.#estimate[0]!)} of what is alive${range}`;
  }

  /** Names the zoomed node, and says who allocated what it holds. */
  #say(): void {
    const { focus } = this.#graph;
    byId("held-reset").hidden = focus === 0;
    byId("held-summary").textContent = this.#sentence(focus);
    const { time, reason, samples, besides, functions, stacks, joins } = this.#held;
    const when = reason === "end" ? "at the end" : `at ${seconds(time)}`;
    byId("held-when").textContent = `what would be freed without each · ${when} · ${grouped(samples)} samples`;
    const sums = new Map<number, number>();
    let all = 0;
    for (const [at, stack, size] of joins) {
      const [innermost] = stacks[stack]!;
      if (at + 1 < focus || at + 1 >= this.#tree.end[focus]! || innermost === undefined) continue;
      sums.set(innermost, (sums.get(innermost) ?? 0) + size);
      all += size;
    }
    const rows = [...sums].sort((a, b) => b[1] - a[1]).slice(0, LINES);
    const by = byId("held-by");
    by.hidden = rows.length === 0;
    by.replaceChildren(
      "Allocated by: ",
      ...this.#links(rows.map(([at, size]) => [functions[at]![0], percent(size, all), () => this.events.allocatedBy(functions[at]![0])])),
    );
    const native = besides.native.reduce((sum, row) => sum + row.bytes.estimate, 0);
    const beside = (what: string, { estimate, high }: Interval) => `${what} ${estimate > 0 ? bytes(estimate) : `below ${bytes(high)}`}`;
    byId("held-besides").textContent = [
      beside("held by C code", besides.c_code),
      beside("garbage not yet collected", besides.garbage),
      beside("no holder found", besides.not_found),
      ...(native > 0 ? [`native memory without a holder ${bytes(native)}`] : []),
    ].join("; ");
  }

  #hover(place: Place | null, box: DOMRect, x: number, below: boolean): void {
    this.#tip.hidden = place === null;
    if (place === null) return;
    this.#tip.textContent = this.#sentence(place.node);
    tip.place(this.#tip, box, x, below);
  }
}
