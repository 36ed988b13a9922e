// 95 % intervals: the same formula as crates/report's `estimate`.

/** The standard normal distribution's 97.5th percentile. */
const Z = 1.959963984540054;

export interface Interval {
  low: number;
  high: number;
}

/** The interval of an estimate with this variance. */
export function interval(estimate: number, variance: number): Interval {
  const half = Z * Math.sqrt(variance);
  return { low: Math.max(0, estimate - half), high: estimate + half };
}
