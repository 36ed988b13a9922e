// Formats numbers and names for display.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Three significant digits. */
function short(number: number): string {
  const size = Math.abs(number);
  // A sum of many parts may miss a whole number by a rounding error.
  if (size >= 100 || Math.abs(number - Math.round(number)) < 1e-9 * size) return Math.round(number).toString();
  return number.toFixed(size >= 10 ? 1 : 2);
}

/** A size in binary units: `1.50 MiB`. */
export function bytes(size: number): string {
  let unit = 0;
  // 1023.5 would be rounded to 1024, so the next unit begins there.
  while (Math.abs(size) >= 1023.5 && unit < UNITS.length - 1) {
    size /= 1024;
    unit++;
  }
  return `${unit === 0 ? Math.round(size) : short(size)} ${UNITS[unit]}`;
}

/** Three or four round sizes in binary units below `most`. */
export function binaryTicks(most: number): number[] {
  if (!(most > 0)) return [];
  let step = 2 ** Math.floor(Math.log2(most / 3));
  if (most / step > 4.5) step *= 2;
  return Array.from({ length: Math.floor(most / step) }, (_, i) => (i + 1) * step);
}

/** A count: `12,345` or `123 M`. */
export function count(number: number): string {
  if (number < 9_999_999.5) return Math.round(number).toLocaleString("en-US");
  if (number < 999.5e6) return `${short(number / 1e6)} M`;
  return `${short(number / 1e9)} G`;
}

/** Seconds: `1.23 s`, `45 ms`. */
export function seconds(time: number): string {
  if (time === 0) return "0 s";
  if (time < 1e-3) return `${short(time * 1e6)} µs`;
  if (time < 0.9995) return `${short(time * 1e3)} ms`;
  if (time < 120) return `${short(time)} s`;
  const minutes = Math.floor(time / 60);
  return `${minutes} min ${Math.round(time - 60 * minutes)} s`;
}

/** A share of a whole. */
export function percent(part: number, whole: number): string {
  if (!(whole > 0)) return "0 %";
  const share = (100 * part) / whole;
  if (share > 0 && share < 0.01) return "< 0.01 %";
  return `${share >= 99.95 ? "100" : share.toFixed(share >= 9.995 ? 1 : 2)} %`;
}

// Control characters, line separators, and characters that are invisible or change the text's
// direction. With them, a name could look like another name.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const ESCAPES: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** A name from the profile for display: invisible characters are written as escapes. */
export function visible(name: string): string {
  return name.replace(
    UNSEEN,
    (c) => ESCAPES[c] ?? `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** At most `most` characters of a name. A longer name ends with an ellipsis. */
export function clipped(name: string, most: number): string {
  if (name.length <= most) return name;
  const end = name.charCodeAt(most - 2);
  // Do not split a surrogate pair.
  return `${name.slice(0, end >= 0xd800 && end < 0xdc00 ? most - 2 : most - 1)}…`;
}
