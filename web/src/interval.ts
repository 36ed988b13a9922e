// 95 % intervals. The formulas are those of crates/report/src/estimate.rs, which explains them.

import jStat from "jstat";

/** Sums over samples of one quantity. The interval is computed from them. */
export interface Moments {
  /** The estimate. */
  estimate: number;
  /** The sampled objects alone, without weights. */
  seen: number;
  variance: number;
  /** The third central moment. */
  third: number;
}

export interface Interval {
  low: number;
  high: number;
}

/** The probability outside the interval, on each side. */
const TAIL = 0.025;
/** The 97.5 % point of the normal distribution. */
const Z = 1.959963984540054;
/** Above this count an approximation is used. */
const MANY = 200;
/** Added to the moments: so small that it matters only if they are zero. */
const FAINT = 1e-6;

/** The interval of an estimate. `typical` is the weight of one sample, used if these samples do not determine it. */
export function interval(moments: Moments, typical: number): Interval {
  const variance = moments.variance + FAINT * typical ** 2;
  const third = moments.third + 2 * FAINT * typical ** 3;
  const weight = third / (2 * variance);
  const count = variance / (weight * weight);
  const certain = moments.estimate - count * weight;
  const [low, high] = poissonInterval(count);
  return {
    low: Math.min(Math.max(certain + weight * low, moments.seen), moments.estimate),
    high: Math.max(certain + weight * high, moments.estimate),
  };
}

/** The mid-P interval of the mean of a Poisson distribution, given the observed `count`. */
function poissonInterval(count: number): [number, number] {
  if (count > MANY) {
    const shape = count + 0.5;
    const root = (z: number) => shape * (1 - 1 / (9 * shape) + z / (3 * Math.sqrt(shape))) ** 3;
    return [root(-Z), root(Z)];
  }
  // P(shape, mean); a distribution of shape 0 is always 0.
  const lower = (shape: number, mean: number) => (shape > 1e-9 ? jStat.lowRegGamma(shape, mean) : 1);
  const below = (mean: number) => (lower(count, mean) + lower(count + 1, mean)) / 2;
  const most = count + 10 + 6 * Math.sqrt(count);
  return [
    bisect(0, Math.max(count, 1e-9), (mean) => below(mean) < TAIL),
    bisect(count, most, (mean) => 1 - below(mean) > TAIL),
  ];
}

/** The point at which `holds` changes from true to false; `low` if it is never true. */
function bisect(low: number, high: number, holds: (middle: number) => boolean): number {
  for (let step = 0; step < 48; step++) {
    const middle = (low + high) / 2;
    if (middle > 0 && holds(middle)) low = middle;
    else high = middle;
  }
  return low;
}
