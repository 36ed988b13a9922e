// Reads the profile's data. docs/flamegraph.md describes them, and crates/report/src/flamegraph writes them.

import type { Held } from "./held.ts";
import type { Moments } from "./interval.ts";
import { MomentColumns } from "./moments.ts";

/** The version of the data that this page reads. */
const VERSION = 2;

/** A column of integers, of the narrowest type that holds the largest one. */
export type Numbers = Uint32Array;

interface ColumnPlace {
  name: string;
  encoding: "plain" | "delta" | "signed" | "real";
  count: number;
  bytes: number;
}

export interface Meta {
  nthbyte: string;
  interpreter: string;
  executable: string;
  command: string[];
  pid: number;
  started_unix_nanos: number;
  period: number;
  /** The shortest period, if there are several. */
  shortest_period?: number;
  distances: "exponential" | "fixed" | "every";
  method: string;
  cpu_hz?: number;
  notes?: string[];
}

export interface Timeline {
  time: number[];
  heap_used: (number | null)[];
  heap_reserved: (number | null)[];
  rss: (number | null)[];
  /** How much of the time a JIT compiler took: of each of some equal parts of the session, from 0 to 1; of the whole; of the first second. */
  compiling?: { parts: number[]; whole: number; first: number };
}

export interface Interval {
  estimate: number;
  low: number;
  high: number;
}

/** A row of what the resident set was made of. */
export interface MemoryRow {
  key: string;
  name: string;
  group: string;
  bytes: Interval;
  /** Whether it is a count, not an estimate. */
  counted: boolean;
}

/** What the resident set was made of at one moment: the JSON of `nthbyte memory`, docs/memory.md. */
export interface MemoryMoment {
  at: "peak" | "end" | "time";
  at_nanos: number;
  rss: number;
  /** The largest resident set of the session; null if it is not known. */
  peak_rss: number | null;
  swapped: number;
  rows: MemoryRow[];
  holders?: {
    free: number;
    holders: { place: { function: string; file: string; line: number }; free: Interval; live: Interval; held_by: { holder: string; what: string; share: number } | null }[];
  };
  notes: string[];
}

/** How figures of what was alive are coarser than the samples. */
interface Coarse {
  /** Sizes of objects of one stack, type and fate count as their mean. */
  means: boolean;
  /** Small calls count as their callers'. */
  carried: boolean;
}

/** A moment of which it is known exactly what was alive. */
export interface DescribedSnapshot extends Coarse {
  /** Seconds. */
  time: number;
  /** Half of the samples say what was alive, each for twice as much: the others found the moment. */
  half: boolean;
}

/** What the page knows of what was alive. */
interface DescribedAlive extends Coarse {
  /** Parts of time at whose ends it is known what was alive. */
  parts: number;
  /** When most was alive. */
  peak?: DescribedSnapshot;
  /** The moment that the page was made for. */
  asked?: DescribedSnapshot;
}

/** What the profile is compared with. */
export interface Base {
  command: string[];
  interpreter: string;
  duration: number;
  samples: number;
  runs: number;
  cpu_hz?: number;
}

/** The calls that are merged into their callers' boxes named "small calls". */
export interface Pruned {
  /** Numbers of distinct stacks of the profile, and of those that are kept. */
  stacks: number;
  kept: number;
  /** Every call that is merged had less than this share of the figures in each view of the whole session. */
  share: number;
  /** The share of all samples that belong to boxes of small calls. */
  samples: number;
}

/** What samples can be shown apart by: labels, and threads. The outermost frame of a stack is its group's function. */
export interface Groups {
  keys: { name: string; thread: boolean; values: string[] }[];
  /** By group: its function; null if the page has no stack of it. */
  functions: (number | null)[];
  /** By group: the index of its value of each key, if it has one. */
  values: (number | null)[][];
  /** Whether there were too many, so that some are together. */
  merged: boolean;
}

export interface Header {
  version: number;
  meta: Meta;
  /** Who holds what was alive, where a snapshot says it. */
  held?: Held;
  duration: number;
  complete: boolean;
  allocated: number | null;
  samples: number;
  lost: { what: string; events: number }[];
  damage: string[];
  buckets: number;
  /** The sizes that are merged, in words; null if none are. */
  coarse: string | null;
  fates: string[];
  files: string[];
  /** The names of distributions by their folders' names, where they are different. */
  distributions?: Record<string, string>;
  functions: { name: string[]; file: number[]; line: number[] };
  types: string[];
  timeline: Timeline;
  /** Missing where the times of frees are not known, and on a page of a difference. */
  alive?: DescribedAlive;
  /** What the page shows first, if that is not all that was allocated. */
  opens?: "peak" | "time" | "end";
  /** The groups that stacks begin with, by labels and threads. Missing if there is one only. */
  groups?: Groups;
  /** The key of them that the graph is arranged by at first. */
  by?: string;
  /** What the resident set was made of, in the order of time. */
  memory?: MemoryMoment[];
  /** What was merged into boxes of small calls, where the profile is too large for a page. */
  pruned?: Pruned;
  /** On a page of a difference: the number of runs that the figures are the mean of. */
  runs?: number;
  base?: Base;
  columns: ColumnPlace[];
}

/** The fates that occur. */
export function knownFates({ fate }: AllocationRecords): Set<number> {
  const occurs = new Uint8Array(FATES);
  for (let i = 0; i < fate.length; i++) occurs[fate[i]!] = 1;
  return new Set([0, 1, 2, 3].filter((at) => occurs[at] === 1));
}

/** The numbers of fates. The header has their names in this order. */
export const Fate = { DiedYoung: 0, Freed: 1, Survived: 2, StillLive: 3 } as const;
export const FATES = 4;

/** What runs in a frame: crates/profile's `FrameKind`. */
export const Kind = { Interpreted: 0, Jit: 1, Native: 2, Gc: 3, Note: 4 } as const;

/** Records: each counts the samples that are equal in all columns. */
export interface Records {
  length: number;
  stack: Numbers;
  bucket: Numbers;
  count: Numbers | Int32Array;
}

export interface AllocationRecords extends Records {
  type: Numbers;
  fate: Numbers;
  shape: Numbers;
}

/** How many more samples are alive at the end of a part of time than at its start; or, in a snapshot, how many are. */
export interface Changes extends Records {
  type: Numbers;
  fate: Numbers;
  shape: Numbers;
  /** Some are below zero. */
  count: Int32Array;
}

/** By shape: the moments that one sample adds. */
export interface Shapes {
  bytes: MomentColumns;
  allocations: MomentColumns;
}

/** The records of one profile, or of one side of a difference. */
export interface Side {
  shapes: Shapes;
  allocations: AllocationRecords;
  cpu: Records;
  /** The seconds that a time sample stands for: a period of the clock; less where figures are means over runs. */
  tick: number;
}

export interface Data extends Side {
  header: Header;
  /** By stack from 1; entry 0 is the root. Parents come before their children. */
  stackParent: Numbers;
  stackFrame: Numbers;
  frameFunction: Numbers;
  frameLine: Numbers;
  frameKind: Numbers;
  /** The old side of a difference. */
  base: Side | null;
  /** What was alive at the peak, and at the moment that the page was made for; and what comes and goes. The parts of time are the records'. */
  peak: Changes | null;
  asked: Changes | null;
  changes: Changes | null;
}

/** Reads the data from the base64 in the page. */
export async function read(base64: string): Promise<Data> {
  return parse(await unpacked(base64));
}

/** Decodes and inflates a block of data. */
export async function unpacked(base64: string): Promise<Uint8Array> {
  const stream = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  // Newer browsers decode it themselves, several times as fast.
  const native = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;
  if (native) return native(base64);
  const text = atob(base64.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

function parse(bytes: Uint8Array): Data {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const headerEnd = 4 + view.getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, headerEnd))) as Header;
  if (header.version !== VERSION) {
    throw new Error(`This page reads version ${VERSION} of the data, but the data have version ${header.version}.`);
  }
  const places = new Map<string, { at: number; column: ColumnPlace }>();
  let at = headerEnd;
  for (const column of header.columns) {
    places.set(column.name, { at, column });
    at += column.bytes;
  }
  const place = (name: string) => {
    const found = places.get(name);
    if (!found) throw new Error(`The page's data have no column ${name}.`);
    return found;
  };
  const whole = (name: string, before: number[] = []) => {
    const { at, column } = place(name);
    return wholeNumbers(bytes, at, column, before);
  };
  const real = (name: string) => {
    const { at, column } = place(name);
    // A typed array must start at a multiple of 8, so the bytes are copied.
    return new Float64Array(bytes.slice(at, at + column.bytes).buffer);
  };
  const moments = (prefix: string, quantity: "bytes" | "allocations") => {
    const sizes = whole(`${prefix}shape.size`);
    const probability = real(`${prefix}shape.probability`);
    const estimate = real(`${prefix}shape.${quantity}.estimate`);
    const first = sizes.length;
    const columns = new MomentColumns(first + estimate.length);
    sizes.forEach((size, at) => columns.set(at, ofSample(quantity === "bytes" ? size : 1, probability[at]!)));
    columns.estimate.set(estimate, first);
    columns.seen.set(real(`${prefix}shape.${quantity}.seen`), first);
    columns.variance.set(real(`${prefix}shape.${quantity}.variance`), first);
    columns.third.set(real(`${prefix}shape.${quantity}.third`), first);
    columns.samples.fill(1);
    return columns;
  };
  const changes = (prefix: string, scale: number): Changes => {
    const stack = whole(`${prefix}stack`);
    return {
      length: stack.length,
      stack,
      type: whole(`${prefix}type`),
      fate: whole(`${prefix}fate`),
      shape: whole(`${prefix}shape`),
      bucket: whole(`${prefix}part`).map((part) => part * scale),
      count: Int32Array.from(whole(`${prefix}change`), (zigzag) => (zigzag >>> 1) ^ -(zigzag & 1)),
    };
  };
  const side = (prefix: string, hz = 1, runs = 1): Side => {
    const cpuStack = whole(`${prefix}cpu.stack`);
    const allocationStack = whole(`${prefix}allocation.stack`);
    return {
      tick: 1 / hz / runs,
      shapes: { bytes: moments(prefix, "bytes"), allocations: moments(prefix, "allocations") },
      allocations: {
        length: allocationStack.length,
        stack: allocationStack,
        type: whole(`${prefix}allocation.type`),
        fate: whole(`${prefix}allocation.fate`),
        shape: whole(`${prefix}allocation.shape`),
        bucket: whole(`${prefix}allocation.bucket`),
        count: whole(`${prefix}allocation.count`),
      },
      cpu: {
        length: cpuStack.length,
        stack: cpuStack,
        bucket: whole(`${prefix}cpu.bucket`),
        count: whole(`${prefix}cpu.count`),
      },
    };
  };
  const { alive, buckets } = header;
  return {
    header,
    peak: alive?.peak ? changes("peak.", 1) : null,
    asked: alive?.asked ? changes("asked.", 1) : null,
    changes: alive ? changes("change.", buckets / alive.parts) : null,
    stackParent: whole("stack.parent", [0]),
    stackFrame: whole("stack.frame", [0]),
    frameFunction: whole("frame.function"),
    frameLine: whole("frame.line"),
    frameKind: whole("frame.kind"),
    ...side("", header.meta.cpu_hz, header.runs),
    base: header.base ? side("base.", header.base.cpu_hz, header.base.runs) : null,
  };
}

/** What a sample of this value adds that has this probability: see crates/report/src/estimate.rs. */
function ofSample(value: number, p: number): Moments {
  const estimate = value / p;
  const variance = estimate ** 2 * (1 - p);
  return { estimate, seen: value, variance, third: variance * estimate * (2 - p) };
}

/** Decodes LEB128, and adds up differences. `before` has numbers that the result begins with. */
function wholeNumbers(bytes: Uint8Array, start: number, column: ColumnPlace, before: number[]): Numbers {
  const numbers = new Uint32Array(before.length + column.count);
  numbers.set(before);
  let at = start;
  let last = 0;
  const delta = column.encoding === "delta";
  for (let i = before.length; i < numbers.length; i++) {
    let number = bytes[at++]!;
    // Most numbers have one byte.
    if (number >= 0x80) {
      number &= 0x7f;
      let byte = 0x80;
      // A difference may have 33 bits; JavaScript's shifts have 32.
      for (let scale = 128; byte >= 0x80; scale *= 128) {
        byte = bytes[at++]!;
        number += (byte & 0x7f) * scale;
      }
    }
    if (delta) {
      last += number % 2 === 0 ? number / 2 : -(number + 1) / 2;
      numbers[i] = last;
    } else {
      numbers[i] = number;
    }
  }
  return numbers;
}
