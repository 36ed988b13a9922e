// Memory over time, and the amount allocated in each part of time. A brush selects a range.

import { bisector, max } from "d3-array";
import { axisBottom, axisLeft } from "d3-axis";
import { type BrushBehavior, type D3BrushEvent, brushX } from "d3-brush";
import { type ScaleLinear, scaleLinear } from "d3-scale";
import { type Selection as Picked, select } from "d3-selection";
import { area, line } from "d3-shape";

import { scaleOf } from "./bars.ts";
import type { Data, Timeline as Memory } from "./data.ts";
import { binaryTicks, bytes, ofAxis, percent, seconds } from "./format.ts";

/** The lines and the bars are two panels with axes of their own, above one axis of time. */
const LINES = { top: 16, bottom: 80 };
const BARS = { top: 100, bottom: 132 };
const COMPILING = { top: 82, bottom: 86 };
const HEIGHT = 152;
const MARGIN = { right: 12, left: 64 };

/** The widest label of the axis of time: `4 min 40 s`. */
const LABEL = 64;

/** The memory figures that are drawn, from the back to the front. */
const SERIES = [
  { key: "rss", label: "RSS" },
  { key: "heap_reserved", label: "heap reserved" },
  { key: "heap_used", label: "heap used" },
] as const;

/** One of the memory figures: the places of the values that are known, and the highest one. */
interface Series {
  key: (typeof SERIES)[number]["key"];
  label: string;
  places: number[];
  highest: number;
}

export interface TimelineEvents {
  /** A range was chosen: its first part of time, and the end, the part after the last. */
  range(from: number, to: number): void;
  /** A moment was chosen: the number of parts of time before it. */
  moment(parts: number): void;
}

/** The moment that is shown, in seconds, and the words for it. */
export interface ShownMoment {
  time: number;
  words: string;
}

export class Timeline {
  readonly #svg: Picked<SVGSVGElement, unknown, null, undefined>;
  readonly #brush: BrushBehavior<unknown>;
  #x: ScaleLinear<number, number> = scaleLinear();
  #bars: Float64Array = new Float64Array(0);
  #what = "";
  #unit: (value: number) => string = String;
  #range: [number, number];
  /** Whether this class moves the brush at this moment, not the user. */
  #quiet = false;
  /** The moment that is shown in the place of a range; null if a range is. */
  #shown: ShownMoment | null = null;
  /** The memory figures that this profile has. */
  readonly #series: Series[];
  /** The moment that the legend is about; null for the whole. And the frame in which it is written. */
  #moment: number | null = null;
  #writing = 0;
  readonly #said = document.createElement("span");

  constructor(
    private readonly box: HTMLElement,
    svg: SVGSVGElement,
    private readonly legend: HTMLElement,
    private readonly data: Data,
    private readonly events: TimelineEvents,
  ) {
    this.#svg = select(svg);
    this.#series = SERIES.flatMap(({ key, label }) => {
      const values = data.header.timeline[key];
      const highest = max(values, (value) => value ?? undefined);
      return highest === undefined ? [] : [{ key, label, places: known(values), highest }];
    });
    const compiling = data.header.timeline.compiling ? ["compiling"] : [];
    for (const key of [...this.#series.map((one) => one.key), "bars", ...compiling]) {
      const item = document.createElement("span");
      item.className = `key ${key}`;
      legend.append(item);
    }
    this.#said.className = "range";
    legend.append(this.#said);
    this.#range = [0, data.header.buckets];
    this.#brush = brushX<unknown>().on("brush end", (event: D3BrushEvent<unknown>) => this.#brushed(event));
    // A moment is dragged, not a range.
    this.#brush.filter((event: MouseEvent) => !event.ctrlKey && !event.button && this.#shown === null);
    for (const layer of ["bars", "cuts", "compiling", "series", "x", "y", "y-bars", "brush", "peak", "moment", "cursor"]) {
      this.#svg.append("g").attr("class", layer);
    }
    for (const [name, panel] of [["memory", LINES], ["allocated", BARS]] as const) {
      this.#svg.append("text").attr("class", `panel ${name}`).attr("x", MARGIN.left).attr("y", panel.top - 6);
    }
    this.#svg.select(".cursor").append("line");
    for (const mark of [".peak", ".moment"]) {
      this.#svg.select(mark).append("line").attr("y1", LINES.top).attr("y2", BARS.bottom);
      this.#svg.select(mark).append("text").attr("y", LINES.top - 5);
    }
    svg.addEventListener("pointerdown", (event) => {
      if (this.#shown === null || event.button !== 0) return;
      svg.setPointerCapture(event.pointerId);
      this.#chooseMoment(event.clientX);
    });    svg.addEventListener("pointermove", (event) => this.#point(event));
    svg.addEventListener("pointerleave", () => this.#point(null));
    box.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#draw()).observe(box);
    this.#say(null);
  }

  /**
   * Draws new bars: a number for each part of time, what they are, and a function that formats them. They are what was alive at the
   * ends of the parts if a moment is shown, else what happened in them.
   */
  show(bars: Float64Array, what: string, unit: (value: number) => string, moment: ShownMoment | null): void {
    // A range means nothing for a moment.
    if (moment && !this.#whole) this.choose(0, 0);
    this.#shown = moment;
    this.box.classList.toggle("at-moment", moment !== null);
    this.#bars = bars;
    this.#what = what;
    this.#unit = unit;
    this.#draw();
  }

  /** Moves the mark of the moment. */
  mark(moment: ShownMoment): void {
    this.#shown = moment;
    this.#drawMarks();
    this.#say(null);
  }

  /** Selects a range of parts of time. An empty range selects the whole session. */
  choose(from: number, to: number): void {
    const changed = to > from ? this.#take(from, to) : this.#take(0, this.data.header.buckets);
    this.#moveBrush();
    if (changed) this.events.range(...this.#range);
  }

  /** Takes a range, and returns whether it is another one. What was chosen already need not be summed again. */
  #take(from: number, to: number): boolean {
    const [start, end] = this.#range;
    this.#range = [from, to];
    return from !== start || to !== end;
  }

  get #whole(): boolean {
    return this.#range[0] === 0 && this.#range[1] === this.data.header.buckets;
  }

  #draw(): void {
    const width = this.box.clientWidth;
    if (width === 0) return;
    const { duration, timeline } = this.data.header;
    this.#svg.attr("viewBox", `0 0 ${width} ${HEIGHT}`).attr("width", width).attr("height", HEIGHT);
    this.#x = scaleLinear([0, duration || 1], [MARGIN.left, width - MARGIN.right]);
    const most = Math.max(0, ...this.#series.map(({ highest }) => highest));
    const y = scaleLinear([0, most * 1.05 || 1], [LINES.bottom, LINES.top]);

    const ticks = Math.max(2, Math.floor(width / 110));
    this.#svg
      .select<SVGGElement>(".x")
      .attr("transform", `translate(0,${BARS.bottom})`)
      .call(axisBottom(this.#x).ticks(ticks).tickSizeOuter(0).tickFormat((t) => ofAxis(seconds(Number(t)))))
      .selectAll<SVGTextElement, number>(".tick text")
      // A label at the end of the axis must not be cut by the edge.
      .attr("text-anchor", (t) => (this.#x(t) > width - LABEL / 2 ? "end" : null))
      .attr("dx", (t) => (this.#x(t) > width - LABEL / 2 ? MARGIN.right : null));
    const axis = (scale: ScaleLinear<number, number>, values: number[]) =>
      axisLeft(scale).tickValues(values).tickSizeOuter(0).tickSizeInner(-(width - MARGIN.left - MARGIN.right));
    const at = `translate(${MARGIN.left},0)`;
    this.#svg
      .select<SVGGElement>(".y")
      .attr("transform", at)
      .call(axis(y, binaryTicks(most)).tickFormat((v) => ofAxis(bytes(Number(v)))));
    this.#svg.select(".panel.memory").text(most > 0 ? "Memory of the process" : "");

    const { full, longest } = scaleOf(this.#bars);
    const high = scaleLinear([0, full || 1], [BARS.bottom, BARS.top]).clamp(true);
    this.#svg
      .select<SVGGElement>(".y-bars")
      .attr("transform", at)
      .call(axis(high, longest > 0 ? [longest] : []).tickFormat((v) => this.#unit(Number(v))));
    const { buckets } = this.data.header;
    const each = seconds(duration / buckets);
    this.#svg.select(".panel.allocated").text(this.#shown ? `Alive at the end of each ${each}` : `${this.#what}, per ${each}`);
    this.#drawBars(high);
    this.#drawCuts(longest, width);
    this.#drawCompiling(timeline.compiling?.parts ?? []);
    this.#drawSeries(timeline, y);
    this.#brush.extent([[MARGIN.left, LINES.top], [width - MARGIN.right, BARS.bottom]]);
    this.#svg.select<SVGGElement>(".brush").call(this.#brush);
    this.#moveBrush();
    this.#drawMarks();
  }

  /** The marks of the peak and of the moment that is shown. */
  #drawMarks(): void {
    const [, right] = this.#x.range() as [number, number];
    const mark = (name: string, time: number | undefined, words: string) => {
      const layer = this.#svg.select<SVGGElement>(`.${name}`).attr("visibility", time === undefined ? "hidden" : "visible");
      const x = this.#x(time ?? 0);
      layer.select("line").attr("x1", x).attr("x2", x);
      const isLate = x > right - 2 * LABEL;
      layer.select("text").attr("x", x + (isLate ? -4 : 4)).attr("text-anchor", isLate ? "end" : "start").text(words);
    };
    const peak = this.data.header.alive?.peak?.time;
    // One label in a place.
    const hides = this.#shown !== null && peak !== undefined && Math.abs(this.#x(this.#shown.time) - this.#x(peak)) < 2 * LABEL;
    mark("peak", peak, hides ? "" : "peak");
    mark("moment", this.#shown?.time, this.#shown?.words ?? "");
    // The name of the panel is where the label of an early moment is.
    const isEarly = (time: number | undefined) => time !== undefined && this.#x(time) < MARGIN.left + 2.5 * LABEL;
    this.#svg.select(".panel.memory").attr("visibility", isEarly(peak) || isEarly(this.#shown?.time) ? "hidden" : "visible");
  }

  /** The number of parts of time before a moment, of those at whose ends it is known what was alive. */
  #partsBefore(time: number): number {
    const { duration, buckets, alive } = this.data.header;
    const parts = alive?.parts ?? buckets;
    return (Math.min(parts, Math.max(1, Math.round((time / (duration || 1)) * parts))) * buckets) / parts;
  }

  #chooseMoment(clientX: number): void {
    if (!this.data.header.alive) return;
    this.events.moment(this.#partsBefore(this.#x.invert(clientX - this.box.getBoundingClientRect().left)));
  }

  #drawBars(y: ScaleLinear<number, number>): void {
    const step = (this.data.header.duration || 1) / Math.max(this.#bars.length, 1);
    // Two points for each part of time make steps.
    const points = Array.from(this.#bars).flatMap((value, at) => [
      [at * step, value] as [number, number],
      [(at + 1) * step, value] as [number, number],
    ]);
    const shape = area<[number, number]>().x((p) => this.#x(p[0])).y0(y(0)).y1((p) => y(p[1]));
    this.#svg.select(".bars").selectAll("path").data([points]).join("path").attr("d", shape);
  }

  /** A gap in each bar that is cut, and what it stands for. */
  #drawCuts(longest: number, width: number): void {
    const step = (this.data.header.duration || 1) / Math.max(this.#bars.length, 1);
    const cut = Array.from(this.#bars.keys()).filter((at) => this.#bars[at]! > longest);
    const half = Math.max(3, (this.#x(step) - this.#x(0)) / 2 + 1);
    const middle = (at: number) => this.#x((at + 0.5) * step);
    const y = BARS.top + 6;
    const layer = this.#svg.select(".cuts");
    layer.selectAll("path").data(cut).join("path").attr("d", (at) => `M${middle(at) - half},${y + 2}L${middle(at) + half},${y - 2}`);
    // The figures of neighbours would cover each other: only the highest one of them has its figure.
    const named = cut.filter((at) => !cut.some((other) => other !== at && Math.abs(middle(other) - middle(at)) < LABEL && (this.#bars[other]! > this.#bars[at]! || (this.#bars[other] === this.#bars[at] && other < at))));
    const isLate = (at: number) => middle(at) > width - 2 * LABEL;
    layer
      .selectAll("text")
      .data(named)
      .join("text")
      .attr("x", (at) => middle(at) + (isLate(at) ? -half - 3 : half + 3))
      .attr("y", BARS.top + 4)
      .attr("text-anchor", (at) => (isLate(at) ? "end" : "start"))
      .text((at) => this.#unit(this.#bars[at]!));
  }

  /** A strip between the panels, the darker the more of the time is the JIT compiler's. */
  #drawCompiling(parts: number[]): void {
    const step = (this.data.header.duration || 1) / Math.max(parts.length, 1);
    const shown = Array.from(parts.keys()).filter((at) => parts[at]! > 0);
    this.#svg
      .select(".compiling")
      .selectAll("rect")
      .data(shown)
      .join("rect")
      .attr("x", (at) => this.#x(at * step))
      .attr("width", this.#x(step) - this.#x(0))
      .attr("y", COMPILING.top)
      .attr("height", COMPILING.bottom - COMPILING.top)
      // What takes a hundredth of the time is to be seen.
      .attr("fill-opacity", (at) => 0.15 + 0.85 * parts[at]!);
  }

  #drawSeries(timeline: Memory, y: ScaleLinear<number, number>): void {
    // The figures are read at moments of their own, so each line joins those that it has.
    const shape = line<number>().x((i) => this.#x(timeline.time[i]!));
    this.#svg
      .select(".series")
      .selectAll("path")
      .data(SERIES.slice())
      .join("path")
      .attr("class", (series) => series.key)
      .attr("d", ({ key }) => shape.y((i) => y(timeline[key][i]!))(known(timeline[key])));
  }

  #moveBrush(): void {
    const group = this.#svg.select<SVGGElement>(".brush");
    this.#quiet = true;
    const [from, to] = this.#range;
    group.call(this.#brush.move, this.#whole ? null : [this.#x(this.#time(from)), this.#x(this.#time(to))]);
    this.#quiet = false;
    this.#say(null);
  }

  /** The moment at which a part of time begins. */
  #time(part: number): number {
    return (part * this.data.header.duration) / this.data.header.buckets;
  }

  #brushed(event: D3BrushEvent<unknown>): void {
    if (this.#quiet) return;
    const { buckets, duration } = this.data.header;
    const range = event.selection as [number, number] | null;
    // A click without a drag.
    if (event.type === "end" && range === null && event.sourceEvent instanceof MouseEvent && this.data.header.alive) {
      this.#take(0, buckets);
      this.#chooseMoment(event.sourceEvent.clientX);
      return;
    }
    const part = (x: number) => (this.#x.invert(x) / (duration || 1)) * buckets;
    const from = range ? Math.max(0, Math.round(part(range[0]))) : 0;
    const to = range ? Math.min(buckets, Math.max(from + 1, Math.round(part(range[1])))) : buckets;
    const changed = this.#take(Math.min(from, buckets - 1), to);
    // The brush follows the pointer, and snaps to whole parts of time when the button is released.
    if (event.type === "end" && range) this.#moveBrush();
    this.#say(null);
    if (changed) this.events.range(...this.#range);
  }

  #key(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const { buckets } = this.data.header;
    if (this.#shown) {
      this.#keyOfMoment(event, this.#shown.time);
      return;
    }
    let [from, to] = this.#range;
    const step = Math.max(1, Math.round(buckets / 64)) * (event.key === "ArrowLeft" ? -1 : 1);
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      if (this.#whole && !event.shiftKey) to = Math.max(1, Math.round(buckets / 8));
      else if (event.shiftKey) to = Math.min(buckets, Math.max(from + 1, to + step));
      else {
        const by = Math.max(-from, Math.min(step, buckets - to));
        from += by;
        to += by;
      }
    } else if (event.key === "Escape" && !this.#whole) {
      [from, to] = [0, buckets];
      event.stopPropagation();
    } else return;
    event.preventDefault();
    this.choose(from, to);
  }

  /** Moves the moment by a part of time, or with Shift by a 16th of the session. */
  #keyOfMoment(event: KeyboardEvent, time: number): void {
    const { buckets, duration, alive } = this.data.header;
    const one = buckets / (alive?.parts ?? buckets);
    const step = event.shiftKey ? Math.max(one, buckets / 16) : one;
    const now = this.#partsBefore(time);
    const isLater = (now * duration) / buckets > time;
    let to: number;
    // From a moment between two ends, the first step goes to the nearest one on its side.
    if (event.key === "ArrowLeft") to = isLater && step === one ? now - one : now - step;
    else if (event.key === "ArrowRight") to = isLater && step === one ? now : now + step;
    else if (event.key === "Home") to = one;
    else if (event.key === "End") to = buckets;
    else return;
    event.preventDefault();
    this.events.moment(Math.min(buckets, Math.max(one, to)));
  }

  #point(event: PointerEvent | null): void {
    const cursor = this.#svg.select<SVGLineElement>(".cursor line");
    if (!event) {
      cursor.attr("visibility", "hidden");
      this.#say(null);
      return;
    }
    const x = event.clientX - this.box.getBoundingClientRect().left;
    const [left, right] = this.#x.range() as [number, number];
    const inside = Math.min(Math.max(x, left), right);
    if (this.#shown && event.buttons === 1) this.#chooseMoment(event.clientX);
    cursor
      .attr("visibility", "visible")
      .attr("x1", inside)
      .attr("x2", inside)
      .attr("y1", LINES.top)
      .attr("y2", BARS.bottom);
    this.#say(this.#x.invert(inside));
  }

  /** The legend of the bars: the highest value, or the value at a moment. */
  #barText(moment: number | null): string {
    const { duration, buckets } = this.data.header;
    const part = Math.min(buckets - 1, Math.floor(((moment ?? 0) / (duration || 1)) * buckets));
    const value = moment === null ? (max(this.#bars) ?? 0) : (this.#bars[part] ?? 0);
    const most = moment === null ? " at most" : "";
    if (this.#shown) return `alive ${this.#unit(value)}${most}`;
    return `${this.#what.toLowerCase()} ${this.#unit(value)} in ${seconds(duration / buckets)}${most}`;
  }

  /** The legend of the JIT compiler, if the profile has its work. */
  #compilingText(moment: number | null): string[] {
    const { duration, timeline } = this.data.header;
    const { compiling } = timeline;
    if (!compiling) return [];
    if (moment === null) {
      const first = duration > 1 ? `, ${percent(compiling.first, 1)} of the first second` : "";
      return [`JIT compiler ${percent(compiling.whole, 1)} of the time${first}`];
    }
    const { length } = compiling.parts;
    const part = Math.min(length - 1, Math.floor((moment / (duration || 1)) * length));
    return [`JIT compiler ${percent(compiling.parts[part]!, 1)}`];
  }

  /** Writes the legend of a moment, or of the whole, before the next frame is drawn: a move of the brush asks often. */
  #say(moment: number | null): void {
    this.#moment = moment;
    this.#writing ||= requestAnimationFrame(() => {
      this.#writing = 0;
      this.#write();
    });
  }

  /** Writes the legend: the values at a moment, or the highest ones; and the range. */
  #write(): void {
    const moment = this.#moment;
    const { timeline } = this.data.header;
    const texts = this.#series.map(({ key, label, places, highest }) => {
      if (moment === null) return `${label} ${bytes(highest)} at most`;
      return `${label} ${bytes(timeline[key][nearest(timeline.time, places, moment)]!)}`;
    });
    [...texts, this.#barText(moment), ...this.#compilingText(moment)].forEach((text, at) => {
      this.legend.children[at]!.textContent = text;
    });
    const [from, to] = this.#range.map((part) => this.#time(part)) as [number, number];
    const range = this.#whole ? "the whole session" : `${seconds(from)} to ${seconds(to)}`;
    const shown = this.#shown ? `alive ${this.#shown.words}` : range;
    this.#said.textContent = moment === null ? `Shown: ${shown}` : `At ${seconds(moment)}`;
    this.box.setAttribute("aria-label", this.#shown ? "Moment" : "Range of time");
    this.box.setAttribute("aria-valuetext", shown);
    this.box.setAttribute("aria-valuenow", String(this.#shown ? this.#partsBefore(this.#shown.time) : this.#range[0]));
  }
}

/** The places of the values that are known. */
function known(values: (number | null)[]): number[] {
  return Array.from(values.keys()).filter((i) => values[i] !== null);
}

/** Of some places, in the order of their times, the one whose time is nearest. */
function nearest(times: number[], places: number[], moment: number): number {
  const after = bisector((place: number) => times[place]!).left(places, moment);
  const [before, next] = [places[Math.max(after - 1, 0)]!, places[Math.min(after, places.length - 1)]!];
  return moment - times[before]! <= times[next]! - moment ? before : next;
}
