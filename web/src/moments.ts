// Moments of many entries, stored as columns.

import type { Moments } from "./interval.ts";

export class MomentColumns {
  readonly seen: Float64Array;
  readonly variance: Float64Array;
  readonly third: Float64Array;

  /** The estimates and the numbers of samples may be columns that exist. */
  constructor(
    readonly length: number,
    readonly estimate: Float64Array = new Float64Array(length),
    readonly samples: Float64Array = new Float64Array(length),
  ) {
    this.seen = new Float64Array(length);
    this.variance = new Float64Array(length);
    this.third = new Float64Array(length);
  }

  /** Sets one entry. */
  set(at: number, { estimate, seen, variance, third }: Moments): void {
    this.estimate[at] = estimate;
    this.seen[at] = seen;
    this.variance[at] = variance;
    this.third[at] = third;
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
