// What the graph can be arranged by, beside calls: labels, threads and types; and the part of the data that has one of their values.

import type { Option } from "./controls.ts";
import type { Changes, Data, Numbers, Side } from "./data.ts";
import { visible } from "./format.ts";

/** The top of the graph: calls alone, the type of the objects, or the value of the key with this number. */
export type By = "calls" | "type" | `${number}`;

/** The value of a key that is shown alone: `key:value`, where the number after the last value stands for none; empty for all. */
export type Only = "" | `${number}:${number}`;

/** What stands in place of a value. The same in crates/profile. */
const NONE = { label: "[no label]", thread: "[no name]" };

/** By key: the names of its values, and after the last one what stands for none. */
export function valueNames({ header }: Data, key: number): string[] {
  const { values, thread } = header.groups!.keys[key]!;
  return [...values.map(visible), thread ? NONE.thread : NONE.label];
}

/** The names at the top, by number. */
export function groupNames(data: Data, by: By): string[] {
  if (by === "calls") return [];
  if (by === "type") return data.header.types.map((name) => visible(name || "unknown type"));
  const key = data.header.groups!.keys[Number(by)]!;
  return valueNames(data, Number(by)).map((name, at) => (at < key.values.length && !key.thread ? `${visible(key.name)}=${name}` : name));
}

/** The choices of what the graph is arranged by. */
export function byOptions({ header }: Data, time: boolean): Option<By>[] {
  const keys = (header.groups?.keys ?? []).map((key, at) => ({ value: `${at}` as By, label: visible(key.name) }));
  const unavailable = time ? "Time samples have no type" : undefined;
  return [{ value: "calls", label: "Calls" }, { value: "type", label: "Type", unavailable }, ...keys];
}

/** What the page begins with. */
export function firstBy({ header }: Data): By {
  const at = (header.groups?.keys ?? []).findIndex((key) => !key.thread && key.name === header.by);
  return at < 0 ? "calls" : `${at}`;
}

/** By stack: the group that it begins with. */
function groupsOf({ header, stackParent, stackFrame, frameFunction }: Data): Numbers {
  const numbers = new Map(header.groups!.functions.flatMap((name, group) => (name === null ? [] : [[name, group] as const])));
  const groups = new Uint32Array(stackParent.length);
  for (let stack = 1; stack < groups.length; stack++) {
    groups[stack] = numbers.get(frameFunction[stackFrame[stack]!]!) ?? groups[stackParent[stack]!]!;
  }
  return groups;
}

/** By stack: the number of its value of a key. */
export function valuesOf(data: Data, key: number): Numbers {
  const { keys, values } = data.header.groups!;
  const none = keys[key]!.values.length;
  return groupsOf(data).map((group) => values[group]![key] ?? none);
}

/** Whether a function stands for a group, by function. */
export function areGroups({ header }: Data): Uint8Array {
  const are = new Uint8Array(header.functions.name.length);
  for (const at of header.groups?.functions ?? []) if (at !== null) are[at] = 1;
  return are;
}

/** The data of one value of a key: the records of other values are left out. */
export function narrowed(data: Data, only: Only): Data {
  if (only === "") return data;
  const [key, value] = only.split(":").map(Number);
  const values = valuesOf(data, key!);
  const part = <T extends { length: number; stack: Numbers }>(records: T): T => {
    const kept = Uint32Array.from(records.stack.keys()).filter((at) => values[records.stack[at]!] === value);
    const column = (of: Numbers | Int32Array) => {
      const made = of instanceof Int32Array ? new Int32Array(kept.length) : new Uint32Array(kept.length);
      kept.forEach((from, to) => (made[to] = of[from]!));
      return made;
    };
    const columns = Object.entries(records as Record<string, number | Numbers | Int32Array>);
    const parts = columns.map(([name, of]) => [name, typeof of === "number" ? kept.length : column(of)]);
    return Object.fromEntries(parts) as T;
  };
  const changes = (of: Changes | null) => of && part(of);
  const side = (of: Side) => ({ allocations: part(of.allocations), cpu: part(of.cpu) });
  return {
    ...data,
    ...side(data),
    base: data.base && { ...data.base, ...side(data.base) },
    peak: changes(data.peak),
    asked: changes(data.asked),
    changes: changes(data.changes),
  };
}
