// Chooses the records that count, and their values.

import { type AllocationRecords, type Changes, type Data, Fate, knownFates } from "./data.ts";
import { seconds } from "./format.ts";
import { type Interval, type Moments, interval, weightOf } from "./interval.ts";
import { MomentColumns } from "./moments.ts";

export type Measure = "bytes" | "allocations" | "time";
/** What counts: what was allocated in a range of time, or what was alive at a moment. */
export type Objects = Flow | "still-alive" | AtMoment;
type Flow = "all" | "died-young" | "survived";
/** At the peak; at the moment that the page was made for; at one that the reader chooses. */
type AtMoment = "peak" | "asked" | "moment";

/** Whether a moment is shown, so that a range of time means nothing. */
export function isAtMoment(objects: Objects): objects is AtMoment {
  return objects === "peak" || objects === "asked" || objects === "moment";
}


/** For each choice of objects, whether a fate counts, by the fate's number. */
export const COUNTED: Record<Objects, (fate: number) => boolean> = {
  all: () => true,
  "died-young": (fate) => fate === Fate.DiedYoung,
  survived: (fate) => fate !== Fate.DiedYoung,
  "still-alive": (fate) => fate === Fate.StillLive,
  peak: () => true,
  asked: () => true,
  moment: () => true,
};

/** The choices of objects, and why some cannot be made. */
export function objectOptions(data: Data, measure: Measure) {
  const fates = knownFates(data.allocations);
  const time = measure === "time" ? "Time samples have no fate" : undefined;
  // On PyPy only survival of a minor collection is known, not live memory at the end.
  const notKnown = fates.has(Fate.Survived) && !fates.has(Fate.StillLive) ? "Not recorded on PyPy, which records only survival of the first minor collection" : undefined;
  const { alive, base } = data.header;
  const noMoment = time ?? notKnown ?? (alive ? undefined : base ? "A page of a difference shows no moment" : "This profile has no allocation samples");
  const asked = alive?.asked ? [{ value: "asked" as const, label: `Alive at ${seconds(alive.asked.time)}`, unavailable: time }] : [];
  return [
    { value: "all" as const, label: "All allocated" },
    { value: "died-young" as const, label: "Died young", unavailable: time },
    { value: "survived" as const, label: "Survived", unavailable: time },
    { value: "peak" as const, label: "Alive at the peak", unavailable: noMoment },
    ...asked,
    { value: "moment" as const, label: "Alive at a moment", unavailable: noMoment },
    { value: "still-alive" as const, label: "Alive at the end", unavailable: time ?? notKnown },
  ];
}

/** What the chosen figures are. */
export function whatCounts(measure: Measure, objects: Objects): string {
  if (measure === "time") return "CPU time";
  if (isAtMoment(objects)) return objects === "peak" ? "Alive at the peak" : "Alive";
  return { all: "Allocated", "died-young": "Died young", survived: "Survived", "still-alive": "Alive at the end" }[objects];
}

/** The moment that is shown, in seconds; null if none is. */
export function momentOf({ header }: Data, { objects, moment }: Selection): number | null {
  if (objects === "moment") return (moment * header.duration) / header.buckets;
  return isAtMoment(objects) ? (header.alive?.[objects]?.time ?? null) : null;
}

/** A selection of records. */
export interface Selection {
  readonly measure: Measure;
  readonly objects: Objects;
  /** The first part of time, and the end: the part after the last. */
  readonly from: number;
  readonly to: number;
  /** The number of parts of time before the moment, if one is chosen. */
  readonly moment: number;
}

/** The value in each part of time. The timeline draws them as bars. */
export function byTime(data: Data, measure: Measure, objects: Objects): Float64Array {
  const values = new Float64Array(data.header.buckets);
  if (measure === "time") {
    const { bucket, count, length } = data.cpu;
    for (let i = 0; i < length; i++) values[bucket[i]!]! += count[i]! * data.tick;
    return values;
  }
  if (isAtMoment(objects)) return aliveByTime(data, measure);
  const { bucket, count, fate, shape, length } = data.allocations;
  const each = data.shapes[measure].estimate;
  const counted = [0, 1, 2, 3].map(COUNTED[objects]);
  for (let i = 0; i < length; i++) {
    if (counted[fate[i]!]) values[bucket[i]!]! += count[i]! * each[shape[i]!]!;
  }
  return values;
}

/** Live memory at the end of each part of time; where it is not known, as at the end before. */
function aliveByTime({ header, allocations, changes, shapes }: Data, measure: "bytes" | "allocations"): Float64Array {
  const values = new Float64Array(header.buckets);
  const each = shapes[measure].estimate;
  const step = header.buckets / (header.alive?.parts ?? header.buckets);
  const add = ({ bucket, count, fate, shape, length }: AllocationRecords | Changes, all: boolean) => {
    for (let i = 0; i < length; i++) {
      // Live memory at the end of a coarse part counts from its last fine one on.
      const known = Math.floor(bucket[i]! / step) * step + step - 1;
      if (all || fate[i] === Fate.StillLive) values[known]! += count[i]! * each[shape[i]!]!;
    }
  };
  add(allocations, false);
  if (changes) add(changes, true);
  for (let part = 1; part < values.length; part++) values[part]! += values[part - 1]!;
  // Rounding errors of what came and went.
  return values.map((value) => Math.max(value, 0));
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

/** Computes the intervals of a measure; null if figures are exact. Of a half of the samples, each stands for twice as much. */
export function intervals(data: Data, measure: Measure, half: boolean): (moments: Moments) => Interval | null {
  const { meta, samples } = data.header;
  if (measure === "time") return (moments) => interval(moments, data.tick);
  if (meta.distances === "every") return () => null;
  const longest = Math.max(meta.period, 1);
  const times = half ? 2 : 1;
  if (measure === "bytes") return (moments) => interval(moments, times * longest);
  const { typical, heavier } = allocationWeights(data, samples, longest);
  return (moments) => interval(moments, Math.max(weightOf(moments) * heavier, times * typical));
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
