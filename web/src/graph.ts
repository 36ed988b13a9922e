// The graph: a canvas of the size of the visible part, in a box that scrolls.

import { type Folding, type Place, type Rows, chainNodes, layout, placeAt } from "./layout.ts";
import { type Boxes, type Extent, ROW, begin, drawBox, inkOf, outline } from "./paint.ts";
import type { Sums } from "./totals.ts";

const ZOOM_MILLISECONDS = 220;

export type Orientation = "flame" | "icicle";

/** What the graph shows. */
export interface Scene extends Boxes {
  totals: { shown: Pick<Sums, "estimate"> };
  orientation: Orientation;
  folding: Folding;
}

export interface GraphEvents {
  /** The pointer moved to a box, or away from all; with the box in the window, the pointer's place, and on which side callees are. */
  hover(place: Place | null, box: DOMRect, x: number, calleesBelow: boolean): void;
  /** The keyboard's focus moved to a box. */
  current(place: Place, box: DOMRect, calleesBelow: boolean): void;
  /** A box was clicked, or chosen by the keyboard. */
  pick(place: Place): void;
}

export class Graph {
  readonly #canvas: HTMLCanvasElement;
  readonly #pen: CanvasRenderingContext2D;
  #scene: Scene | null = null;
  /** From the top to the bottom. */
  #rows: Rows = [];
  /** The place of each node that has one; a folded chain's place is all its nodes'. */
  #places = new Map<number, Place>();
  /** The row of the root, or of the zoomed node in a tree with callers above it. */
  #base = 0;
  #focus = 0;
  /** The part of the width that is drawn: [0, 1], except during an animation. */
  #window: [number, number] = [0, 1];
  #animation = 0;
  #current = 0;
  /** The match that the search is at. */
  #marked: number | null = null;
  #hovered: Place | null = null;
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
      this.events.hover(null, new DOMRect(), 0, true);
      this.#redraw();
    });
    canvas.addEventListener("click", (event) => {
      const place = this.#placeAt(event);
      if (place === null) return;
      this.#current = place.node;
      this.events.pick(place);
    });
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("focus", () => this.#announce());
    box.addEventListener("blur", () => {
      this.events.hover(null, new DOMRect(), 0, true);
      this.#redraw();
    });
    new ResizeObserver(() => this.#place()).observe(box);
  }

  /** The node that fills the width. */
  get focus(): number {
    return this.#focus;
  }

  /** The node under the pointer, else the one that the keyboard is at. */
  get current(): number {
    return this.#hovered?.node ?? this.#current;
  }

  /** The number of boxes, drawn or scrolled out of sight. */
  get boxes(): number {
    return this.#rows.reduce((sum, row) => sum + row.length, 0);
  }

  /** Shows another scene, zoomed to a node. */
  show(scene: Scene, focus: number): void {
    const before = this.#scene;
    const turned = scene.orientation !== before?.orientation || scene.tree.callers !== before.tree.callers;
    const other = scene.tree !== before?.tree;
    if (other) {
      this.#current = focus;
      this.#marked = null;
      this.#hovered = null;
    }
    this.#scene = scene;
    this.#focus = focus;
    this.#window = [0, 1];
    cancelAnimationFrame(this.#animation);
    this.#place();
    if (turned || other) this.#scrollToBase();
  }

  /** Zooms to a node. */
  zoom(node: number): void {
    if (!this.#scene || node === this.#focus) return;
    const before = this.#places.get(node) ?? null;
    const from = this.#focus;
    this.#focus = node;
    this.#place();
    this.#show(this.#places.get(node) ?? null);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    // Zooming in starts at the node's former place; zooming out at the new place of the former focus.
    let start: [number, number] = [0, 1];
    if (before && before.to > before.from && !(before.from === 0 && before.to === 1)) {
      const width = 1 / (before.to - before.from);
      start = [-before.from * width, (1 - before.from) * width];
    } else {
      const now = this.#places.get(from);
      if (now && now.to > now.from) start = [now.from, now.to];
    }
    this.#animate(start);
  }

  /** The place of a node in its row, from 1, and their number. */
  position(node: number): { at: number; of: number } {
    const place = this.#places.get(node);
    const row = place ? this.#rows[place.row]! : [];
    return { at: place ? row.indexOf(place) + 1 : 1, of: Math.max(row.length, 1) };
  }

  /** The width of a node in pixels; 0 if it has no box of its own. */
  widthOf(node: number): number {
    const place = this.#places.get(node);
    return place && place.chain === null ? (place.to - place.from) * this.box.clientWidth : 0;
  }

  /** Marks a match of the search. */
  mark(node: number | null): void {
    this.#marked = node;
    if (node !== null) this.#current = node;
    this.#redraw();
  }

  /** Scrolls the box and the window until the marked match is visible. Call it when all of the page has its size. */
  reveal(): void {
    const place = this.#marked === null ? undefined : this.#places.get(this.#marked);
    if (!place) return;
    this.#show(place);
    this.#scrollWindow(place);
  }

  #scrollWindow(place: Place): void {
    const at = this.#rectangle(place);
    // The head of the graph stays at the window's upper edge; in a small window, the search alone.
    const heads = [...document.querySelectorAll<HTMLElement>("#graph-head, #graph-head .search")];
    const covered = heads.filter((head) => getComputedStyle(head).position === "sticky").map((head) => head.offsetHeight);
    const least = Math.max(0, ...covered) + 8;
    if (at.bottom > innerHeight - 8) scrollBy({ top: at.bottom - innerHeight + 24, behavior: "instant" });
    const now = this.#rectangle(place);
    if (now.top < least) scrollBy({ top: now.top - least - 8, behavior: "instant" });
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

  #layout(width: number): void {
    const { tree, totals, folding, orientation } = this.#scene!;
    const rows = layout(tree, totals.shown, this.#focus, width, folding);
    let above: Rows = [];
    if (tree.callers < tree.length) {
      // The second root is the same function as the first, which is drawn once.
      above = layout(tree, totals.shown, tree.callers, width, folding).slice(1).reverse();
    } else if (orientation === "flame") rows.reverse();
    this.#rows = [...above, ...rows];
    this.#base = above.length > 0 || orientation === "icicle" ? above.length : rows.length - 1;
    this.#places.clear();
    this.#rows.forEach((row, at) => {
      for (const place of row) {
        place.row = at;
        for (const node of chainNodes(tree, place)) this.#places.set(node, place);
      }
    });
  }

  #place(): void {
    if (!this.#scene) return;
    const width = this.box.clientWidth;
    // The visible part keeps its distance from the root.
    const fromBase = this.box.scrollTop - this.#base * ROW;
    this.#layout(width);
    this.spacer.style.height = `${this.#height()}px`;
    this.box.scrollTop = this.#base * ROW + fromBase;
    if (!this.#places.has(this.#current)) this.#current = this.#focus;
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

  #scrollToBase(): void {
    const inside = this.#scene!.tree.callers < this.#scene!.tree.length;
    // Callers are above the root, so it is in the middle.
    this.box.scrollTop = this.#base * ROW - (inside ? (this.box.clientHeight - ROW) / 2 : 0);
    this.#redraw();
  }

  #redraw(): void {
    if (this.#pending) return;
    this.#pending = true;
    requestAnimationFrame(() => {
      this.#pending = false;
      this.#draw();
    });
  }

  #draw(): void {
    const scene = this.#scene;
    if (!scene) return;
    const pen = this.#pen;
    const scale = devicePixelRatio || 1;
    const width = this.#canvas.width / scale;
    const height = this.#canvas.height / scale;
    const ink = inkOf(this.box);
    begin(pen, width, height);
    const scroll = this.box.scrollTop;
    const first = Math.max(0, Math.floor(scroll / ROW));
    const end = Math.min(this.#rows.length, Math.ceil((scroll + height) / ROW));
    for (let row = first; row < end; row++) {
      for (const place of this.#rows[row]!) drawBox(pen, scene, ink, place, this.#extent(place, width), width, place.node === this.#hovered?.node);
    }
    const lined = (node: number, colour: string) => {
      const place = this.#places.get(node);
      if (place) outline(pen, colour, this.#extent(place, width));
    };
    if (this.#marked !== null) lined(this.#marked, ink.mark);
    if (document.activeElement === this.box) lined(this.#current, ink.focus);
  }

  /** Where a place is on the canvas. */
  #extent(place: Place, width: number): Extent {
    const [from, to] = this.#window;
    const scale = width / (to - from);
    return {
      left: (place.from - from) * scale,
      right: (place.to - from) * scale,
      top: place.row * ROW - this.box.scrollTop,
    };
  }

  /** Where a place is in the window. */
  #rectangle(place: Place): DOMRect {
    const canvas = this.box.getBoundingClientRect();
    const { left, right, top } = this.#extent(place, canvas.width);
    return new DOMRect(canvas.left + left, canvas.top + top, right - left, ROW);
  }

  /** Whether what a box called is below it on the screen. */
  #hasCalleesBelow(place: Place): boolean {
    const { tree, orientation } = this.#scene!;
    return tree.callers < tree.length ? place.row >= this.#base : orientation === "icicle";
  }

  #placeAt(event: PointerEvent | MouseEvent): Place | null {
    const box = this.#canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top + this.box.scrollTop) / ROW);
    return placeAt(this.#rows, row, (event.clientX - box.left) / box.width);
  }

  #point(event: PointerEvent): void {
    const place = this.#placeAt(event);
    this.#canvas.style.cursor = place === null ? "default" : "pointer";
    if (place?.node !== this.#hovered?.node) {
      this.#hovered = place;
      this.#redraw();
    }
    this.events.hover(place, place ? this.#rectangle(place) : new DOMRect(), event.clientX, place !== null && this.#hasCalleesBelow(place));
  }

  #key(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.#scene) return;
    const place = this.#places.get(this.#current);
    if (!place) return;
    let to: Place | undefined;
    switch (event.key) {
      case "ArrowUp":
      case "ArrowDown": {
        // The widest box that touches this one.
        const next = this.#rows[place.row + (event.key === "ArrowUp" ? -1 : 1)] ?? [];
        // Neighbours may overlap by a rounding error.
        const touching = next.filter((other) => Math.min(other.to, place.to) - Math.max(other.from, place.from) > 1e-9);
        to = touching.sort((a, b) => b.to - b.from - (a.to - a.from))[0];
        break;
      }
      case "ArrowLeft":
      case "ArrowRight": {
        const row = this.#rows[place.row]!;
        to = row[row.indexOf(place) + (event.key === "ArrowLeft" ? -1 : 1)];
        break;
      }
      case "Home":
        to = this.#places.get(this.#focus);
        break;
      case "Enter":
      case " ":
        this.events.pick(place);
        this.#show(this.#places.get(this.#current) ?? null);
        this.#announce();
        event.preventDefault();
        return;
      default:
        return;
    }
    event.preventDefault();
    if (!to) return;
    this.#current = to.node;
    this.#show(to);
    this.#scrollWindow(to);
    this.#announce();
  }

  /** Scrolls the box until a place is visible. */
  #show(place: Place | null): void {
    if (!place) return;
    const top = place.row * ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW > this.box.scrollTop + this.box.clientHeight) {
      this.box.scrollTop = top + ROW - this.box.clientHeight;
    }
  }

  #announce(): void {
    this.#draw();
    const place = this.#places.get(this.#current);
    if (place) this.events.current(place, this.#rectangle(place), this.#hasCalleesBelow(place));
  }
}
