// An entry of the legend.

import type { Swatch } from "./colour.ts";
import { clipped, percent, visible } from "./format.ts";

/** What allocates less itself has boxes, because of what it calls, but no share worth a figure. */
const LEAST_SAID = 0.0005;

/** A colour, its meaning, and its share. */
export function swatchItem(swatch: Swatch): HTMLElement {
  const item = document.createElement("span");
  item.className = "swatched";
  item.role = "listitem";
  const patch = document.createElement("i");
  patch.className = "swatch";
  patch.style.background = swatch.colour;
  const name = document.createElement("bdi");
  name.textContent = clipped(visible(swatch.label), 32);
  item.append(patch, name, swatch.share >= LEAST_SAID ? ` ${percent(swatch.share, 1)}` : "");
  return item;
}
