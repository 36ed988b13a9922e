// The page: reads the data, keeps the user's choices, and updates each part of the page.

import { colouring, type ColourBy, fateColours, type Theme } from "./colour.ts";
import { Choice } from "./controls.ts";
import { type Data, Fate, read } from "./data.ts";
import { bytes, clipped, count, percent, seconds, visible } from "./format.ts";
import { Graph, type Orientation } from "./graph.ts";
import { type Matcher, find, foundTotal, matcher } from "./search.ts";
import { type Measure, type Objects, Selection, byTime } from "./selection.ts";
import { type TableOf, rowsOf } from "./table.ts";
import { TableView } from "./tableview.ts";
import { Texts } from "./texts.ts";
import { Timeline } from "./timeline.ts";
import * as tip from "./tip.ts";
import { type Shown, type Totals, type Tree, merge, totals } from "./tree.ts";
import { currentTheme, toggleTheme } from "./theme.ts";

function byId<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** The state of the page: the user's choices and what is computed from them. */
class Page {
  readonly #graph: Graph;
  readonly #timeline: Timeline;
  readonly #table: TableView;
  readonly #measure: Choice<Measure>;
  readonly #objects: Choice<Objects>;
  readonly #orientation: Choice<Orientation>;
  readonly #frames: Choice<"function" | "line">;
  readonly #colour: Choice<ColourBy>;
  readonly #tableOf: Choice<TableOf>;
  readonly #side: Choice<Shown>;
  readonly #search = byId<HTMLInputElement>("search");
  readonly #tip = byId("tip");
  readonly #trees = new Map<boolean, Tree>();
  #texts: Texts;
  #theme: Theme = currentTheme();
  #range: [number, number];
  #tree: Tree;
  #totals: Totals;
  #found: Uint8Array | null = null;
  #pending = 0;

  constructor(private readonly data: Data) {
    const { header } = data;
    this.#range = [0, header.buckets];
    const measure: Measure = header.samples > 0 || header.meta.cpu_hz === undefined ? "bytes" : "time";
    const none = "This profile has no allocation samples";
    const noTime = data.cpu.length === 0 ? "No time samples: run with --cpu HZ to record them" : undefined;
    const noBytes = header.samples === 0 ? none : undefined;
    this.#measure = new Choice<Measure>(
      byId("measure"),
      [
        { value: "bytes", label: "Bytes", unavailable: noBytes },
        { value: "allocations", label: "Allocations", unavailable: noBytes },
        { value: "time", label: "Time", unavailable: noTime },
      ],
      measure,
      () => this.#measured(),
    );
    this.#objects = new Choice<Objects>(byId("objects"), this.#objectOptions(measure), "all", () => this.#recount());
    this.#orientation = new Choice<Orientation>(
      byId("orientation"),
      [{ value: "flame", label: "Flame" }, { value: "icicle", label: "Icicle" }],
      "flame",
      () => this.#show(),
    );
    this.#frames = new Choice<"function" | "line">(
      byId("frames"),
      [{ value: "function", label: "Function" }, { value: "line", label: "Line" }],
      "function",
      () => this.#rebuild(),
    );
    this.#colour = new Choice<ColourBy>(
      byId("colour"),
      [
        ...(data.base ? [{ value: "change" as const, label: "Change" }] : []),
        { value: "module", label: "Module" },
        { value: "type", label: "Type" },
        { value: "fate", label: "Fate" },
      ],
      data.base ? "change" : "module",
      () => this.#show(),
    );
    this.#side = new Choice<Shown>(
      byId("side"),
      data.base ? [{ value: "new", label: "New" }, { value: "old", label: "Old" }] : [],
      "new",
      () => this.#recount(),
    );
    byId("side").hidden = data.base === null;
    this.#tableOf = new Choice<TableOf>(
      byId("table-of"),
      [{ value: "functions", label: "Functions" }, { value: "types", label: "Types" }, { value: "files", label: "Files" }],
      "functions",
      () => this.#showTable(),
    );
    this.#texts = new Texts(data, measure);
    this.#tree = this.#treeOf();
    this.#totals = totals(data, this.#tree, this.#selection(), this.#side.value);
    this.#graph = new Graph(byId("graph"), byId("graph-space"), byId<HTMLCanvasElement>("graph-canvas"), {
      hover: (node, x, y) => this.#hover(node, x, y),
      current: (node, box) => this.#current(node, box),
      zoom: (node) => this.#zoom(node),
    });
    const chart = document.getElementById("timeline-chart") as unknown as SVGSVGElement;
    this.#timeline = new Timeline(byId("timeline"), chart, byId("timeline-legend"), data, (from, to) => {
      this.#range = [from, to];
      byId("range-reset").hidden = from === 0 && to === header.buckets;
      this.#recountSoon();
    });
    this.#table = new TableView(byId("table"), byId("table-more"), byId("table-count"), {
      picked: (row) => this.#searchFor(row.name),
    });
    this.#listen();
    this.#describeSession();
    this.#recount();
  }

  #objectOptions(measure: Measure) {
    const fates = new Set(this.data.allocations.fate);
    const time = measure === "time" ? "Time samples have no fate" : undefined;
    // On PyPy only survival of a minor collection is known, not what is alive at the end.
    const notKnown = fates.has(Fate.Survived) && !fates.has(Fate.StillLive) ? "Not recorded on PyPy, which records only survival of the first minor collection" : undefined;
    return [
      { value: "all" as const, label: "All allocated" },
      { value: "died-young" as const, label: "Died young", unavailable: time },
      { value: "survived" as const, label: "Survived", unavailable: time },
      { value: "still-alive" as const, label: "Still alive", unavailable: time ?? notKnown },
    ];
  }

  #listen(): void {
    this.#search.addEventListener("input", () => this.#searched());
    this.#search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      byId("graph").focus();
    });
    byId("zoom-reset").addEventListener("click", () => this.#zoom(0));
    byId("range-reset").addEventListener("click", () => this.#timeline.choose(0, 0));
    byId("theme-button").addEventListener("click", () => this.#turnTheme());
    byId("help-button").addEventListener("click", () => byId<HTMLDialogElement>("help").showModal());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#themed());
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey || byId<HTMLDialogElement>("help").open) return;
    const typing = event.target === this.#search;
    if (event.key === "Escape") {
      this.#reset();
      if (typing) byId("graph").focus();
      return;
    }
    if (typing) return;
    switch (event.key) {
      case "/":
        this.#search.focus();
        this.#search.select();
        break;
      case "?":
        byId<HTMLDialogElement>("help").showModal();
        break;
      case "i":
        this.#orientation.choose(this.#orientation.value === "flame" ? "icicle" : "flame");
        break;
      case "t":
        this.#turnTheme();
        break;
      default:
        return;
    }
    event.preventDefault();
  }

  /** Undoes one thing: the search, else the zoom, else the range of time. */
  #reset(): void {
    if (this.#search.value !== "") this.#searchFor("");
    else if (this.#graph.focus !== 0) this.#zoom(0);
    else this.#timeline.choose(0, 0);
  }

  #turnTheme(): void {
    toggleTheme();
    this.#themed();
  }

  #themed(): void {
    this.#theme = currentTheme();
    this.#show();
  }

  #selection(): Selection {
    const objects = this.#measure.value === "time" ? "all" : this.#objects.value;
    return new Selection(this.#measure.value, objects, ...this.#range);
  }

  #treeOf(): Tree {
    const byLine = this.#frames.value === "line";
    let tree = this.#trees.get(byLine);
    if (!tree) {
      tree = merge(this.data, byLine);
      this.#trees.set(byLine, tree);
    }
    return tree;
  }

  #measured(): void {
    this.#texts = this.#texts.with(this.#measure.value);
    this.#objects.allow(this.#objectOptions(this.#measure.value));
    this.#recount();
  }

  #rebuild(): void {
    this.#tree = this.#treeOf();
    this.#recount(0);
  }

  #recountSoon(): void {
    cancelAnimationFrame(this.#pending);
    this.#pending = requestAnimationFrame(() => this.#recount());
  }

  /** Sums the chosen records, and shows the result. */
  #recount(focus = this.#graph.focus): void {
    const selection = this.#selection();
    this.#totals = totals(this.data, this.#tree, selection, this.#side.value);
    if (this.#totals.total.samples[focus] === 0) focus = 0;
    this.#timeline.show(byTime(this.data, selection), (value) => this.#texts.amount(value));
    this.#find();
    this.#show(focus);
    this.#showTable();
  }

  #show(focus = this.#graph.focus): void {
    const colours = colouring(this.#colour.value, this.data, this.#tree, this.#totals, this.#theme);
    this.#graph.show(
      {
        tree: this.#tree,
        totals: this.#totals,
        colouring: colours,
        orientation: this.#orientation.value,
        found: this.#found,
        label: (node) => this.#texts.label(this.#tree, node),
      },
      focus,
    );
    byId("legend").replaceChildren(
      ...colours.legend.map((swatch) => {
        const item = document.createElement("span");
        item.className = "swatched";
        const patch = document.createElement("i");
        patch.className = "swatch";
        patch.style.background = swatch.colour;
        const name = document.createElement("bdi");
        name.textContent = clipped(visible(swatch.label), 32);
        item.append(patch, name, ` ${percent(swatch.share, 1)}`);
        return item;
      }),
    );
    this.#summarise();
  }

  #summarise(): void {
    const { focus } = this.#graph;
    byId("zoom-reset").hidden = focus === 0;
    const { value, interval } = this.#texts.estimate(this.#totals.total.get(focus));
    const what = { bytes: " allocated", allocations: "", time: " of CPU time" }[this.#measure.value];
    const figure = document.createElement("strong");
    figure.textContent = `${value}${what}`;
    const range = document.createElement("span");
    range.className = "faint";
    range.textContent = interval === "exact" ? interval : `95 %: ${interval}`;
    const parts: HTMLElement[] = [figure, range];
    if (focus !== 0) {
      const where = document.createElement("bdi");
      where.className = "where";
      where.textContent = `in ${clipped(this.#texts.label(this.#tree, focus).name, 60)}, ${percent(this.#totals.total.estimate[focus]!, this.#totals.total.estimate[0]!)} of all`;
      parts.push(where);
    }
    byId("summary").replaceChildren(...parts);
    this.#showFound();
  }

  #showTable(): void {
    const rows = rowsOf(this.#tableOf.value, this.data, this.#tree, this.#totals);
    const matches = this.#matcher();
    const shown = matches ? rows.filter((row) => matches(row.name) || matches(row.place)) : rows;
    this.#table.show(shown, this.#texts, this.#totals.total.estimate[0]!);
  }

  #zoom(node: number): void {
    // A second click on the zoomed node zooms out.
    this.#graph.zoom(node === this.#graph.focus ? 0 : node);
    this.#summarise();
  }

  #matcher(): Matcher | null {
    return this.#search.value === "" ? null : matcher(this.#search.value);
  }

  #searchFor(text: string): void {
    this.#search.value = text === this.#search.value ? "" : text;
    this.#searched();
  }

  #searched(): void {
    this.#find();
    this.#show();
    this.#showTable();
  }

  #find(): void {
    const matches = this.#matcher();
    this.#found = matches ? find(this.#texts, this.data, this.#tree, matches) : null;
    const wrong = this.#search.value !== "" && matches === null;
    this.#search.setAttribute("aria-invalid", String(wrong));
  }

  #showFound(): void {
    const result = byId("search-result");
    if (this.#search.getAttribute("aria-invalid") === "true") result.textContent = "not a valid pattern";
    else if (!this.#found) result.textContent = "";
    else {
      const { focus } = this.#graph;
      const total = foundTotal(this.#tree, this.#totals, this.#found, focus);
      const { value, interval } = this.#texts.estimate(total.get(0));
      const share = percent(total.estimate[0]!, this.#totals.total.estimate[focus]!);
      result.textContent = total.samples[0] === 0 ? "nothing found" : `${share} · ${value}`;
      result.title = interval === "exact" ? "" : `95 %: ${interval}`;
    }
  }

  #hover(node: number | null, x: number, y: number): void {
    if (node === null) {
      this.#tip.hidden = true;
      return;
    }
    this.#describe(node);
    tip.place(this.#tip, x, y, 0);
  }

  #described = -1;
  #describe(node: number): void {
    if (node === this.#described && !this.#tip.hidden) return;
    this.#described = node;
    tip.describe(
      this.#tip,
      {
        data: this.data,
        tree: this.#tree,
        totals: this.#totals,
        texts: this.#texts,
        focus: this.#graph.focus,
        fateColours: fateColours(this.#theme),
      },
      node,
    );
  }

  #current(node: number, box: DOMRect): void {
    this.#describe(node);
    tip.place(this.#tip, box.left, box.top, box.height);
    const item = byId("graph-node");
    const { name } = this.#texts.label(this.#tree, node);
    const { value, interval } = this.#texts.estimate(this.#totals.total.get(node));
    item.ariaLevel = String(this.#tree.depth[node]! + 1);
    item.ariaSelected = "true";
    item.textContent = `${clipped(name, 200)}, ${percent(this.#totals.total.estimate[node]!, this.#totals.total.estimate[0]!)}, ${value}, 95 %: ${interval}`;
  }

  #describeSession(): void {
    const { header } = this.data;
    const { meta } = header;
    const command = meta.command.map(visible).join(" ") || "a Python program";
    document.title = `${clipped(command, 80)} – nthbyte`;
    byId("command").textContent = clipped(command, 300);
    byId("command").title = clipped(command, 2000);
    const every = meta.distances === "every" ? "every allocation recorded" : `one sample in ${bytes(meta.period)}`;
    const facts = [
      visible(meta.interpreter),
      every,
      `${count(header.samples)} samples`,
      seconds(header.duration),
      startOf(meta.started_unix_nanos),
    ];
    if (header.base) {
      const { command, duration, samples, runs } = header.base;
      const several = runs > 1 ? `, mean of ${runs} runs` : "";
      facts.push(`against ${clipped(command.map(visible).join(" "), 80)} (${count(samples)} samples, ${seconds(duration)}${several})`);
      if ((header.runs ?? 1) > 1) facts.push(`mean of ${header.runs} runs`);
    }
    byId("facts").textContent = facts.filter(Boolean).join("  ·  ");
    byId("timeline").setAttribute("aria-valuemax", String(header.buckets));
    byId("help-estimate").textContent =
      meta.distances === "every"
        ? "Every allocation was recorded, so the figures are exact."
        : `The figures are estimates from samples, on average one in ${bytes(meta.period)} of allocated memory. In 95 of 100 runs the true value lies within the 95 % interval.`;
    this.#notes();
  }

  #notes(): void {
    const { header } = this.data;
    const notes = (header.meta.notes ?? []).map(visible);
    for (const { what, events } of header.lost) {
      notes.push(`${count(events)} ${what} were lost: the program produced them faster than they could be written.`);
    }
    if (!header.complete) notes.push("The profile is incomplete: the session did not end normally.");
    for (const what of header.damage.slice(0, 5)) notes.push(`Part of the file could not be read: ${visible(what)}`);
    if (header.buckets < 256) {
      notes.push(`There are many different samples, so a range of time has steps of ${seconds(header.duration / header.buckets)}.`);
    }
    if (header.coarse) {
      notes.push("There are many different samples, so sizes above 1 KiB that differ by less than 2 % are merged, and count as their mean.");
    }
    byId("notes").replaceChildren(
      ...notes.map((note) => {
        const line = document.createElement("p");
        line.textContent = clipped(note, 1000);
        return line;
      }),
    );
  }
}

/** The start of the session, formatted; empty if it is unknown. */
function startOf(nanos: number): string {
  if (!(nanos > 0)) return "";
  return new Date(nanos / 1e6).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

async function start(): Promise<void> {
  const holder = byId("data");
  try {
    const data = await read(holder.textContent ?? "");
    holder.remove();
    byId("main").hidden = false;
    new Page(data);
  } catch (error) {
    const notice = byId("notice");
    notice.hidden = false;
    notice.textContent = `This page could not be opened: ${error instanceof Error ? error.message : String(error)}`;
    throw error;
  }
}

void start();
