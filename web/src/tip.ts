// The tooltip of a node.

import type { Data } from "./data.ts";
import type { Texts } from "./texts.ts";
import { clipped, percent } from "./format.ts";
import type { Sums, Totals } from "./totals.ts";
import { type Tree, What } from "./tree.ts";

/** The largest number of types that the tooltip lists. */
const TYPES = 4;
const LONGEST = 160;
/** The largest number of folded calls that it names. */
const CALLS = 9;

export interface TipScene {
  data: Data;
  tree: Tree;
  totals: Totals;
  texts: Texts;
  focus: number;
  /** The estimate of everything that is selected. */
  whole: number;
  /** The names in a folded chain; else empty. */
  names: string[];
  fateColours: string[];
}

/** Fills the tooltip. */
export function describe(box: HTMLElement, scene: TipScene, node: number): void {
  const { tree, totals, texts, data } = scene;
  const { name } = texts.label(tree, node);
  const lines: HTMLElement[] = [element("strong", "name", clipped(name, LONGEST))];
  const more = texts.more(tree, node);
  if (more) lines.push(element("div", "place", clipped(more, LONGEST)));

  const sums = totals.shown;
  const { estimate } = sums;
  const total = estimate[node]!;
  lines.push(figure("", texts.estimate(sums.moments(node))));
  if (totals.change) {
    const [old, now] = [totals.change.old, totals.change.new].map((of) => of.moments(node));
    const difference = now!.estimate - old!.estimate;
    const sign = difference > 0 ? "+" : difference < 0 ? "−" : "";
    const relative = old!.estimate > 0 ? ` (${sign}${percent(Math.abs(difference), old!.estimate)})` : "";
    lines.push(row("old", `${texts.estimate(old!).value}  ${texts.estimate(old!).interval}`, ""));
    lines.push(row("new", `${texts.estimate(now!).value}  ${texts.estimate(now!).interval}`, ""));
    lines.push(row("difference", `${sign}${texts.value(Math.abs(difference))}${relative}`, ""));
  }
  const shares = [`${percent(total, scene.whole)} of all`];
  if (scene.focus !== 0 && tree.depth[node]! > tree.depth[scene.focus]!) {
    shares.push(`${percent(total, estimate[scene.focus]!)} of the zoomed box`);
  }
  const samples = sums.samples[node]!;
  shares.push(`${samples.toLocaleString("en-US")} sample${samples === 1 ? "" : "s"}`);
  lines.push(element("div", "faint", shares.join(" · ")));
  if (scene.names.length > 0) {
    lines.push(element("div", "faint", `${scene.names.length} calls, each passing nearly all to the next; a click shows them:`));
    const shown = scene.names.length > CALLS ? [...scene.names.slice(0, CALLS - 2), "…", scene.names.at(-1)!] : scene.names;
    lines.push(...shown.map((name) => element("div", "", clipped(name, 80))));
  } else if (tree.what[node] !== What.Type && total > 0) {
    const own = sums.own(node);
    if (own.estimate > 0) lines.push(figure("itself ", texts.estimate(own)));
    for (const [type, sum] of topTypes(tree, sums, node)) {
      lines.push(row(clipped(texts.types[type]!, 60), percent(sum, total), ""));
    }
  }
  sums.fates(node).forEach((part, fate) => {
    if (part > 0) lines.push(row(data.header.fates[fate]!, percent(part, total), scene.fateColours[fate]!));
  });
  box.replaceChildren(...lines);
}

/** The tooltip's distance from what it explains, and from the edges of the window, in pixels. */
const GAP = 8;

/**
 * Places the tooltip inside the window, where it covers neither the box that it explains nor the boxes below it in the tree:
 * on the side of its callers. If there is no room, it is at the window's edge that is farther from the pointer.
 *
 * `of` is the box in the window, `x` the pointer's place, and `calleesBelow` whether callees are below it on the screen.
 */
export function place(box: HTMLElement, of: DOMRect, x: number, calleesBelow: boolean): void {
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const room = { left: innerWidth - width - GAP, top: innerHeight - height - GAP };
  const free = calleesBelow ? of.top - GAP - height : of.bottom + GAP;
  let left = x + GAP;
  let top = free;
  if (free < GAP || free > room.top) {
    left = x < innerWidth / 2 ? room.left : GAP;
    // Not over the row either, if the other side of it has the room.
    const other = calleesBelow ? of.bottom + GAP : of.top - GAP - height;
    const hides = left < of.right && left + width > of.left;
    top = hides && other >= GAP && other <= room.top ? other : of.top;
  }
  box.style.left = `${Math.max(GAP, Math.min(left, room.left))}px`;
  box.style.top = `${Math.max(GAP, Math.min(top, room.top))}px`;
}

/** The types with the largest shares of a node. */
function topTypes(tree: Tree, sums: Sums, below: number): [number, number][] {
  const shares = new Map<number, number>();
  for (let node = below; node < tree.end[below]!; node++) {
    if (tree.what[node] !== What.Type || sums.self[node] === 0) continue;
    shares.set(tree.id[node]!, (shares.get(tree.id[node]!) ?? 0) + sums.self[node]!);
  }
  return [...shares].sort((a, b) => b[1] - a[1]).slice(0, TYPES);
}

function figure(before: string, estimate: { value: string; interval: string }): HTMLElement {
  const line = element("div", "figure", before);
  line.append(element("b", "", estimate.value), element("span", "interval", estimate.interval));
  return line;
}

function row(label: string, value: string, colour: string): HTMLElement {
  const line = element("div", "row", "");
  const swatch = element("i", colour ? "swatch" : "swatch none", "");
  if (colour) swatch.style.background = colour;
  line.append(swatch, element("span", "label", label), element("span", "value", value));
  return line;
}

function element(tag: string, name: string, text: string): HTMLElement {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}
