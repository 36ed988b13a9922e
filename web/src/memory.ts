// What the resident set was made of: a bar and a table for one moment, and a slider for the others.

import type { MemoryMoment, MemoryRow } from "./data.ts";
import { bytes, clipped, percent, seconds, visible } from "./format.ts";

/** Colours of the groups, which are alike on light and dark ground. */
const COLOURS: Record<string, string> = {
  "Python, live": "#4c78c9",
  "Python, free": "#93b4e6",
  native: "#3f9d7c",
  program: "#b08948",
  nthbyte: "#9a6fc0",
  unknown: "#c2574f",
};

/** Holders with at least this share of the resident set are named. */
const WORTH_NAMING = 0.005;

function byId<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/**
 * Shows the panel, if the profile says what memory was made of. The result shows the moment nearest to a time in seconds; null: the peak
 * of RSS.
 */
export function describeMemory(moments: MemoryMoment[] | undefined): (time: number | null) => void {
  const card = byId("memory-card");
  if (!moments || moments.length === 0) return () => {};
  card.hidden = false;
  const slider = byId<HTMLInputElement>("memory-moment");
  slider.max = String(moments.length - 1);
  const peak = moments.findIndex(({ at }) => at === "peak");
  const first = peak >= 0 ? peak : moments.length - 1;
  slider.hidden = moments.length < 2;
  const show = () => showMoment(moments[Number(slider.value)]!, slider);
  slider.addEventListener("input", show);
  return (time) => {
    const far = ({ at_nanos }: MemoryMoment) => Math.abs(at_nanos / 1e9 - time!);
    const nearest = moments.reduce((best, moment, at) => (far(moment) < far(moments[best]!) ? at : best), 0);
    slider.value = String(time === null ? first : nearest);
    show();
  };
}

function showMoment(moment: MemoryMoment, slider: HTMLInputElement): void {
  const peak = isMissedPeak(moment) ? "in the largest reading, " : "at its peak, ";
  const when = moment.at === "peak" ? peak : moment.at === "end" ? "at the end, " : "";
  const time = seconds(moment.at_nanos / 1e9);
  const text = `${bytes(moment.rss)} ${when || "at "}${time}`;
  byId("memory-when").textContent = text;
  slider.setAttribute("aria-valuetext", text);
  const groups = new Map<string, number>();
  for (const row of moment.rows) groups.set(row.group, (groups.get(row.group) ?? 0) + row.bytes.estimate);
  // A row below zero may be larger than all others of its group.
  for (const [group, size] of groups) groups.set(group, Math.max(size, 0));
  const whole = [...groups.values()].reduce((sum, size) => sum + size, 0);
  byId("memory-bar").replaceChildren(
    ...[...groups].filter(([, size]) => size > 0).map(([group, size]) => {
      const part = document.createElement("span");
      part.style.width = `${(100 * size) / whole}%`;
      part.style.background = COLOURS[group] ?? "gray";
      part.title = `${group}: ${bytes(size)}`;
      return part;
    }),
  );
  const lines: HTMLElement[] = [];
  const most = Math.max(...groups.values(), 1);
  let last = "";
  for (const row of moment.rows) {
    if (row.group !== last) {
      last = row.group;
      lines.push(line([last, bytes(groups.get(last)!), percent(groups.get(last)!, moment.rss), ""], groups.get(last)! / most, COLOURS[last]));
    }
    if (row.name !== row.group && row.key !== "agent") lines.push(line([row.name, bytes(row.bytes.estimate), share(row, moment.rss), interval(row)], row.bytes.estimate / most));
  }
  byId("memory-table").querySelector("tbody")!.replaceChildren(...lines);
  byId("memory-notes").replaceChildren(...sentences(moment).map((sentence) => {
    const paragraph = document.createElement("p");
    paragraph.textContent = sentence;
    return paragraph;
  }));
}

/** A row with a bar behind its bytes, of this part of the longest one. */
function line(cells: [string, string, string, string], bar: number, colour?: string): HTMLElement {
  const row = document.createElement("tr");
  const name = document.createElement("th");
  name.scope = "row";
  if (colour) {
    const patch = document.createElement("i");
    patch.className = "swatch";
    patch.style.background = colour;
    name.append(patch, " ");
    row.className = "group";
  }
  name.append(cells[0]);
  row.append(name, ...cells.slice(1).map((cell, at) => {
    const data = document.createElement("td");
    data.textContent = cell;
    if (at === 0) {
      data.className = "share";
      data.style.setProperty("--share", String(Math.max(bar, 0)));
    }
    return data;
  }));
  return row;
}

function share({ bytes: { estimate } }: MemoryRow, rss: number): string {
  return estimate < 0 ? `−${percent(-estimate, rss)}` : percent(estimate, rss);
}

/** The interval of an estimate; nothing for a count. */
function interval({ bytes: { low, high }, counted }: MemoryRow): string {
  return counted || !(high > low) ? "" : `${bytes(low)} – ${bytes(high)}`;
}

/** Whether no reading is near the largest resident set. The one that is shown may be a hundredth below the largest. */
function isMissedPeak({ at, rss, peak_rss: peak }: MemoryMoment): boolean {
  return at === "peak" && peak !== null && peak > 1.02 * rss;
}

function sentences(moment: MemoryMoment): string[] {
  const sentences: string[] = [];
  const { holders } = moment;
  if (holders && holders.free >= WORTH_NAMING * moment.rss) {
    const named = holders.holders.filter(({ free }) => free.estimate >= WORTH_NAMING * moment.rss).slice(0, 5);
    sentences.push(`${bytes(holders.free)} of free blocks are in pages that live blocks hold${named.length > 0 ? ". Held by what survives of:" : "."}`);
    for (const { place, free, live, held_by: held } of named) {
      const at = place.line > 0 ? `${place.file}:${place.line}` : place.file;
      sentences.push(`${clipped(visible(`${place.function} ${at}`), 200)}: ${bytes(free.estimate)} (${bytes(free.low)} – ${bytes(free.high)}), by ${bytes(live.estimate)} live${held ? `, held by ${clipped(visible(held.holder), 200)}` : ""}`);
    }
  }
  if (moment.swapped > 0) sentences.push(`${bytes(moment.swapped)} more were swapped out.`);
  return [...sentences, ...moment.notes.map((note) => `Note: ${visible(note)}`)];
}
