// The header and the notes of the page: what was run and recorded, and what the page leaves out.

import type { Data, Header } from "./data.ts";
import { bytes, clipped, grouped, percent, seconds, visible } from "./format.ts";

function byId(id: string): HTMLElement {
  return document.getElementById(id)!;
}

/** The smallest share that is written with digits. */
const LEAST_SHARE = 1e-3;

/** Why events are lost, by what they are. */
const LOST = "the program produced them faster than they could be written.";
const WHY_LOST: Record<string, string> = {
  "time samples": "the stack could not be read at that moment, or they came faster than they could be written.",
};

/** Writes the command, the facts and the notes. */
export function describeSession({ header }: Data): void {
  const { meta } = header;
  const command = meta.command.map(visible).join(" ") || "a Python program";
  document.title = `${clipped(command, 80)} – nthbyte`;
  byId("command").textContent = clipped(command, 300);
  byId("command").title = clipped(command, 2000);
  const shortest = meta.shortest_period === undefined ? "" : `${bytes(meta.shortest_period)} to `;
  const period = shortest + bytes(meta.period);
  const every = meta.distances === "every" ? "every allocation recorded" : `one sample in ${period}`;
  // Each stays in one line.
  const facts = [
    visible(meta.interpreter),
    every,
    `${grouped(header.samples)} samples`,
    seconds(header.duration),
    startOf(meta.started_unix_nanos),
  ].map((fact) => fact.replaceAll(" ", "\u00a0"));
  if (header.base) {
    const { command, duration, samples, runs } = header.base;
    const several = runs > 1 ? `, mean of ${runs} runs` : "";
    facts.push(`against ${clipped(command.map(visible).join(" "), 80)} (${grouped(samples)} samples, ${seconds(duration)}${several})`);
    if ((header.runs ?? 1) > 1) facts.push(`mean of ${header.runs} runs`);
  }
  byId("facts").textContent = facts.filter(Boolean).join("  ·  ");
  byId("timeline").setAttribute("aria-valuemax", String(header.buckets));
  byId("help-estimate").textContent =
    meta.distances === "every"
      ? "Every allocation was recorded, so the figures are exact."
      : `The figures are estimates from samples, on average one in ${period} of allocated memory. In 95 of 100 runs the true value lies within the 95 % interval.`;
  notes(header);
    pruned(header);
}

/** The line that says what the page leaves out, and how to see it. */
function pruned(header: Header): void {
  const line = byId("pruned");
  line.hidden = header.pruned === undefined;
  if (!header.pruned) return;
  const { stacks, kept, share, samples } = header.pruned;
  const command = (words: string) => {
    const code = document.createElement("code");
    code.textContent = words;
    return code;
  };
  line.replaceChildren(
    `Pruned: ${grouped(stacks - kept)} of ${grouped(stacks)} stacks, each with less than ${percent(Math.max(share, LEAST_SHARE), 1)} of every view, both of the session and of each 16th of it. ` +
      `They are in boxes named “small calls” (${percent(samples, 1)} of the samples), and the table leaves them out. All other sums are complete. `,
    ...["All of them: ", command("nthbyte tree"), " or ", command("nthbyte summary"), ". "],
    ...["More of them, of a shorter time: ", command("nthbyte flamegraph --since … --until …"), "."],
  );
}

function notes(header: Header): void {
  const notes = (header.meta.notes ?? []).map(visible);
  for (const { what, events } of header.lost) {
    const lost = events === 1 ? `${what.replace(/s$/, "")} was` : `${what} were`;
    notes.push(`${grouped(events)} ${lost} lost: ${WHY_LOST[what] ?? LOST}`);
  }
  if (!header.complete) notes.push("The profile is incomplete: the session did not end normally.");
  for (const what of header.damage.slice(0, 5)) notes.push(`Part of the file could not be read: ${visible(what)}`);
  if (header.groups?.merged) notes.push("There are many values of labels: those with the fewest samples are together in “(other)”.");
  if (header.buckets < 256) {
    notes.push(`There are many different samples, so a range of time has steps of ${seconds(header.duration / header.buckets)}.`);
  }
  const { alive } = header;
  if (alive && alive.parts < header.buckets) {
    notes.push(`Much comes and goes, so moments are ${seconds(header.duration / alive.parts)} apart.`);
  }
  for (const [where, of] of [["a moment", alive], ["the peak", alive?.peak], ["the chosen time", alive?.asked]] as const) {
    if (of?.means) notes.push(`Of what was alive at ${where}, sizes of objects of the same stack, type and fate count as their mean.`);
    if (of?.carried) notes.push(`Of what was alive at ${where}, what is small counts as “smaller allocations” of its callers. All sums are complete.`);
  }
  if (header.coarse) {
    notes.push(`There are many different samples, so ${visible(header.coarse)} are merged, and count as their mean.`);
  }
  byId("notes").replaceChildren(
    ...notes.map((note) => {
      const line = document.createElement("p");
      line.textContent = clipped(note, 1000);
      return line;
    }),
  );
}

/** The start of the session, formatted; empty if it is unknown. */
function startOf(nanos: number): string {
  if (!(nanos > 0)) return "";
  return new Date(nanos / 1e6).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}
