// Names and estimates as text, for the graph, the tooltip and the table.

import { type Data, Kind } from "./data.ts";
import { bytes, count, seconds, visible } from "./format.ts";
import type { Interval, Moments } from "./interval.ts";
import { type Measure, intervals } from "./selection.ts";
import { type Tree, What } from "./tree.ts";

const KINDS: Record<number, string> = {
  [Kind.Jit]: "compiled by the JIT",
  [Kind.Native]: "native code",
  [Kind.Gc]: "garbage collector",
  [Kind.Note]: "added by the profiler",
};

/** The last part of a path. A package's file has its folder too: many files are called `__init__.py`. */
export function shortened(file: string): string {
  const parts = file.split(/[/\\]/);
  const folders = /^__(init|main)__\.py$/.test(parts.at(-1)!) ? 2 : 1;
  return parts.slice(-folders).join("/");
}

export class Texts {
  /** Names of functions, of files and of types as they are shown, by number. */
  readonly names: string[];
  readonly files: string[];
  readonly types: string[];
  readonly #interval: (moments: Moments) => Interval | null;

  constructor(
    private readonly data: Data,
    readonly measure: Measure,
    /** Whether figures are of half of the samples. */
    readonly half = false,
  ) {
    this.#interval = intervals(data, measure, half);
    const { functions, files, types } = data.header;
    this.names = functions.name.map(visible);
    this.files = files.map(visible);
    this.types = types.map((name) => visible(name || "unknown type"));
  }

  /** The same names with another measure, or of other samples. */
  with(measure: Measure, half: boolean): Texts {
    return measure === this.measure && half === this.half ? this : new Texts(this.data, measure, half);
  }

  /** The name of a node, and its place in the source. */
  label(tree: Tree, node: number): { name: string; place: string } {
    const id = tree.id[node]!;
    if (tree.what[node] === What.Root) return { name: "all", place: "" };
    if (tree.what[node] === What.Type) return { name: this.types[id]!, place: "" };
    if (tree.what[node] === What.Group) return { name: tree.groups[id]!, place: "" };
    const { functions } = this.data.header;
    const file = this.files[functions.file[id]!]!;
    const line = tree.line[node]! || functions.line[id]!;
    const short = shortened(file);
    if (tree.kind[node] === Kind.Note && file === "") return { name: this.names[id]!, place: "" };
    return { name: this.names[id] || "(no name)", place: line > 0 ? `${short}:${line}` : short };
  }

  /** Details for the tooltip: the whole path with the line, and the kind of code. */
  more(tree: Tree, node: number): string {
    if (tree.what[node] === What.Root || tree.what[node] === What.Group) return "";
    if (tree.what[node] === What.Type) return "type of the allocated objects";
    const { functions } = this.data.header;
    const file = this.files[functions.file[tree.id[node]!]!]!;
    const line = tree.line[node]! || functions.line[tree.id[node]!]!;
    return [line > 0 ? `${file}:${line}` : file, KINDS[tree.kind[node]!]].filter(Boolean).join(" · ");
  }

  /** A value of the measure. */
  value(value: number): string {
    return { bytes, allocations: count, time: seconds }[this.measure](value);
  }

  /** An estimate with its 95 % interval. */
  estimate(moments: Moments): { value: string; interval: string } {
    return { value: this.amount(moments.estimate), interval: this.interval(moments) };
  }

  /** A value of the measure, with its unit or the word "allocations". */
  amount(value: number): string {
    if (this.measure !== "allocations") return this.value(value);
    return `${count(value)} allocation${Math.round(value) === 1 ? "" : "s"}`;
  }

  /** The 95 % interval alone. */
  interval(moments: Moments): string {
    const limits = this.#interval(moments);
    return limits ? `${this.value(limits.low)} – ${this.value(limits.high)}` : "exact";
  }
}
