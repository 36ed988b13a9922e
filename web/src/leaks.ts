// The page of `nthbyte leaks --page`: the curves of what accumulates, and how long its objects live.

import { type Axes, type Point, chart } from "./chart.ts";
import { curvePoints } from "./curve.ts";
import { unpacked } from "./data.ts";
import { binaryTicks, bytes, clipped, grouped, ofAxis, percent, rate, seconds, visible } from "./format.ts";
import { toggleTheme } from "./theme.ts";

interface Estimate {
  estimate: number;
  low: number;
  high: number;
}

interface Place {
  function: string;
  file: string;
  line: number;
}

/** The parts of docs/leaks.md's JSON form that are shown. */
interface Finding {
  verdict: string;
  place: Place;
  types: { what: string; share: number }[];
  callers: Place[];
  held: Estimate;
  samples: number;
  grown: Estimate;
  grown_nanos: number;
  per_minute: Estimate | null;
  kept: number;
  freed_at_end: boolean;
  held_by: HeldBy | null;
  adjusted_p: number;
  more_minutes: number | null;
  curve: number[];
  survival: { age_nanos: number; share: number }[];
}

interface HeldBy {
  holder: string;
  what: string;
  share: number;
  also: string[];
  since: { at_nanos: number; elements: [number, number] | null; from: Estimate; to: Estimate; grows: boolean } | null;
}

interface Holder {
  place: Place;
  verdict: string;
  held: Estimate;
  curve: number[];
}

interface Report {
  profile: string;
  command: string[];
  interpreter: string;
  pid: number;
  duration_nanos: number;
  period: number;
  exact: boolean;
  samples: number;
  live: Estimate;
  findings: Finding[];
  undecided: Finding[];
  others: Holder[];
  others_left_out: number;
  repeats: string;
  unnoticed: number;
  unnoticed_per_minute: number | null;
  limits: string[];
}

/** What the verdicts mean: crates/report/src/leaks/verdict.rs. */
const VERDICTS: Record<string, string> = {
  leak: "leaks",
  grew: "grew while it ran: one pass cannot tell a leak from a result that is being built",
  "not-enough-data": "may leak: there is not enough data",
  "in-progress": "work in progress: only running calls hold it",
  reused: "may be memory that CPython keeps for reuse",
  suspect: "makes objects that become old; whether they are freed is not recorded",
  slowing: "grows less and less",
  "levelled-off": "has levelled off",
  replaced: "stays full: a cache or a pool",
  "start-up": "allocated at start-up",
  imported: "imported modules",
  burst: "allocated in a burst",
  shrank: "has shrunk",
  "too-few": "has too few samples to tell",
};

function element(tag: string, name: string, text = ""): HTMLElement {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

function where({ file, line }: Place): string {
  return clipped(visible(line > 0 ? `${file}:${line}` : file), 300);
}

function between({ low, high }: Estimate, exact: boolean): string {
  return exact ? "exact" : `95 %: ${bytes(low)} – ${bytes(high)}`;
}

function figure(title: string, points: Point[], axes: Axes): HTMLElement {
  const made = element("figure", "chart");
  made.append(element("figcaption", "", title));
  const box = element("div", "chart-box");
  made.append(box);
  chart(box, points, axes);
  return made;
}

function live(curve: number[], duration: number, weight: number, label: string): HTMLElement {
  const points = curvePoints(curve, duration, weight);
  const last = points.at(-1)!;
  const title = weight > 0 ? "Alive, with its 95 % interval" : "Alive";
  return figure(title, points, {
    x: (time) => ofAxis(seconds(time)),
    y: (size) => ofAxis(bytes(size)),
    ticks: binaryTicks,
    label: `Live bytes of ${label} over ${seconds(duration)}: ${bytes(last.y)} at the end`,
  });
}

function survival(finding: Finding, label: string): HTMLElement {
  const points = finding.survival.map(({ age_nanos, share }) => ({ x: age_nanos / 1e9, y: share, low: share, high: share }));
  const whole = [{ x: 0, y: 1, low: 1, high: 1 }, ...points];
  return figure("Share of its bytes that lives longer than an age", whole, {
    x: (time) => ofAxis(seconds(time)),
    y: (share) => percent(share, 1),
    ticks: () => [0.25, 0.5, 0.75, 1],
    most: 1,
    label: `Survival of ${label}: ${percent(whole.at(-1)!.y, 1)} live longer than ${seconds(whole.at(-1)!.x)}`,
  });
}

/** Who holds it: `Held by app.CACHE, dict of 41,000 Session, growing: it had 12,300 at 18.0 s`. */
function heldBy({ holder, what, share, also, since }: HeldBy): string {
  const part = share > 0.95 ? "Held by" : `${percent(share, 1)} held by`;
  const parts = [`${part} ${clipped(visible(holder), 300)}, ${clipped(visible(what), 200)}`];
  if (since?.grows === true) {
    const { elements } = since;
    const had = elements !== null && elements[0] < elements[1] ? `had ${grouped(elements[0])}` : `held ${bytes(since.from.estimate)}`;
    parts.push(`growing: it ${had} at ${seconds(since.at_nanos / 1e9)}`);
  }
  const others = also.length > 0 ? `; also by ${also.map((path) => clipped(visible(path), 300)).join(" and ")}` : "";
  return `${parts.join(", ")}${others}`;
}

function findingCard(finding: Finding, report: Report): HTMLElement {
  const duration = report.duration_nanos / 1e9;
  const card = element("section", "card finding");
  const name = clipped(visible(finding.place.function), 200);
  card.setAttribute("aria-label", name);
  const head = element("div", "card-head");
  head.append(element("h2", "", name), element("span", `verdict ${finding.verdict}`, VERDICTS[finding.verdict] ?? finding.verdict));
  card.append(head, element("p", "faint", where(finding.place)));
  const weight = report.exact || finding.samples === 0 ? 0 : finding.held.estimate / finding.samples;
  const growth = finding.per_minute ?? finding.grown;
  const size = Math.abs(growth.estimate);
  const speed = finding.per_minute === null ? `${bytes(size)} in ${seconds(finding.grown_nanos / 1e9)}` : rate(size);
  const figures = element("p", "figures");
  figures.append(
    element("b", "", `${bytes(finding.held.estimate)} alive at the end`),
    ` ${between(finding.held, report.exact)} · `,
    element("b", "", `${growth.estimate < 0 ? "−" : "+"}${speed}`),
    ` ${between(growth, report.exact)} · ${percent(finding.kept, 1)} of its allocations kept · ${grouped(finding.samples)} samples`,
  );
  card.append(figures);
  if (finding.freed_at_end) card.append(element("p", "faint", "It was freed as the program ended; the figures are those just before."));
  if (finding.more_minutes !== null) {
    card.append(element("p", "faint", `${seconds(60 * finding.more_minutes)} more would decide.`));
  }
  if (finding.held_by !== null) card.append(element("p", "held", heldBy(finding.held_by)));
  if (finding.types.length > 0) {
    const types = finding.types.slice(0, 5).map(({ what, share }) => `${clipped(visible(what), 60)} ${percent(share, 1)}`);
    card.append(element("p", "faint", `Types: ${types.join(", ")}`));
  }
  if (finding.callers.length > 0) {
    const callers = finding.callers.slice(0, 4).map((caller) => `${clipped(visible(caller.function), 80)} (${where(caller)})`);
    card.append(element("p", "faint", `Called by ${callers.join(", by ")}`));
  }
  const charts = element("div", "charts");
  charts.append(live(finding.curve, duration, weight, name));
  if (finding.survival.length > 0) charts.append(survival(finding, name));
  card.append(charts);
  return card;
}

function holderCard(holder: Holder, report: Report): HTMLElement {
  const card = element("section", "card holder");
  const name = clipped(visible(holder.place.function), 200);
  card.setAttribute("aria-label", name);
  const head = element("div", "card-head");
  head.append(element("h3", "", name), element("span", "verdict", VERDICTS[holder.verdict] ?? holder.verdict));
  card.append(head, element("p", "faint", `${where(holder.place)} · ${bytes(holder.held.estimate)} alive at the end, ${between(holder.held, report.exact)}`));
  const weight = report.exact ? 0 : Math.max(report.period, 1);
  card.append(live(holder.curve, report.duration_nanos / 1e9, weight, name));
  return card;
}

function show(main: HTMLElement, report: Report, several: boolean): void {
  if (several) {
    main.append(element("h2", "process", `${clipped(visible(report.profile), 200)} · process ${report.pid}`));
  }
  const judged = report.repeats === "rounds";
  const small = report.unnoticed_per_minute === null ? `${bytes(report.unnoticed)} in ${seconds((0.9 * report.duration_nanos) / 1e9)}` : rate(report.unnoticed_per_minute);
  const unnoticed = judged ? ` A leak below ${small} may go unnoticed.` : "";
  const found = report.findings.length;
  const needs = report.repeats === "collects"
    ? "the program waits, but keeps much of what it allocates, as one that collects a result."
    : "that needs 20 seconds of a program that repeats its work, and waits in between.";
  const none = judged ? "No leak was found." : `There is no verdict on leaks: ${needs}`;
  const said = found === 0 ? none : `${found} ${found === 1 ? "place leaks" : "places leak"}.`;
  main.append(element("p", "said", `${said} ${bytes(report.live.estimate)} are alive at the end (${between(report.live, report.exact)}).${unnoticed}`));
  for (const limit of report.limits) main.append(element("p", "faint", `Note: ${visible(limit)}.`));
  main.append(...report.findings.map((finding) => findingCard(finding, report)));
  if (report.undecided.length > 0) main.append(element("h2", "process", "Undecided"));
  main.append(...report.undecided.map((finding) => findingCard(finding, report)));
  if (report.others.length > 0) main.append(element("h2", "process", "Holds memory, and is no leak"));
  const others = element("div", "holders");
  others.append(...report.others.map((holder) => holderCard(holder, report)));
  main.append(others);
  if (report.others_left_out > 0) main.append(element("p", "faint", `${grouped(report.others_left_out)} smaller ones are left out.`));
}

async function start(): Promise<void> {
  const main = document.getElementById("main")!;
  const holder = document.getElementById("data")!;
  try {
    const text = new TextDecoder().decode(await unpacked(holder.textContent ?? ""));
    const { profiles } = JSON.parse(text) as { profiles: Report[] };
    holder.remove();
    main.hidden = false;
    const [first] = profiles;
    const command = first?.command.map(visible).join(" ") || "a Python program";
    document.title = `${clipped(command, 80)} – leaks – nthbyte`;
    document.getElementById("command")!.textContent = `${clipped(command, 300)}: leaks`;
    const facts = first ? [visible(first.interpreter), `${grouped(first.samples)} samples`, seconds(first.duration_nanos / 1e9)] : [];
    document.getElementById("facts")!.textContent = facts.join("  ·  ");
    for (const report of profiles) show(main, report, profiles.length > 1);
  } catch (error) {
    const notice = document.getElementById("notice")!;
    notice.hidden = false;
    notice.textContent = `This page could not be opened: ${error instanceof Error ? error.message : String(error)}`;
    throw error;
  }
}

document.getElementById("theme-button")!.addEventListener("click", toggleTheme);
document.addEventListener("keydown", (event) => {
  if (event.key === "t" && !event.altKey && !event.ctrlKey && !event.metaKey) toggleTheme();
});
void start();
