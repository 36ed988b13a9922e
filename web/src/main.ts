// The page: reads the data, keeps the user's choices, and updates each part of the page.

import { type ColourBy, Palette, type Theme, colouring, fateColours } from "./colour.ts";
import { Choice, isByKey, thenFocus } from "./controls.ts";
import { type Data, read } from "./data.ts";
import { Finder, type Searched } from "./finder.ts";
import { clipped, percent, seconds, visible } from "./format.ts";
import { type By, type Only, byOptions, firstBy, narrowed, valueNames } from "./groups.ts";
import { Graph, type Orientation } from "./graph.ts";
import { HeldCard } from "./held.ts";
import { type Place, chainNodes } from "./layout.ts";
import { swatchItem } from "./legend.ts";
import { describeMemory } from "./memory.ts";
import { sandwich } from "./sandwich.ts";
import { type Found, find } from "./search.ts";
import { type Measure, type Objects, type Selection, byTime, momentOf, objectOptions, whatCounts } from "./selection.ts";
import { describeSession } from "./session.ts";
import { type TableOf, rowsOf } from "./table.ts";
import { TableView } from "./tableview.ts";
import { Texts } from "./texts.ts";
import { currentTheme, toggleTheme } from "./theme.ts";
import { type ShownMoment, Timeline } from "./timeline.ts";
import { timed } from "./timing.ts";
import * as tip from "./tip.ts";
import { type Shown, Totals, type View } from "./totals.ts";
import { What, merge } from "./tree.ts";

/** Why the intervals at the peak are wider. */
const HALF = "By half of the samples: the other half found this moment, and would say too much of it.";

/** The table waits so long for the range of time to rest, in milliseconds. */
const REST = 120;

function byId<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** What the page begins with. */
function firstObjects(data: Data, measure: Measure): Objects {
  const { opens, alive } = data.header;
  if (measure === "time" || opens === undefined) return "all";
  if (opens === "end") return "still-alive";
  return opens === "peak" ? (alive?.peak ? "peak" : "all") : (alive?.asked ? "asked" : "all");
}

/** The number of parts of time before the moment nearest to the peak, at which it is known what was alive. */
function nearestMoment({ header }: Data): number {
  const { duration, buckets, alive } = header;
  const parts = alive?.parts ?? buckets;
  const share = (alive?.peak?.time ?? 0) / (duration || 1);
  return (Math.max(1, Math.min(parts, Math.round(share * parts))) * buckets) / parts;
}

/** The state of the page: the user's choices and their results. */
class Page {
  readonly #graph: Graph;
  readonly #timeline: Timeline;
  readonly #table: TableView;
  readonly #finder: Finder;
  readonly #measure: Choice<Measure>;
  readonly #objects: Choice<Objects>;
  readonly #orientation: Choice<Orientation>;
  readonly #chains: Choice<"folded" | "shown">;
  readonly #frames: Choice<"function" | "line">;
  readonly #colour: Choice<ColourBy>;
  readonly #tableOf: Choice<TableOf>;
  readonly #side: Choice<Shown>;
  readonly #search = byId<HTMLInputElement>("search");
  readonly #tip = byId("tip");
  readonly #by: Choice<By>;
  readonly #only = byId<HTMLSelectElement>("only");
  /** The records that are shown: one label's or thread's, or all. */
  #records: Data;
  readonly #views = new Map<string, View>();
  readonly #palette: Palette;
  #texts: Texts;
  #theme: Theme = currentTheme();
  #range: [number, number];
  /** The number of parts of time before the moment. */
  #moment: number;
  /** What counted before a moment was chosen in the timeline. */
  #before: Objects = "all";
  /** The tree of all. */
  #whole: View;
  /** What the graph shows: the tree of all, or the callers and callees of a function. */
  #shown: View;
  /** The function whose callers and callees are shown. */
  #centre: number | null = null;
  #opened = new Set<number>();
  #found: Found | null = null;
  readonly #memory: (time: number | null) => void;
  readonly #held: HeldCard | null;
  #pending = 0;
  #resting = 0;

  constructor(private readonly data: Data) {
    const { header } = data;
    this.#range = [0, header.buckets];
    this.#records = data;
    this.#moment = nearestMoment(data);
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
    this.#objects = new Choice<Objects>(byId("objects"), objectOptions(data, measure), firstObjects(data, measure), () => this.#chosen());
    this.#orientation = new Choice<Orientation>(
      byId("orientation"),
      [{ value: "icicle", label: "Icicle" }, { value: "flame", label: "Flame" }],
      "icicle",
      () => this.#show(),
    );
    this.#chains = new Choice<"folded" | "shown">(
      byId("chains"),
      [{ value: "folded", label: "Folded" }, { value: "shown", label: "Shown" }],
      "folded",
      () => {
        this.#opened.clear();
        this.#show();
      },
    );
    this.#frames = new Choice<"function" | "line">(
      byId("frames"),
      [{ value: "function", label: "Function" }, { value: "line", label: "Line" }],
      "function",
      () => this.#rebuild(),
    );
    this.#by = new Choice<By>(byId("by"), byOptions(data, measure === "time"), firstBy(data), () => this.#arranged());
    this.#offerOnly();
    this.#colour = new Choice<ColourBy>(
      byId("colour"),
      [
        ...(data.base ? [{ value: "change" as const, label: "Change" }] : []),
        { value: "package", label: "Package" },
        { value: "type", label: "Type" },
        { value: "fate", label: "Fate" },
      ],
      data.base ? "change" : "package",
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
      [
        { value: "functions", label: "Functions" },
        { value: "types", label: "Types" },
        { value: "files", label: "Files" },
        ...(data.header.groups ? [{ value: "groups" as const, label: "Groups", unavailable: this.#noGroups() }] : []),
      ],
      "functions",
      () => this.#showTable(),
    );
    if (this.#by.value !== "calls") this.#tableOf.choose("groups", true);
    this.#palette = new Palette(data);
    this.#texts = new Texts(data, measure, this.#isHalf());
    this.#whole = this.#view();
    this.#shown = this.#whole;
    this.#graph = new Graph(byId("graph"), byId("graph-space"), byId<HTMLCanvasElement>("graph-canvas"), {
      hover: (place, box, x, calleesBelow) => this.#hover(place, box, x, calleesBelow),
      current: (place, box, calleesBelow) => this.#current(place, box, calleesBelow),
      pick: (place) => this.#pick(place),
    });
    this.#finder = new Finder(this.#search, byId("search-result"), this.#graph, (node) => this.#graph.zoom(node));
    const chart = document.getElementById("timeline-chart") as unknown as SVGSVGElement;
    this.#timeline = new Timeline(byId("timeline"), chart, byId("timeline-legend"), data, {
      range: (from, to) => {
        this.#range = [from, to];
        byId("range-reset").hidden = from === 0 && to === header.buckets;
        this.#recountSoon();
      },
      moment: (parts) => this.#momentChosen(parts),
    });
    this.#table = new TableView(byId("table"), byId("table-more"), byId("table-count"), {
      picked: (row, byKey) => thenFocus(this.#search, byKey, () => this.#searchFor(row.name)),
      centred: (row, byKey) => thenFocus(byId("graph"), byKey, () => this.#centreOn(row.id)),
    });
    this.#listen();
    this.#memory = describeMemory(header.memory);
    this.#held = header.held
      ? new HeldCard(data, header.held, this.#palette, { allocatedBy: (name) => this.#searchFor(name, true) })
      : null;
    describeSession(data);
    this.#recount();
  }

  #listen(): void {
    this.#search.addEventListener("input", () => this.#searched());
    this.#search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.#finder.go(event.shiftKey ? -1 : 1, this.#searchable());
      this.#summarise();
      this.#graph.reveal();
    });
    const inGraph = (event: MouseEvent, action: () => void) => thenFocus(byId("graph"), isByKey(event), action);
    byId("zoom-reset").addEventListener("click", (event) => inGraph(event, () => this.#leave()));
    byId("centre-button").addEventListener("click", (event) => inGraph(event, () => this.#centreOnNode(this.#graph.focus)));
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
      case "s":
        this.#centreOnNode(this.#graph.current);
        break;
      case "c":
        this.#chains.choose(this.#chains.value === "folded" ? "shown" : "folded");
        break;
      case "t":
        this.#turnTheme();
        break;
      default:
        return;
    }
    event.preventDefault();
  }

  /** Undoes one thing: the search, else the zoom or the view of one function, else the range of time. */
  #reset(): void {
    if (this.#finder.text !== "") this.#searchFor("");
    else if (this.#graph.focus !== 0 || this.#centre !== null) this.#leave();
    else if (this.#objects.value === "moment") this.#objects.choose(this.#before);
    else this.#timeline.choose(0, 0);
  }

  /** Whether the figures are of half of the samples: the others found the peak. */
  #isHalf(): boolean {
    const isPeak = this.#measure.value !== "time" && this.#objects.value === "peak";
    return isPeak && this.data.header.alive?.peak?.half === true;
  }

  /** Other objects were chosen. */
  #chosen(): void {
    this.#texts = this.#texts.with(this.#measure.value, this.#isHalf());
    this.#recount();
  }

  /** A moment was chosen in the timeline. */
  #momentChosen(parts: number): void {
    if (this.#measure.value === "time") return;
    const isNew = parts !== this.#moment;
    this.#moment = parts;
    if (this.#objects.value !== "moment") {
      this.#before = this.#objects.value;
      this.#objects.choose("moment");
    } else if (isNew) {
      const moment = this.#shownMoment()!;
      this.#timeline.mark(moment);
      this.#memory(moment.time);
      this.#recountSoon();
    }
  }

  /** The moment that is shown, in words; null if a range is. */
  #shownMoment(): ShownMoment | null {
    const selection = this.#selection();
    const time = momentOf(this.data, selection);
    if (time === null) return null;
    return { time, words: selection.objects === "peak" ? `at the peak, ${seconds(time)}` : `at ${seconds(time)}` };
  }

  /** Back to the whole graph. */
  #leave(): void {
    if (this.#centre === null) {
      this.#zoom(0);
      return;
    }
    this.#centre = null;
    this.#recount(0);
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
    const [from, to] = this.#range;
    return { measure: this.#measure.value, objects, from, to, moment: this.#moment };
  }

  #view(): View {
    const key = `${this.#frames.value} ${this.#by.value}`;
    let view = this.#views.get(key);
    if (!view) {
      const tree = merge(this.#records, this.#frames.value === "line", this.#by.value);
      view = { tree, totals: new Totals(this.#records, tree) };
      this.#views.set(key, view);
    }
    return view;
  }

  /** Fills the choice of one label or thread. */
  #offerOnly(): void {
    const keys = this.data.header.groups?.keys ?? [];
    byId("by").hidden = byId("only-box").hidden = keys.length === 0;
    this.#only.append(new Option("all", ""));
    keys.forEach((key, number) => {
      const group = document.createElement("optgroup");
      group.label = visible(key.name);
      const names = valueNames(this.data, number);
      // The values have the most frequent first; in a list they are looked for by name.
      const order = [...names.keys()].sort((a, b) => Number(a === names.length - 1) - Number(b === names.length - 1) || names[a]!.localeCompare(names[b]!));
      group.append(...order.map((at) => new Option(`${visible(key.name)}: ${clipped(names[at]!, 60)}`, `${number}:${at}`)));
      this.#only.append(group);
    });
    this.#only.addEventListener("change", () => this.#narrow(this.#only.value as Only));
  }

  /** Shows one label or thread alone. */
  #narrow(only: Only): void {
    this.#records = narrowed(this.data, only);
    this.#views.clear();
    this.#rebuild();
  }

  /** Why there are no rows of groups. */
  #noGroups(): string | undefined {
    return this.#by.value === "calls" || this.#by.value === "type" ? "Choose a label at “By”" : undefined;
  }

  /** Another key was chosen. */
  #arranged(): void {
    const unavailable = this.#noGroups();
    const options = [{ value: "groups" as const, label: "", unavailable }];
    if (this.data.header.groups) this.#tableOf.allow(options);
    if (unavailable && this.#tableOf.value === "groups") this.#tableOf.choose("functions", true);
    if (!unavailable) this.#tableOf.choose("groups", true);
    this.#rebuild();
  }

  #measured(): void {
    const time = this.#measure.value === "time";
    this.#by.allow(byOptions(this.data, time));
    if (time && this.#by.value === "type") this.#by.choose("calls");
    this.#texts = this.#texts.with(this.#measure.value, this.#isHalf());
    this.#objects.allow(objectOptions(this.data, this.#measure.value));
    this.#recount();
  }

  #rebuild(): void {
    this.#whole = this.#view();
    this.#recount(0);
  }

  #recountSoon(): void {
    cancelAnimationFrame(this.#pending);
    this.#pending = requestAnimationFrame(() => this.#rangeMoved());
  }

  /** The range of time moved: the table follows when it rests. */
  #rangeMoved(): void {
    this.#sum(this.#graph.focus);
    byId("table").ariaBusy = "true";
    clearTimeout(this.#resting);
    this.#resting = setTimeout(() => this.#showTable(), REST);
  }

  /** Sums the chosen records, and shows the result. */
  #recount(focus = this.#graph.focus): void {
    const { measure, objects } = this.#selection();
    const moment = this.#shownMoment();
    // The peak of RSS is another moment, but answers the same question.
    this.#memory(objects === "peak" ? null : (moment?.time ?? null));
    this.#timeline.show(byTime(this.#records, measure, objects), this.#what(), (value) => this.#texts.value(value), moment);
    this.#sum(focus);
    this.#showTable();
  }

  #sum(focus: number): void {
    const began = performance.now();
    const selection = this.#selection();
    const whole = this.#whole;
    whole.totals.update(selection, this.#side.value);
    if (this.#centre === null) this.#shown = whole;
    else {
      if (this.#shown === whole || this.#shown.tree.id[0] !== this.#centre || this.#lined !== whole) {
        const tree = sandwich(whole.tree, this.#centre);
        this.#shown = { tree, totals: new Totals(this.#records, tree) };
        this.#lined = whole;
        this.#opened.clear();
      }
      this.#shown.totals.update(selection, this.#side.value);
    }
    if (this.#centre === null && whole.totals.shown.samples[focus] === 0) focus = 0;
    if (this.#centre !== null) focus = 0;
    const before = this.#graph.focus;
    this.#find(focus);
    // A new search undoes the zoom of the one before.
    this.#show(this.#graph.focus === before ? focus : this.#graph.focus);
    timed("update", began, { ...this.#shown.totals.work, boxes: this.#graph.boxes });
  }

  /** The tree of all that the callers and callees were taken from. */
  #lined: View | null = null;

  #show(focus = this.#graph.focus): void {
    const { tree, totals } = this.#shown;
    const allocates = this.#measure.value !== "time";
    const colours = colouring(this.#colour.value, this.#palette, this.data, this.#shown, this.#whole, allocates, this.#theme);
    this.#graph.show(
      {
        tree,
        totals,
        colouring: colours,
        orientation: this.#orientation.value,
        found: this.#found,
        folding: { fold: this.#chains.value === "folded", opened: this.#opened, found: this.#found },
        label: (node) => this.#texts.label(tree, node),
      },
      focus,
    );
    byId("legend").replaceChildren(...colours.legend.map(swatchItem));
    this.#held?.coloured(this.#colour.value, this.#theme);
    this.#summarise();
  }

  /** What the chosen figures are. */
  #what(): string {
    return whatCounts(this.#measure.value, this.#objects.value);
  }

  /** A value with what became of it. */
  #fate(value: string): string {
    // "3 allocations allocated" says one thing twice.
    const plain = this.#measure.value === "allocations" && this.#objects.value === "all";
    const moment = this.#shownMoment();
    if (moment) return `${value} alive ${moment.words}`;
    return plain ? value : `${value} ${this.#what().toLowerCase()}`;
  }

  #summarise(): void {
    const { focus } = this.#graph;
    const { tree, totals } = this.#shown;
    const sums = totals.shown;
    const centred = this.#centre !== null;
    byId("zoom-reset").hidden = focus === 0 && !centred;
    byId("zoom-reset").textContent = centred ? "Whole graph" : "Reset zoom";
    byId("centre-button").hidden = centred || tree.what[focus] !== What.Frame;
    const { value, interval } = this.#texts.estimate(sums.moments(focus));
    const figure = document.createElement("strong");
    figure.textContent = this.#measure.value === "time" ? `${value} of CPU time` : this.#fate(value);
    const range = document.createElement("span");
    range.className = "faint";
    range.textContent = interval === "exact" ? interval : `95 %: ${interval}`;
    if (this.#texts.half) range.title = HALF;
    const parts: HTMLElement[] = [figure, range];
    if (focus !== 0 || centred) {
      const where = document.createElement("bdi");
      where.className = "where";
      const share = percent(sums.estimate[focus]!, this.#whole.totals.shown.estimate[0]!);
      const name = clipped(this.#texts.label(tree, focus).name, 60);
      where.textContent = centred ? `in all calls of ${name}, ${share} of all: callers above, callees below` : `in ${name}, ${share} of all`;
      parts.push(where);
    }
    byId("summary").replaceChildren(...parts);
    this.#sayHeld(tree.what[focus] === What.Frame ? tree.id[focus]! : null);
    this.#finder.say(this.#searchable());
    if (document.activeElement !== byId("graph")) this.#say(focus, 0);
  }

  /** Says who holds what a function allocated. */
  #sayHeld(id: number | null): void {
    const { functions, files } = this.data.header;
    if (id === null) this.#held?.allocatedBy(null, "");
    else this.#held?.allocatedBy(functions.name[id]!, files[functions.file[id]!]!);
  }

  #showTable(): void {
    clearTimeout(this.#resting);
    const start = performance.now();
    byId("table").ariaBusy = "false";
    const { tree, totals } = this.#whole;
    const rows = rowsOf(this.#tableOf.value, this.data, tree, totals.shown);
    const matches = this.#finder.matcher();
    const shown = matches ? rows.filter((row) => matches(row.name) || matches(row.place)) : rows;
    this.#table.show(shown, this.#texts, totals.shown.estimate[0]!, this.#tableOf.value === "functions");
    timed("table", start);
  }

  #pick(place: Place): void {
    const { tree } = this.#shown;
    if (place.chain) {
      for (const node of chainNodes(tree, place)) this.#opened.add(node);
      this.#show();
    } else if (this.#centre !== null) this.#centreOnNode(place.node);
    else this.#zoom(place.node);
  }

  #zoom(node: number): void {
    // A second click on the zoomed node zooms out.
    this.#graph.zoom(node === this.#graph.focus ? 0 : node);
    if (this.#found) this.#finder.begin(this.#searchable(), this.#graph.focus);
    this.#summarise();
  }

  #centreOnNode(node: number): void {
    const { tree } = this.#shown;
    if (tree.what[node] === What.Frame) this.#centreOn(tree.id[node]!);
  }

  /** Shows the callers and callees of a function. */
  #centreOn(id: number): void {
    if (id === this.#centre) return;
    this.#centre = id;
    this.#tip.hidden = true;
    this.#recount(0);
    byId("graph-card").scrollIntoView({ block: "nearest" });
  }

  #searchable(): Searched {
    return { tree: this.#shown.tree, sums: this.#shown.totals.shown, found: this.#found, texts: this.#texts };
  }

  /** Searches for a text, or no more if it is searched for already, unless that `stays`. */
  #searchFor(text: string, stays = false): void {
    this.#finder.text = text === this.#finder.text && !stays ? "" : text;
    this.#searched();
  }

  #searched(): void {
    this.#find(this.#graph.focus);
    this.#show();
    this.#showTable();
    this.#finder.go(1, this.#searchable());
    this.#summarise();
    this.#graph.reveal();
  }

  #find(scope: number): void {
    const matches = this.#finder.matcher();
    this.#found = matches ? find(this.#texts, this.data, this.#shown.tree, matches) : null;
    this.#finder.begin(this.#searchable(), scope);
  }

  #hover(place: Place | null, box: DOMRect, x: number, calleesBelow: boolean): void {
    if (place === null) {
      this.#tip.hidden = true;
      return;
    }
    this.#describe(place);
    tip.place(this.#tip, box, x, calleesBelow);
  }

  #described = -1;
  #describe(place: Place): void {
    if (place.node === this.#described && !this.#tip.hidden) return;
    this.#described = place.node;
    const { tree, totals } = this.#shown;
    const names = place.chain ? chainNodes(tree, place).map((node) => this.#texts.label(tree, node).name) : [];
    const whole = this.#whole.totals.shown.estimate[0]!;
    const { focus } = this.#graph;
    tip.describe(
      this.#tip,
      { data: this.data, tree, totals, texts: this.#texts, focus, whole, names, fateColours: fateColours(this.#theme) },
      place.node,
    );
  }

  #current(place: Place, box: DOMRect, calleesBelow: boolean): void {
    this.#describe(place);
    tip.place(this.#tip, box, Math.max(box.left, 0), calleesBelow);
    this.#say(place.node, place.chain?.length ?? 0);
  }

  /** Tells a screen reader about a box; `folded` is the number of calls in a chain. */
  #say(node: number, folded: number): void {
    const item = byId("graph-node");
    // Only a chain can be opened.
    item.ariaExpanded = folded > 0 ? "false" : null;
    const { at, of } = this.#graph.position(node);
    [item.ariaPosInSet, item.ariaSetSize] = [String(at), String(of)];
    const { tree, totals } = this.#shown;
    const label = clipped(this.#texts.label(tree, node).name, 200);
    const name = folded > 0 ? `${folded} folded calls from ${label}` : label;
    const { value, interval } = this.#texts.estimate(totals.shown.moments(node));
    item.ariaLevel = String(tree.depth[node]! + 1);
    item.ariaSelected = "true";
    item.textContent = `${name}, ${percent(totals.shown.estimate[node]!, this.#whole.totals.shown.estimate[0]!)}, ${value}, 95 %: ${interval}`;
  }
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
