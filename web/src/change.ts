// What became of a node between the two sides of a difference.

import { type Theme, grey } from "./colour.ts";
import type { MomentColumns } from "./moments.ts";

/** What a change is, from the largest growth to the largest shrinking. */
export const CHANGES = ["doubled, or new", "grew", "may be chance", "shrank", "halved, or gone"];
const CHANCE = 2;

/** Red grew, blue shrank. */
export function changeColours(theme: Theme): string[] {
  return theme === "light"
    ? ["oklch(0.74 0.15 27)", "oklch(0.85 0.09 27)", grey(theme), "oklch(0.85 0.07 250)", "oklch(0.72 0.14 250)"]
    : ["oklch(0.47 0.18 27)", "oklch(0.36 0.08 27)", grey(theme), "oklch(0.36 0.06 250)", "oklch(0.46 0.15 250)"];
}

/** The place in CHANGES of what became of a node. */
export function changeOf(before: MomentColumns, after: MomentColumns, node: number): number {
  const old = before.estimate[node]!;
  const now = after.estimate[node]!;
  // Three standard deviations, for there are many boxes. Enough for a colour; `nthbyte diff` has the exact test.
  const deviation = Math.sqrt(before.variance[node]! + after.variance[node]!);
  if (old === now || Math.abs(now - old) < 3 * deviation) return CHANCE;
  if (now > old) return now >= 2 * old ? 0 : 1;
  return now <= old / 2 ? 4 : 3;
}
