// Draws the boxes of the graph on its canvas.

import type { Colouring } from "./colour.ts";
import { clipped, pinched } from "./format.ts";
import type { Place } from "./layout.ts";
import type { Found } from "./search.ts";
import { type Tree, What } from "./tree.ts";

export const ROW = 21;
const PADDING = 6;
/** Narrower nodes than this get no label. */
const LABELLED = 22;
/** The least characters of a shortened label, with its ellipsis. With fewer, no label is drawn. */
const SHORTEST = 4;
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

/** What the boxes show. */
export interface Boxes {
  tree: Tree;
  colouring: Colouring;
  /** The nodes that match the search; null without a search. */
  found: Found | null;
  /** The name on a node, and the text after it in a fainter colour. */
  label(node: number): { name: string; place: string };
}

export interface Ink {
  text: string;
  faint: string;
  line: string;
  ground: string;
  mark: string;
  focus: string;
}

/** The colours of the theme that is shown. */
export function inkOf(element: HTMLElement): Ink {
  const style = getComputedStyle(element);
  const ink = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: ink("frame-text"),
    faint: ink("frame-faint"),
    line: ink("frame-line"),
    ground: ink("surface"),
    mark: ink("mark"),
    focus: ink("focus"),
  };
}

/** Clears the canvas, and prepares it for boxes. */
export function begin(pen: CanvasRenderingContext2D, width: number, height: number): void {
  const scale = devicePixelRatio || 1;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  pen.direction = "ltr";
}

/** Where a box is, in pixels. */
export interface Extent {
  left: number;
  right: number;
  top: number;
}

/** Draws one box. */
export function drawBox(pen: CanvasRenderingContext2D, boxes: Boxes, ink: Ink, place: Place, at: Extent, width: number, hovered: boolean): void {
  if (at.right < 0 || at.left > width) return;
  const left = Math.max(at.left, -1);
  const right = Math.min(at.right, width + 1);
  const { top } = at;
  const { node } = place;
  // A folded chain has no match in it.
  const matches = place.chain === null && (boxes.found?.is(node) ?? false);
  const missed = boxes.found !== null && !matches;
  // One pixel of background between neighbours, if there is room.
  const gap = at.right - at.left > 3 ? 1 : 0;
  const wide = right - left - gap;
  pen.globalAlpha = missed ? 0.36 : place.above ? 0.55 : 1;
  if (place.chain) {
    pen.strokeStyle = ink.faint;
    pen.lineWidth = 1;
    pen.setLineDash([4, 3]);
    pen.strokeRect(left + 0.5, top + 0.5, Math.max(wide - 1, 0.5), ROW - 2);
    pen.setLineDash([]);
  } else fill(pen, boxes.colouring, node, left, top, wide);
  if (matches) {
    pen.fillStyle = ink.mark;
    pen.fillRect(left, top + ROW - 4, wide, 3);
  }
  if (hovered) {
    pen.globalAlpha = 1;
    pen.strokeStyle = ink.text;
    pen.lineWidth = 1.5;
    pen.strokeRect(left + 0.75, top + 0.75, Math.max(wide - 1.5, 0.5), ROW - 2.5);
  }
  pen.globalAlpha = missed ? 0.5 : place.above ? 0.75 : 1;
  const inner = Math.min(right, width) - Math.max(left, 0) - 2 * PADDING - gap;
  if (inner + 2 * PADDING > LABELLED) {
    write(pen, boxes, ink, place, Math.max(left, 0) + PADDING, top + ROW / 2, inner);
  }
  pen.globalAlpha = 1;
}

/** Draws a line around a box. */
export function outline(pen: CanvasRenderingContext2D, colour: string, at: Extent): void {
  pen.strokeStyle = colour;
  pen.lineWidth = 2.5;
  pen.strokeRect(at.left + 1.25, at.top + 1.25, Math.max(at.right - at.left - 3.5, 1), ROW - 3.5);
}

function fill(pen: CanvasRenderingContext2D, colouring: Colouring, node: number, left: number, top: number, width: number): void {
  const solid = colouring.solid(node);
  if (solid !== null) {
    pen.fillStyle = solid;
    pen.fillRect(left, top, width, ROW - 1);
    return;
  }
  const parts = colouring.parts(node);
  let whole = 0;
  for (let part = 0; part < parts.length; part++) whole += parts[part]!;
  let at = left;
  for (let part = 0; part < parts.length; part++) {
    const share = whole > 0 ? (parts[part]! / whole) * width : 0;
    if (share <= 0) continue;
    pen.fillStyle = colouring.colours[part]!;
    pen.fillRect(at, top, share, ROW - 1);
    at += share;
  }
}

function write(pen: CanvasRenderingContext2D, boxes: Boxes, ink: Ink, at: Place, x: number, y: number, room: number): void {
  const { name, place } = at.chain ? { name: `⋯ ${at.chain.length} calls`, place: "" } : boxes.label(at.node);
  // Types are in italics, functions are not.
  pen.font = boxes.tree.what[at.node] === What.Type ? `italic ${FONT}` : FONT;
  const cut = boxes.tree.what[at.node] === What.Group && !at.chain ? pinched : clipped;
  const fits = (text: string, space: number): string => {
    // No character is narrower than 2 pixels, so a longer name cannot fit.
    let most = Math.min(text.length, Math.floor(space / 2));
    let shown = cut(text, Math.max(most, SHORTEST));
    for (let wide = pen.measureText(shown).width; wide > space; wide = pen.measureText(shown).width) {
      most = Math.min(most - 1, Math.floor((most * space) / wide));
      if (most < SHORTEST) return "";
      shown = cut(text, most);
    }
    return shown;
  };
  const first = fits(name, room);
  if (first === "") return;
  pen.fillStyle = at.chain ? ink.faint : ink.text;
  pen.fillText(first, x, y);
  const used = pen.measureText(first).width + 8;
  if (first !== name || place === "" || room - used < 40) return;
  pen.fillStyle = ink.faint;
  pen.fillText(fits(place, room - used), x + used, y);
}
