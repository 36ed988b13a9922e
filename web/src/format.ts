// Formats numbers and names for display. A figure is written as in the terminal: tests/numbers.json has texts that both must give.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const LETTERS = ["", "k", "M", "G", "T"];
/** From here on, rounding would give four digits. */
const FULL = 999.5;

/** A fixed number of decimals. Of two that are equally near, the even one, as in Rust: binary sizes often lie in the middle. */
function fixed(number: number, decimals: number): string {
  const scaled = number * 10 ** decimals;
  const below = Math.floor(scaled);
  const isHalf = scaled - below === 0.5 && Number.isInteger(number * 2 ** (decimals + 1));
  return isHalf ? ((below % 2 === 0 ? below : below + 1) / 10 ** decimals).toFixed(decimals) : number.toFixed(decimals);
}

/** Three digits; `whole` leaves out decimals. */
function digits(number: number, whole = false): string {
  const size = Math.abs(number);
  if (size >= 99_999.5) return number.toExponential(2).replace("e+", "e");
  if (whole || size >= 99.95) return fixed(number, 0);
  return fixed(number, size >= 9.995 ? 1 : 2);
}

/** A number in the first of these units in which it has three digits before the point at most, and that unit. */
function scaled(number: number, base: number, units: string[]): [string, string] {
  let unit = 0;
  while (Math.abs(number) >= FULL && unit < units.length - 1) {
    number /= base;
    unit++;
  }
  return [digits(number, unit === 0), units[unit]!];
}

/** A size in binary units: `812 B`, `1.50 MiB`. */
export function bytes(size: number): string {
  return scaled(size, 1024, UNITS).join(" ");
}

/** How fast something grows: `1.50 MiB a minute`. */
export function rate(bytesPerMinute: number): string {
  return `${bytes(bytesPerMinute)} a minute`;
}

/** Three or four round sizes in binary units below `most`. */
export function binaryTicks(most: number): number[] {
  if (!(most > 0)) return [];
  let step = 2 ** Math.floor(Math.log2(most / 3));
  if (most / step > 4.5) step *= 2;
  return Array.from({ length: Math.floor(most / step) }, (_, i) => (i + 1) * step);
}

/** A round figure beside an axis, without the zeros behind the point: `2 MiB` for `2.00 MiB`. */
export function ofAxis(figure: string): string {
  return figure.replace(/\.(\d*?)0+(?=\D|$)/, (_, kept: string) => (kept ? `.${kept}` : ""));
}

/** An estimated number: `812`, `1.23k`, `45.6M`. */
export function count(number: number): string {
  return scaled(number, 1000, LETTERS).join("");
}

/** A whole number that was counted, in groups of three digits: `12,345`. */
export function grouped(number: number): string {
  return Math.round(number).toLocaleString("en-US");
}

/** A length of time in seconds: `12.3 s`, `4 min 5 s`, `830 µs`. */
export function seconds(time: number): string {
  if (time === 0) return "0 s";
  if (time < 1e-3) return `${digits(time * 1e6)} µs`;
  if (time < 1) return `${digits(time * 1e3)} ms`;
  if (time < 60) return `${digits(time)} s`;
  const minutes = Math.floor(time / 60);
  if (time < 3600) return `${minutes} min ${Math.floor(time - 60 * minutes)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A share of a whole: `71 %`, `0.3 %`, `<0.1 %`. Only the whole is `100 %`; nearly all is `>99 %`. */
export function percent(part: number, whole: number): string {
  if (!(whole > 0)) return "0 %";
  const share = (100 * part) / whole;
  // The whole may be a sum in another order, with another rounding error.
  if (share >= 99.5 && share < 100 - 1e-6) return ">99 %";
  if (share >= 9.95 || share === 0) return `${digits(share, true)} %`;
  return share < 0.05 ? "<0.1 %" : `${fixed(share, 1)} %`;
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

/** At most `most` characters of a name that says as much at its end as where it begins, as a path does: a longer one lacks its middle. */
export function pinched(name: string, most: number): string {
  if (name.length <= most) return name;
  let tail = name.length - (most >> 1);
  const unit = name.charCodeAt(tail);
  // Do not split a surrogate pair.
  if (unit >= 0xdc00 && unit < 0xe000) tail++;
  return clipped(name, most - (name.length - tail)) + name.slice(tail);
}
