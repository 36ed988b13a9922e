// How long bars are: a few huge ones are cut, so that the others can be compared.

/** A bar so many times as long as the longest of the others is cut. */
const HUGE = 4;
/** At most this share of the bars is cut, or one of them; and none if there are fewer than this. */
const FEW = 0.03;
const FEWEST = 5;
/** A cut bar is so much longer than the longest of the others. */
const BEYOND = 1.3;

/** The scale of some bars: the value that is as long as there is room, and the value above which bars are cut. */
export interface Scale {
  full: number;
  /** The longest bar that is whole. */
  longest: number;
}

/** The scale of bars of these values. */
export function scaleOf(values: ArrayLike<number>): Scale {
  const sorted = Float64Array.from(values).filter((value) => value > 0).sort().reverse();
  const most = sorted[0] ?? 0;
  if (sorted.length < FEWEST) return { full: most, longest: most };
  const cut = Math.max(1, Math.floor(FEW * sorted.length));
  for (let at = 1; at <= cut; at++) {
    // All bars before this one are huge beside it.
    if (sorted[at - 1]! > HUGE * sorted[at]!) return { full: BEYOND * sorted[at]!, longest: sorted[at]! };
  }
  return { full: most, longest: most };
}
