// Moments of many entries, stored as columns.

import type { Moments } from "./interval.ts";

export class MomentColumns {
  readonly estimate: Float64Array;
  readonly seen: Float64Array;
  readonly variance: Float64Array;
  readonly third: Float64Array;
  /** The number of samples. */
  readonly samples: Float64Array;

  constructor(readonly length: number) {
    this.estimate = new Float64Array(length);
    this.seen = new Float64Array(length);
    this.variance = new Float64Array(length);
    this.third = new Float64Array(length);
    this.samples = new Float64Array(length);
  }

  /** A copy. */
  clone(): MomentColumns {
    const copy = new MomentColumns(this.length);
    for (const column of ["estimate", "seen", "variance", "third", "samples"] as const) {
      copy[column].set(this[column]);
    }
    return copy;
  }

  /** Adds an entry of other columns to an entry of these, multiplied by `times`. */
  add(to: number, from: MomentColumns, at: number, times = 1): void {
    this.estimate[to]! += times * from.estimate[at]!;
    this.seen[to]! += times * from.seen[at]!;
    this.variance[to]! += times * from.variance[at]!;
    this.third[to]! += times * from.third[at]!;
    this.samples[to]! += times * from.samples[at]!;
  }

  /** One entry. */
  get(at: number): Moments {
    return {
      estimate: this.estimate[at]!,
      seen: this.seen[at]!,
      variance: this.variance[at]!,
      third: this.third[at]!,
    };
  }
}
