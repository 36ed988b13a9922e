// The search for functions, files and types.

import type { Data } from "./data.ts";
import { MomentColumns } from "./moments.ts";
import type { Texts } from "./texts.ts";
import { type Totals, type Tree, What } from "./tree.ts";

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

/** By node: 1 if the displayed name of its function, its file or its type matches. */
export function find(texts: Texts, data: Data, tree: Tree, matches: Matcher): Uint8Array {
  const fileMatches = texts.files.map(matches);
  const { file } = data.header.functions;
  const functionMatches = texts.names.map((name, at) => matches(name) || fileMatches[file[at]!]!);
  const typeMatches = texts.types.map(matches);
  const found = new Uint8Array(tree.length);
  for (let node = 1; node < tree.length; node++) {
    const all = tree.what[node] === What.Type ? typeMatches : functionMatches;
    found[node] = all[tree.id[node]!] ? 1 : 0;
  }
  return found;
}

/** The total of the matching nodes below one node. A match inside another match counts once. */
export function foundTotal(tree: Tree, totals: Totals, found: Uint8Array, below: number): MomentColumns {
  const whole = new MomentColumns(1);
  const todo = [below];
  for (let node = todo.pop(); node !== undefined; node = todo.pop()) {
    if (totals.total.samples[node] === 0) continue;
    if (found[node]) {
      whole.add(0, totals.total, node);
      continue;
    }
    for (let at = tree.firstChild[node]!; at < tree.firstChild[node + 1]!; at++) todo.push(tree.child[at]!);
  }
  return whole;
}
