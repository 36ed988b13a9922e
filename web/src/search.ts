// The search for functions, files and types.

import type { Data } from "./data.ts";
import type { Texts } from "./texts.ts";
import type { Sums } from "./totals.ts";
import { type Tree, What } from "./tree.ts";

/** With more matches than this, only the largest are visited one by one. */
const VISITED = 5_000;

/** Whether a name matches the search. */
export type Matcher = (text: string) => boolean;

/** `text` matches names that contain it, ignoring case; `/text/` is a regular expression. Null if it is not valid. */
export function matcher(query: string): Matcher | null {
  const expression = /^\/(.+)\/$/.exec(query);
  if (!expression) {
    const wanted = query.toLowerCase();
    return (text) => text.toLowerCase().includes(wanted);
  }
  try {
    const pattern = new RegExp(expression[1]!, "iu");
    return (text) => pattern.test(text);
  } catch {
    return null;
  }
}

/** The nodes that match. */
export class Found {
  /** The number of matches before each node. */
  readonly #before: Uint32Array;

  constructor(private readonly tree: Tree, matches: (node: number) => boolean) {
    this.#before = new Uint32Array(tree.length + 1);
    for (let node = 0; node < tree.length; node++) this.#before[node + 1] = this.#before[node]! + (matches(node) ? 1 : 0);
  }

  is(node: number): boolean {
    return this.#before[node + 1]! > this.#before[node]!;
  }

  /** The number of matches among some consecutive nodes. */
  within(first: number, end: number): number {
    return this.#before[end]! - this.#before[first]!;
  }

  /** The matches below a node, and the node, that are not inside another match. */
  outermost(below: number): number[] {
    const nodes = [];
    for (let node = below; node < this.tree.end[below]!; ) {
      if (this.is(node)) {
        nodes.push(node);
        node = this.tree.end[node]!;
      } else node = this.within(node, this.tree.end[node]!) === 0 ? this.tree.end[node]! : node + 1;
    }
    return nodes;
  }

  /** The matches below a node with an estimate above 0, the largest first; and how many they are. */
  inOrder(below: number, sums: Sums): { nodes: number[]; all: number } {
    let nodes: number[] = [];
    for (let node = below; node < this.tree.end[below]!; node++) {
      if (this.is(node) && sums.samples[node]! > 0) nodes.push(node);
    }
    const all = nodes.length;
    if (all > VISITED) {
      const least = Float64Array.from(nodes, (node) => sums.estimate[node]!).sort().at(-VISITED)!;
      nodes = nodes.filter((node) => sums.estimate[node]! >= least);
    }
    nodes.sort((a, b) => sums.estimate[b]! - sums.estimate[a]! || a - b);
    return { nodes: nodes.slice(0, VISITED), all };
  }
}

/** The nodes whose displayed name of the function, its file or the type matches. */
export function find(texts: Texts, data: Data, tree: Tree, matches: Matcher): Found {
  const fileMatches = texts.files.map(matches);
  const { file } = data.header.functions;
  const functionMatches = texts.names.map((name, at) => matches(name) || fileMatches[file[at]!]!);
  const typeMatches = texts.types.map(matches);
  const groupMatches = tree.groups.map(matches);
  return new Found(tree, (node) => {
    if (tree.what[node] === What.Root) return false;
    const all = tree.what[node] === What.Type ? typeMatches : tree.what[node] === What.Group ? groupMatches : functionMatches;
    // The second root is the same function as the first.
    return tree.callers !== node && all[tree.id[node]!]!;
  });
}
