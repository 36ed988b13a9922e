// Chooses the records that count, and their values.

import { type Data, Fate, knownFates } from "./data.ts";
import { type Interval, type Moments, interval, weightOf } from "./interval.ts";
import { MomentColumns } from "./moments.ts";

export type Measure = "bytes" | "allocations" | "time";
export type Objects = "all" | "died-young" | "survived" | "still-alive";

/** For each choice of objects, whether a fate counts, by the fate's number. */
export const COUNTED: Record<Objects, (fate: number) => boolean> = {
  all: () => true,
  "died-young": (fate) => fate === Fate.DiedYoung,
  survived: (fate) => fate !== Fate.DiedYoung,
  "still-alive": (fate) => fate === Fate.StillLive,
};

/** The choices of objects, and why some cannot be made. */
export function objectOptions(data: Data, measure: Measure) {
  const fates = knownFates(data.allocations);
  const time = measure === "time" ? "Time samples have no fate" : undefined;
  // On PyPy only survival of a minor collection is known, not what is alive at the end.
  const notKnown = fates.has(Fate.Survived) && !fates.has(Fate.StillLive) ? "Not recorded on PyPy, which records only survival of the first minor collection" : undefined;
  return [
    { value: "all" as const, label: "All allocated" },
    { value: "died-young" as const, label: "Died young", unavailable: time },
    { value: "survived" as const, label: "Survived", unavailable: time },
    { value: "still-alive" as const, label: "Alive at the end", unavailable: time ?? notKnown },
  ];
}

/** What the chosen figures are. */
export function whatCounts(measure: Measure, objects: Objects): string {
  if (measure === "time") return "CPU time";
  return { all: "Allocated", "died-young": "Died young", survived: "Survived", "still-alive": "Alive at the end" }[objects];
}

/** A selection of records. */
export interface Selection {
  readonly measure: Measure;
  readonly objects: Objects;
  /** The first part of time, and the end: the part after the last. */
  readonly from: number;
  readonly to: number;
}

/** The value in each part of time. The timeline draws them as bars. */
export function byTime(data: Data, measure: Measure, objects: Objects): Float64Array {
  const values = new Float64Array(data.header.buckets);
  if (measure === "time") {
    const { bucket, count, length } = data.cpu;
    for (let i = 0; i < length; i++) values[bucket[i]!]! += count[i]! * data.tick;
    return values;
  }
  const { bucket, count, fate, shape, length } = data.allocations;
  const each = data.shapes[measure].estimate;
  const counted = [0, 1, 2, 3].map(COUNTED[objects]);
  for (let i = 0; i < length; i++) {
    if (counted[fate[i]!]) values[bucket[i]!]! += count[i]! * each[shape[i]!]!;
  }
  return values;
}

/** The number of time samples is a Poisson count, so each sample adds the moments of one. */
export function timeSample(each: number): MomentColumns {
  const columns = new MomentColumns(1);
  columns.estimate[0] = each;
  columns.variance[0] = each ** 2;
  columns.third[0] = 2 * each ** 3;
  columns.samples[0] = 1;
  return columns;
}

/** Computes the intervals of a measure; null if figures are exact. */
export function intervals(data: Data, measure: Measure): (moments: Moments) => Interval | null {
  const { meta, samples } = data.header;
  if (measure === "time") return (moments) => interval(moments, data.tick);
  if (meta.distances === "every") return () => null;
  const longest = Math.max(meta.period, 1);
  if (measure === "bytes") return (moments) => interval(moments, longest);
  const { typical, heavier } = allocationWeights(data, samples, longest);
  return (moments) => interval(moments, Math.max(weightOf(moments) * heavier, typical));
}

/** The allocations that a sample stands for, averaged over allocations, and how many times heavier one could have been than those that
 * were drawn, because of the longest period. */
function allocationWeights(data: Data, samples: number, longest: number): { typical: number; heavier: number } {
  if (samples === 0) return { typical: longest / 64, heavier: 1 };
  let all = 0;
  let squares = 0;
  const bytes = { estimate: 0, seen: 0, variance: 0, third: 0 };
  const { shape, count, length } = data.allocations;
  for (let i = 0; i < length; i++) {
    const at = shape[i]!;
    all += count[i]! * data.shapes.allocations.estimate[at]!;
    squares += count[i]! * data.shapes.allocations.variance[at]!;
    bytes.variance += count[i]! * data.shapes.bytes.variance[at]!;
    bytes.third += count[i]! * data.shapes.bytes.third[at]!;
  }
  const drawn = weightOf(bytes);
  const heavier = drawn > 0 ? Math.max(longest / drawn, 1) : 1;
  return { typical: (heavier * squares) / all || longest / 64, heavier };
}
