// Which records count, and as what.

import { type Data, Fate } from "./data.ts";

export type Measure = "bytes" | "allocations" | "time";
export type Objects = "all" | "died-young" | "survived" | "still-alive";

/** Which fates count under each choice of objects, by the fate's number. */
const COUNTED: Record<Objects, (fate: number) => boolean> = {
  all: () => true,
  "died-young": (fate) => fate === Fate.DiedYoung,
  survived: (fate) => fate !== Fate.DiedYoung,
  "still-alive": (fate) => fate === Fate.StillLive,
};

/** Called with a record's number, its value, the value's variance, its samples, and its fate, -1 for a time sample. */
type Visit = (record: number, value: number, variance: number, samples: number, fate: number) => void;

/** A choice of records. */
export class Selection {
  constructor(
    readonly measure: Measure,
    readonly objects: Objects,
    /** The first part of time, and the one after the last. */
    readonly from: number,
    readonly to: number,
  ) {}

  /** Visits every record that counts. */
  each(data: Data, visit: Visit): void {
    if (this.measure === "time") this.#eachTime(data, visit);
    else this.#eachAllocation(data, visit);
  }

  #eachTime(data: Data, visit: Visit): void {
    const each = 1 / (data.header.meta.cpu_hz ?? 1);
    const { bucket, count, length } = data.cpu;
    for (let i = 0; i < length; i++) {
      if (bucket[i]! < this.from || bucket[i]! >= this.to) continue;
      const samples = count[i]!;
      // A time sample stands for one period of the clock; their number varies like a Poisson count.
      visit(i, samples * each, samples * each * each, samples, -1);
    }
  }

  #eachAllocation(data: Data, visit: Visit): void {
    const { shapes } = data;
    const values = this.measure === "bytes" ? shapes.bytes : shapes.allocations;
    const variances = this.measure === "bytes" ? shapes.bytesVariance : shapes.allocationsVariance;
    const { bucket, count, fate, shape, length } = data.allocations;
    const counted = [0, 1, 2, 3].map(COUNTED[this.objects]);
    for (let i = 0; i < length; i++) {
      if (bucket[i]! < this.from || bucket[i]! >= this.to || !counted[fate[i]!]) continue;
      const samples = count[i]!;
      visit(i, samples * values[shape[i]!]!, samples * variances[shape[i]!]!, samples, fate[i]!);
    }
  }
}

/** The value in each part of time: what the timeline draws as bars. */
export function byTime(data: Data, selection: Selection): Float64Array {
  const values = new Float64Array(data.header.buckets);
  const everywhere = new Selection(selection.measure, selection.objects, 0, data.header.buckets);
  const bucket = selection.measure === "time" ? data.cpu.bucket : data.allocations.bucket;
  everywhere.each(data, (record, value) => {
    values[bucket[record]!]! += value;
  });
  return values;
}
