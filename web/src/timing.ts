// How long the page's work took, for the browser's performance tools and for bench/page.

/** Records the time since `start`; of each kind of work, only the last one is kept. */
export function timed(work: "update" | "table", start: number, detail?: object): void {
  const name = `nthbyte ${work}`;
  performance.clearMeasures(name);
  performance.measure(name, { start, detail });
}
