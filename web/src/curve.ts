// The curve of live bytes, with the band of its interval.

import type { Point } from "./chart.ts";
import { interval } from "./interval.ts";

/** The points of a curve of live bytes. The last one of a part of time is its end's. */
export function curvePoints(curve: number[], duration: number, weight: number): Point[] {
  const points = curve.map((level, at): Point => {
    const x = (duration * (at + 1)) / curve.length;
    if (!(weight > 0)) return { x, y: level, low: level, high: level };
    // So many samples of this weight; a Poisson count.
    const moments = { estimate: level, seen: 0, variance: level * weight, third: 2 * level * weight ** 2 };
    return { x, y: level, ...interval(moments, weight) };
  });
  return [{ x: 0, y: 0, low: 0, high: 0 }, ...points];
}
