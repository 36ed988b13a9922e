// A chart of one curve, with the band of its 95 % interval where there is one.

import { max } from "d3-array";
import { axisBottom, axisLeft } from "d3-axis";
import { scaleLinear } from "d3-scale";
import { select } from "d3-selection";
import { area, line } from "d3-shape";

const HEIGHT = 190;
const MARGIN = { top: 10, right: 14, bottom: 24, left: 66 };

export interface Point {
  x: number;
  y: number;
  low: number;
  high: number;
}

export interface Axes {
  x(value: number): string;
  y(value: number): string;
  /** The values at which the vertical axis has lines, given the highest one. */
  ticks(most: number): number[];
  /** The highest value of the vertical axis; without it, the drawn curve's. */
  most?: number;
  /** What a screen reader says. */
  label: string;
}

/** Draws the chart into a box, again whenever the box has another width. */
export function chart(box: HTMLElement, points: Point[], axes: Axes): void {
  const svg = select(box).append("svg").attr("role", "img").attr("aria-label", axes.label);
  for (const layer of ["x", "y"]) svg.append("g").attr("class", layer);
  for (const name of ["band", "curve"]) svg.append("path").attr("class", name);
  const draw = () => {
    const width = box.clientWidth;
    if (width === 0) return;
    svg.attr("width", width).attr("height", HEIGHT).attr("viewBox", `0 0 ${width} ${HEIGHT}`);
    const most = axes.most ?? max(points, (point) => point.high) ?? 1;
    const x = scaleLinear([points[0]?.x ?? 0, points.at(-1)?.x || 1], [MARGIN.left, width - MARGIN.right]);
    const y = scaleLinear([0, most * 1.04 || 1], [HEIGHT - MARGIN.bottom, MARGIN.top]);
    const inner = width - MARGIN.left - MARGIN.right;
    svg
      .select<SVGGElement>(".x")
      .attr("transform", `translate(0,${HEIGHT - MARGIN.bottom})`)
      .call(axisBottom(x).ticks(Math.max(2, Math.floor(inner / 100))).tickSizeOuter(0).tickFormat((v) => axes.x(Number(v))));
    svg
      .select<SVGGElement>(".y")
      .attr("transform", `translate(${MARGIN.left},0)`)
      .call(axisLeft(y).tickValues(axes.ticks(most)).tickSizeOuter(0).tickSizeInner(-inner).tickFormat((v) => axes.y(Number(v))));
    const band = area<Point>().x((p) => x(p.x)).y0((p) => y(p.low)).y1((p) => y(p.high));
    const curve = line<Point>().x((p) => x(p.x)).y((p) => y(p.y));
    svg.select(".band").attr("d", band(points));
    svg.select(".curve").attr("d", curve(points));
  };
  new ResizeObserver(draw).observe(box);
  draw();
}
