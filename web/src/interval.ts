// 95 % intervals. The formulas are from crates/report/src/interval.rs, which explains them.

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
/** Below this count there is nothing. */
const NONE = 1e-9;

/** So many samples of such a weight, beside the certain bytes. */
interface Gamma {
  certain: number;
  count: number;
  weight: number;
}

/** The weight of these samples, if all have the same; 0 without samples. */
export function weightOf({ variance, third }: Moments): number {
  return variance > 0 ? Math.max(third / (2 * variance), 1e-3 * Math.sqrt(variance)) : 0;
}

function gamma(moments: Moments): Gamma {
  const weight = weightOf(moments);
  const count = weight > 0 ? moments.variance / weight ** 2 : 0;
  return { certain: moments.estimate - count * weight, count, weight };
}

/** The interval of an estimate. `heaviest` is the largest weight that a sample could have had. */
export function interval(moments: Moments, heaviest: number): Interval {
  const { estimate, seen, variance, third } = moments;
  const weight = Math.max(heaviest, weightOf(moments));
  const drawn = gamma(moments);
  if (heaviest <= drawn.weight && drawn.count > MANY) {
    const limit = (z: number) => drawn.certain + drawn.weight * many(drawn.count, z);
    return { low: Math.max(limit(-Z), seen), high: limit(Z) };
  }
  const more = gamma({
    estimate: estimate + weight,
    seen,
    variance: variance + weight ** 2,
    third: third + 2 * weight ** 3,
  });
  const above = (value: number) => (probability(drawn, value) + probability(more, value)) / 2;
  const least = Math.min(drawn.certain, more.certain);
  const most = estimate + 12 * weight + 10 * Math.sqrt(variance);
  const low = bisect(least, estimate, (value) => above(value) > 1 - TAIL);
  const high = bisect(estimate, most, (value) => above(value) > TAIL);
  return {
    low: Math.min(Math.max(low, seen), estimate),
    // Without a sample, half of an exponential distribution.
    high: Math.max(high, -Math.log(2 * TAIL) * weight, estimate),
  };
}

/** The limit of the mean of a Poisson distribution, given a high count. */
function many(count: number, z: number): number {
  const shape = count + 0.5;
  return shape * (1 - 1 / (9 * shape) + z / (3 * Math.sqrt(shape))) ** 3;
}

/** The probability of a value above this one. */
function probability({ certain, count, weight }: Gamma, value: number): number {
  const distance = value - certain;
  if (distance <= 0) return 1;
  if (count < NONE) return 0;
  const x = distance / weight;
  if (count <= MANY) return 1 - jStat.lowRegGamma(count, x);
  const root = Math.cbrt(x / count) - 1 + 1 / (9 * count);
  return jStat.erfc((root * 3 * Math.sqrt(count)) / Math.SQRT2) / 2;
}

/** The point at which `holds` changes from true to false; `low` if it is never true. */
function bisect(low: number, high: number, holds: (middle: number) => boolean): number {
  for (let step = 0; step < 48; step++) {
    const middle = (low + high) / 2;
    if (holds(middle)) low = middle;
    else high = middle;
  }
  return low;
}
