// Names and estimates in words, for the graph, the box and the table.

import { type Data, Kind } from "./data.ts";
import { bytes, count, seconds, visible } from "./format.ts";
import { interval } from "./interval.ts";
import type { Measure } from "./selection.ts";
import { type Tree, What } from "./tree.ts";

const KINDS: Record<number, string> = {
  [Kind.Jit]: "compiled by the JIT",
  [Kind.Native]: "native code",
  [Kind.Gc]: "garbage collector",
  [Kind.Note]: "note of the profiler",
};

export class Texts {
  /** Names of functions, of files and of types as they are shown, by number. */
  readonly names: string[];
  readonly files: string[];
  readonly types: string[];

  constructor(
    private readonly data: Data,
    readonly measure: Measure,
  ) {
    const { functions, files, types } = data.header;
    this.names = functions.name.map(visible);
    this.files = files.map(visible);
    this.types = types.map((name) => visible(name || "type not known"));
  }

  /** With another measure. */
  with(measure: Measure): Texts {
    return measure === this.measure ? this : new Texts(this.data, measure);
  }

  /** The name of a node, and the place in the source. */
  label(tree: Tree, node: number): { name: string; place: string } {
    const id = tree.id[node]!;
    if (tree.what[node] === What.Root) return { name: "all", place: "" };
    if (tree.what[node] === What.Type) return { name: this.types[id]!, place: "" };
    const { functions } = this.data.header;
    const file = this.files[functions.file[id]!]!;
    const line = tree.line[node]! || functions.line[id]!;
    const short = file.slice(Math.max(file.lastIndexOf("/"), file.lastIndexOf("\\")) + 1);
    return { name: this.names[id] || "(no name)", place: line > 0 ? `${short}:${line}` : short };
  }

  /** What else is worth saying of a node: the whole path, and what runs. */
  more(tree: Tree, node: number): string {
    if (tree.what[node] === What.Root) return "";
    if (tree.what[node] === What.Type) return "type of what was allocated";
    const file = this.files[this.data.header.functions.file[tree.id[node]!]!]!;
    return [file, KINDS[tree.kind[node]!]].filter(Boolean).join(" · ");
  }

  /** A value of the measure. */
  value(value: number): string {
    return { bytes, allocations: count, time: seconds }[this.measure](value);
  }

  /** An estimate with its 95 % interval; exact figures have none. */
  estimate(value: number, variance: number): { value: string; interval: string } {
    const shown = this.measure === "allocations" ? `${count(value)} allocation${Math.round(value) === 1 ? "" : "s"}` : this.value(value);
    return { value: shown, interval: this.interval(value, variance) };
  }

  /** The 95 % interval alone. */
  interval(value: number, variance: number): string {
    if (!(variance > 0)) return value > 0 ? "exact" : "";
    const { low, high } = interval(value, variance);
    return `${this.value(low)} – ${this.value(high)}`;
  }
}
