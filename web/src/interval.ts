// 95 % intervals: the same formulas as crates/report's `estimate`, where they are explained.

import jStat from "jstat";

/** Sums over samples of one quantity, from which its interval follows. */
export interface Moments {
  /** The estimate. */
  estimate: number;
  /** What was seen itself, without what it stands for. */
  seen: number;
  variance: number;
  /** The third central moment. */
  third: number;
}

export interface Interval {
  low: number;
  high: number;
}

/** The share of the probability outside the interval, on each side. */
const TAIL = 0.025;
/** The 97.5 % point of the normal distribution. */
const Z = 1.959963984540054;
/** Above this count an approximation is good enough. */
const MANY = 200;
/** So little that it matters only where there is nothing else. */
const FAINT = 1e-6;

/** The interval of an estimate. `typical`: what one sample stands for, where these samples do not tell. */
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

/** The mid-P interval of the mean of a Poisson distribution of which `count` was seen. */
function poissonInterval(count: number): [number, number] {
  if (count > MANY) {
    const shape = count + 0.5;
    const root = (z: number) => shape * (1 - 1 / (9 * shape) + z / (3 * Math.sqrt(shape))) ** 3;
    return [root(-Z), root(Z)];
  }
  // P(shape, mean), where a distribution of shape 0 has all at 0.
  const lower = (shape: number, mean: number) => (shape > 1e-9 ? jStat.lowRegGamma(shape, mean) : 1);
  const below = (mean: number) => (lower(count, mean) + lower(count + 1, mean)) / 2;
  const most = count + 10 + 6 * Math.sqrt(count);
  return [
    bisect(0, Math.max(count, 1e-9), (mean) => below(mean) < TAIL),
    bisect(count, most, (mean) => 1 - below(mean) > TAIL),
  ];
}

/** Where `holds` changes from true to false; `low` if it is false throughout. */
function bisect(low: number, high: number, holds: (middle: number) => boolean): number {
  for (let step = 0; step < 48; step++) {
    const middle = (low + high) / 2;
    if (middle > 0 && holds(middle)) low = middle;
    else high = middle;
  }
  return low;
}
