// The search field: what matches, and the match that the reader is at.

import { percent } from "./format.ts";
import type { Graph } from "./graph.ts";
import { type Found, type Matcher, matcher } from "./search.ts";
import type { Texts } from "./texts.ts";
import type { Sums } from "./totals.ts";
import type { Tree } from "./tree.ts";

/** A match narrower than this, in pixels, is zoomed to. */
const NARROW = 6;

/** The text that is searched. */
export interface Searched {
  tree: Tree;
  sums: Sums;
  found: Found | null;
  texts: Texts;
}

export class Finder {
  #matches: number[] = [];
  #all = 0;
  #at = -1;
  /** The node below which matches are visited. */
  #scope = 0;
  /** The node that a match was zoomed to by. */
  #zoomed: number | null = null;

  constructor(
    private readonly field: HTMLInputElement,
    private readonly result: HTMLElement,
    private readonly graph: Graph,
    private readonly zoom: (node: number) => void,
  ) {}

  get text(): string {
    return this.field.value;
  }

  set text(text: string) {
    this.field.value = text;
  }

  /** What the text matches; null if there is no text, or it is not a valid pattern. */
  matcher(): Matcher | null {
    const matches = this.text === "" ? null : matcher(this.text);
    this.field.setAttribute("aria-invalid", String(this.text !== "" && matches === null));
    return matches;
  }

  /** Begins anew with the matches below a node, the largest first. */
  begin({ tree, sums, found }: Searched, scope: number): void {
    if (this.#zoomed !== null && scope === this.#zoomed && this.#scope < tree.length) {
      // The search before this one zoomed here, not the reader.
      scope = this.#scope;
      if (this.graph.focus === this.#zoomed) this.zoom(scope);
    }
    this.#zoomed = null;
    this.#scope = tree.callers < tree.length ? 0 : scope;
    this.#at = -1;
    // In a tree of callers and callees, the matches of both are visited.
    const below = tree.callers < tree.length ? [0, tree.callers] : [this.#scope];
    const parts = found ? below.map((node) => found.inOrder(node, sums)) : [];
    this.#matches = parts.flatMap((part) => part.nodes);
    if (parts.length > 1) this.#matches.sort((a, b) => sums.estimate[b]! - sums.estimate[a]! || a - b);
    this.#all = parts.reduce((sum, part) => sum + part.all, 0);
  }

  /** Goes to the next match, or with -1 to the one before. It is zoomed to if it is too narrow to be seen. */
  go(step: 1 | -1, searched: Searched): void {
    if (this.#matches.length === 0) {
      this.graph.mark(null);
      return;
    }
    const count = this.#matches.length;
    this.#at = this.#at < 0 && step < 0 ? count - 1 : (this.#at + step + count) % count;
    const node = this.#matches[this.#at]!;
    if (this.graph.widthOf(node) < NARROW) this.#widen(node, searched);
    this.graph.mark(node);
  }

  /** Zooms out as far as the match can still be seen, but not further than the search began. */
  #widen(node: number, { tree, sums }: Searched): void {
    if (tree.callers < tree.length) return;
    const width = document.getElementById("graph")!.clientWidth;
    const enough = (root: number) => (sums.estimate[node]! / sums.estimate[root]!) * width >= NARROW;
    let root = node;
    while (root !== this.#scope && tree.parent[root] !== root && enough(tree.parent[root]!)) root = tree.parent[root]!;
    if (root === this.graph.focus) return;
    this.zoom(root);
    this.#zoomed = root === this.#scope ? null : root;
  }

  /** Writes the share of the hits, and where the reader is. */
  say({ sums, found, texts }: Searched): void {
    const { result } = this;
    const below = this.#scope;
    if (this.field.getAttribute("aria-invalid") === "true") {
      result.textContent = "not a valid pattern";
      return;
    }
    result.title = "";
    if (!found) {
      result.textContent = "";
      return;
    }
    const moments = sums.momentsOf(found.outermost(below));
    const { value, interval } = texts.estimate(moments);
    const share = percent(moments.estimate, sums.estimate[below]!);
    if (moments.estimate === 0 && this.#all === 0) {
      result.textContent = "nothing found";
      return;
    }
    const at = this.#at < 0 ? "" : `${(this.#at + 1).toLocaleString("en-US")} of ${this.#all.toLocaleString("en-US")} · `;
    result.textContent = `${at}${share} · ${value}`;
    result.title = interval === "exact" ? "" : `95 %: ${interval}`;
  }
}
