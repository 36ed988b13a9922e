// The flame graph: a canvas of the size of the visible part, in a box that scrolls.

import type { Colouring } from "./colour.ts";
import { clipped } from "./format.ts";
import { type Place, type Rows, layout, placeAt } from "./layout.ts";
import { type Totals, type Tree, What } from "./tree.ts";

const ROW = 21;
const PADDING = 6;
/** Narrower nodes than this get no label. */
const LABELLED = 22;
/** The least characters of a shortened label, with its ellipsis. With fewer, no label is drawn. */
const SHORTEST = 4;
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
const ZOOM_MILLISECONDS = 220;

export type Orientation = "flame" | "icicle";

/** What the graph shows. */
export interface Scene {
  tree: Tree;
  totals: Totals;
  colouring: Colouring;
  orientation: Orientation;
  /** By node: whether it matches the search; null without a search. */
  found: Uint8Array | null;
  /** The name on a node, and the text after it in a fainter colour. */
  label(node: number): { name: string; place: string };
}

export interface GraphEvents {
  /** The pointer moved to a node, or away from all; and its position on the page. */
  hover(node: number | null, x: number, y: number): void;
  /** The keyboard's focus moved to a node. */
  current(node: number, box: DOMRect): void;
  /** A node was chosen to fill the width. */
  zoom(node: number): void;
}

interface Ink {
  text: string;
  faint: string;
  line: string;
  ground: string;
  mark: string;
  focus: string;
}

export class Graph {
  readonly #canvas: HTMLCanvasElement;
  readonly #pen: CanvasRenderingContext2D;
  #scene: Scene | null = null;
  #rows: Rows = [];
  #focus = 0;
  /** The part of the width that is drawn: [0, 1], except during an animation. */
  #window: [number, number] = [0, 1];
  #animation = 0;
  #current = 0;
  #hovered: number | null = null;
  #pending = false;

  constructor(
    /** The box that scrolls, and that gets the keyboard's focus. It contains a spacer with the canvas. */
    private readonly box: HTMLElement,
    private readonly spacer: HTMLElement,
    canvas: HTMLCanvasElement,
    private readonly events: GraphEvents,
  ) {
    this.#canvas = canvas;
    this.#pen = canvas.getContext("2d")!;
    box.addEventListener("scroll", () => this.#redraw());
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerleave", () => {
      this.#hovered = null;
      this.events.hover(null, 0, 0);
      this.#redraw();
    });
    canvas.addEventListener("click", (event) => {
      const node = this.#nodeAt(event);
      if (node === null) return;
      this.#current = node;
      this.events.zoom(node);
    });
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("focus", () => this.#announce());
    box.addEventListener("blur", () => {
      this.events.hover(null, 0, 0);
      this.#redraw();
    });
    new ResizeObserver(() => this.#place()).observe(box);
  }

  get focus(): number {
    return this.#focus;
  }

  /** Shows another scene, zoomed to a node. */
  show(scene: Scene, focus: number): void {
    const turned = scene.orientation !== this.#scene?.orientation;
    if (scene.tree !== this.#scene?.tree) this.#current = focus;
    this.#scene = scene;
    this.#focus = focus;
    this.#window = [0, 1];
    cancelAnimationFrame(this.#animation);
    this.#place();
    if (turned) this.#scrollToRoot();
  }

  /** Zooms to a node. */
  zoom(node: number): void {
    if (!this.#scene || node === this.#focus) return;
    const before = this.#extent(node);
    const from = this.#focus;
    this.#focus = node;
    this.#place();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    // Zooming in starts at the node's former place; zooming out at the new place of the former focus.
    let start: [number, number] = [0, 1];
    if (before && before.to > before.from && !(before.from === 0 && before.to === 1)) {
      const width = 1 / (before.to - before.from);
      start = [-before.from * width, (1 - before.from) * width];
    } else {
      const now = this.#extent(from);
      if (now && now.to > now.from) start = [now.from, now.to];
    }
    this.#animate(start);
  }

  /** Marks a node for the keyboard and brings it into view. */
  moveTo(node: number): void {
    this.#current = node;
    this.#reveal();
    this.#announce();
  }

  #animate(start: [number, number]): void {
    cancelAnimationFrame(this.#animation);
    const began = performance.now();
    const step = (now: number) => {
      const t = Math.min(1, (now - began) / ZOOM_MILLISECONDS);
      const rest = (1 - t) ** 3;
      this.#window = [start[0] * rest, 1 + (start[1] - 1) * rest];
      this.#draw();
      if (t < 1) this.#animation = requestAnimationFrame(step);
    };
    this.#animation = requestAnimationFrame(step);
  }

  #extent(node: number): Place | null {
    const row = this.#rows[this.#scene!.tree.depth[node]!];
    return row?.find((place) => place.node === node) ?? null;
  }

  #place(): void {
    if (!this.#scene) return;
    const width = this.box.clientWidth;
    // A flame graph grows upwards: the visible part keeps its distance from the root.
    const fromRoot = this.box.scrollHeight - this.box.scrollTop;
    this.#rows = layout(this.#scene.tree, this.#scene.totals, this.#focus, width);
    this.spacer.style.height = `${this.#height()}px`;
    if (this.#scene.orientation === "flame") this.box.scrollTop = this.box.scrollHeight - fromRoot;
    if (!this.#extent(this.#current)) this.#current = this.#focus;
    const scale = devicePixelRatio || 1;
    const height = Math.min(this.box.clientHeight, this.#height());
    this.#canvas.style.width = `${width}px`;
    this.#canvas.style.height = `${height}px`;
    this.#canvas.width = Math.max(1, Math.round(width * scale));
    this.#canvas.height = Math.max(1, Math.round(height * scale));
    this.#draw();
  }

  #height(): number {
    return Math.max(this.#rows.length * ROW, ROW);
  }

  #scrollToRoot(): void {
    this.box.scrollTop = this.#scene?.orientation === "flame" ? this.#height() : 0;
  }

  /** The upper edge of a row. */
  #top(row: number): number {
    return (this.#scene!.orientation === "flame" ? this.#rows.length - 1 - row : row) * ROW;
  }

  #redraw(): void {
    if (this.#pending) return;
    this.#pending = true;
    requestAnimationFrame(() => {
      this.#pending = false;
      this.#draw();
    });
  }

  #ink(): Ink {
    const style = getComputedStyle(this.box);
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

  #draw(): void {
    const scene = this.#scene;
    if (!scene) return;
    const pen = this.#pen;
    const scale = devicePixelRatio || 1;
    const width = this.#canvas.width / scale;
    const height = this.#canvas.height / scale;
    const ink = this.#ink();
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    pen.direction = "ltr";
    const scroll = this.box.scrollTop;
    for (let row = 0; row < this.#rows.length; row++) {
      const top = this.#top(row) - scroll;
      if (top + ROW < 0 || top > height) continue;
      for (const place of this.#rows[row]!) this.#drawPlace(pen, scene, ink, place, top, width);
    }
    if (document.activeElement === this.box) this.#outline(pen, ink.focus, scroll, width);
  }

  /** Horizontal extent in pixels. */
  #across(place: Place, width: number): [number, number] {
    const [from, to] = this.#window;
    const scale = width / (to - from);
    return [(place.from - from) * scale, (place.to - from) * scale];
  }

  #drawPlace(pen: CanvasRenderingContext2D, scene: Scene, ink: Ink, place: Place, top: number, width: number): void {
    const [x0, x1] = this.#across(place, width);
    if (x1 < 0 || x0 > width) return;
    const left = Math.max(x0, -1);
    const right = Math.min(x1, width + 1);
    const { node } = place;
    const above = place.row < scene.tree.depth[this.#focus]!;
    const missed = scene.found !== null && scene.found[node] === 0;
    pen.globalAlpha = missed ? 0.36 : above ? 0.55 : 1;
    // One pixel of background between neighbours, if there is room.
    const gap = x1 - x0 > 3 ? 1 : 0;
    this.#fill(pen, scene.colouring, node, left, top, right - left - gap);
    if (scene.found?.[node] === 1) {
      pen.fillStyle = ink.mark;
      pen.fillRect(left, top + ROW - 4, right - left - gap, 3);
    }
    if (node === this.#hovered) {
      pen.globalAlpha = 1;
      pen.strokeStyle = ink.text;
      pen.lineWidth = 1.5;
      pen.strokeRect(left + 0.75, top + 0.75, Math.max(right - left - gap - 1.5, 0.5), ROW - 2.5);
    }
    pen.globalAlpha = missed ? 0.5 : above ? 0.75 : 1;
    const inner = Math.min(right, width) - Math.max(left, 0) - 2 * PADDING - gap;
    if (inner + 2 * PADDING > LABELLED) {
      this.#write(pen, scene, ink, node, Math.max(left, 0) + PADDING, top + ROW / 2, inner);
    }
    pen.globalAlpha = 1;
  }

  #fill(pen: CanvasRenderingContext2D, colouring: Colouring, node: number, left: number, top: number, width: number): void {
    const solid = colouring.solid(node);
    if (solid !== null) {
      pen.fillStyle = solid;
      pen.fillRect(left, top, width, ROW - 1);
      return;
    }
    const parts = colouring.parts(node);
    const whole = parts.reduce((sum, part) => sum + part, 0);
    let at = left;
    for (let part = 0; part < parts.length; part++) {
      const share = whole > 0 ? (parts[part]! / whole) * width : 0;
      if (share === 0) continue;
      pen.fillStyle = colouring.colours[part]!;
      pen.fillRect(at, top, share, ROW - 1);
      at += share;
    }
  }

  #write(pen: CanvasRenderingContext2D, scene: Scene, ink: Ink, node: number, x: number, y: number, room: number): void {
    const { name, place } = scene.label(node);
    // Types are in italics, functions are not.
    pen.font = scene.tree.what[node] === What.Type ? `italic ${FONT}` : FONT;
    const fits = (text: string, space: number): string => {
      // No character is narrower than 2 pixels, so a longer name cannot fit.
      let most = Math.min(text.length, Math.floor(space / 2));
      let shown = clipped(text, Math.max(most, SHORTEST));
      for (let wide = pen.measureText(shown).width; wide > space; wide = pen.measureText(shown).width) {
        most = Math.min(most - 1, Math.floor((most * space) / wide));
        if (most < SHORTEST) return "";
        shown = clipped(text, most);
      }
      return shown;
    };
    const first = fits(name, room);
    if (first === "") return;
    pen.fillStyle = ink.text;
    pen.fillText(first, x, y);
    const used = pen.measureText(first).width + 8;
    if (first !== name || place === "" || room - used < 40) return;
    pen.fillStyle = ink.faint;
    pen.fillText(fits(place, room - used), x + used, y);
  }

  #outline(pen: CanvasRenderingContext2D, colour: string, scroll: number, width: number): void {
    const place = this.#extent(this.#current);
    if (!place) return;
    const [x0, x1] = this.#across(place, width);
    pen.strokeStyle = colour;
    pen.lineWidth = 2.5;
    pen.strokeRect(x0 + 1.25, this.#top(place.row) - scroll + 1.25, Math.max(x1 - x0 - 3.5, 1), ROW - 3.5);
  }

  #nodeAt(event: PointerEvent | MouseEvent): number | null {
    if (!this.#scene) return null;
    const box = this.#canvas.getBoundingClientRect();
    const line = Math.floor((event.clientY - box.top + this.box.scrollTop) / ROW);
    const row = this.#scene.orientation === "flame" ? this.#rows.length - 1 - line : line;
    return placeAt(this.#rows, row, (event.clientX - box.left) / box.width)?.node ?? null;
  }

  #point(event: PointerEvent): void {
    const node = this.#nodeAt(event);
    this.#canvas.style.cursor = node === null ? "default" : "pointer";
    if (node !== this.#hovered) {
      this.#hovered = node;
      this.#redraw();
    }
    this.events.hover(node, event.clientX, event.clientY);
  }

  #key(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.#scene) return;
    const { tree, orientation } = this.#scene;
    const outward = orientation === "flame" ? "ArrowUp" : "ArrowDown";
    const inward = orientation === "flame" ? "ArrowDown" : "ArrowUp";
    const place = this.#extent(this.#current);
    let to: number | null | undefined = null;
    switch (event.key) {
      case outward:
        to = place && this.#rows[place.row + 1]?.find((other) => tree.parent[other.node] === place.node && other.node !== 0)?.node;
        break;
      case inward:
        to = tree.parent[this.#current];
        break;
      case "ArrowLeft":
      case "ArrowRight": {
        if (!place) break;
        const row = this.#rows[place.row]!;
        to = row[row.indexOf(place) + (event.key === "ArrowLeft" ? -1 : 1)]?.node;
        break;
      }
      case "Home":
        to = this.#focus;
        break;
      case "Enter":
      case " ":
        this.events.zoom(this.#current);
        this.#reveal();
        this.#announce();
        event.preventDefault();
        return;
      default:
        return;
    }
    event.preventDefault();
    if (to === null || to === undefined) return;
    this.moveTo(to);
  }

  /** Scrolls until the node with the keyboard's focus is visible. */
  #reveal(): void {
    const place = this.#extent(this.#current);
    if (!place) return;
    const top = this.#top(place.row);
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW > this.box.scrollTop + this.box.clientHeight) {
      this.box.scrollTop = top + ROW - this.box.clientHeight;
    }
  }

  #announce(): void {
    this.#draw();
    const place = this.#extent(this.#current);
    if (!place) return;
    const canvas = this.#canvas.getBoundingClientRect();
    const [x0, x1] = this.#across(place, canvas.width);
    const y = canvas.top + this.#top(place.row) - this.box.scrollTop;
    this.events.current(this.#current, new DOMRect(canvas.left + x0, y, x1 - x0, ROW));
  }
}
