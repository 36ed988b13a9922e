// Measures large pages of `nthbyte flamegraph` in headless Chromium:
// `node bench/page/measure.mjs [--repeat N] [--moves N] [--keep FOLDER] [--json] [--dev] [NAME ...]`.
//
// The profiles are made up by crates/profile's example `synthesize`. Each page is opened several times. Times are
// those of the browser's own clock: from the start of the navigation until the graph is drawn; of each update while the
// pointer drags a range of time, with the boxes coloured by package, type and fate; and of filling the table when the range
// rests. The CPU time of the page's main thread is that of what it did, which other work on the machine disturbs less.
// `--dev` makes the pages with a development build, which the tests have made already.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { framesPass, launch, newPage } from "../../tests/page/browser.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const target = resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const COLOURS = ["package", "type", "fate"];

/** Made-up programs: samples, and the most nodes of the stack tree. */
const PROFILES = {
  small: { samples: 20_000, nodes: 5_000, what: "5,000 stacks, 20,000 samples" },
  stacks: { samples: 500_000, nodes: 170_000, what: "170,000 stacks, 500,000 samples" },
  samples: { samples: 3_000_000, nodes: 60_000, what: "60,000 stacks, 3 million samples" },
  both: { samples: 3_000_000, nodes: 500_000, what: "500,000 stacks, 3 million samples" },
};

function options(words) {
  const chosen = { repeat: 5, moves: 40, keep: null, names: [], json: false, dev: false };
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    if (word === "--repeat") chosen.repeat = Number(words.shift());
    else if (word === "--moves") chosen.moves = Number(words.shift());
    else if (word === "--keep") chosen.keep = resolve(words.shift());
    else if (word === "--json") chosen.json = true;
    else if (word === "--dev") chosen.dev = true;
    else if (word in PROFILES) chosen.names.push(word);
    else throw new Error(`unknown: ${word}; the profiles are ${Object.keys(PROFILES).join(", ")}`);
  }
  if (chosen.names.length === 0) chosen.names = Object.keys(PROFILES).filter((name) => name !== "small");
  return chosen;
}

/** Makes a profile and its page. */
function make(folder, name) {
  const { samples, nodes } = PROFILES[name];
  const profile = join(folder, `${name}.nthb`);
  const page = join(folder, `${name}.html`);
  const run = (program, ...words) => execFileSync(join(target, dev ? "debug" : "release", program), words.map(String), { stdio: ["ignore", "ignore", "inherit"] });
  run("examples/synthesize", "--samples", samples, "--nodes", nodes, profile);
  const began = performance.now();
  run("nthbyte", "flamegraph", profile, "-o", page);
  return { page, seconds: (performance.now() - began) / 1000, bytes: statSync(page).size };
}

/** Opens a page once, and drags over its timeline, once for each way to colour the boxes. */
async function open(browser, file) {
  const page = await newPage(browser, { viewport: { width: 1440, height: 900 } });
  const tools = await page.context().newCDPSession(page);
  await tools.send("Performance.enable", { timeDomain: "threadTicks" });
  const cpu = async () => {
    const { metrics } = await tools.send("Performance.getMetrics");
    return 1000 * metrics.find(({ name }) => name === "TaskDuration").value;
  };
  await page.goto(pathToFileURL(file).href);
  await page.waitForSelector("#summary strong");
  const opened = await page.evaluate(() => {
    const [first] = performance.getEntriesByName("nthbyte update");
    const { usedJSHeapSize } = performance.memory;
    return { at: first.startTime + first.duration, work: first.detail, heap: usedJSHeapSize };
  });
  opened.cpu = await cpu();
  const box = await page.locator("#timeline .overlay").boundingBox();
  const drags = {};
  for (const colour of COLOURS) {
    await page.click(`#colour [data-value="${colour}"]`);
    drags[colour] = await drag(page, box, cpu);
  }
  await page.close();
  return { opened, drags };
}

/** Drags from a fifth of the timeline to four fifths. */
async function drag(page, box, cpu) {
  const y = box.y + box.height / 2;
  const duration = (name) => page.evaluate((of) => performance.getEntriesByName(`nthbyte ${of}`)[0].duration, name);
  await page.mouse.move(box.x + 0.2 * box.width, y);
  await page.mouse.down();
  const moves = [];
  const before = await cpu();
  for (let move = 1; move <= perDrag; move++) {
    await page.mouse.move(box.x + (0.2 + (0.6 * move) / perDrag) * box.width, y);
    await framesPass(page);
    moves.push(await duration("update"));
  }
  const each = ((await cpu()) - before) / perDrag;
  await page.mouse.up();
  await page.waitForFunction(() => document.getElementById("table").ariaBusy === "false");
  const table = await duration("table");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.getElementById("range-reset").hidden);
  return { moves, each, table };
}

const { repeat, moves: perDrag, keep, names, json, dev } = options(process.argv.slice(2));
// The development build is that of the whole workspace, as the tests make it: one package alone has its dependencies built
// once more, with other features.
const builds = dev
  ? [["--workspace", "--all-features", "--bins", "--examples"]]
  : [["--release", "-p", "nthbyte-cli", "--bins"], ["--release", "-p", "nthbyte-profile", "--example", "synthesize"]];
for (const what of builds) execFileSync("cargo", ["build", "-q", ...what], { cwd: root, stdio: "inherit" });
const folder = keep ?? mkdtempSync(join(tmpdir(), "nthbyte-bench-page-"));
mkdirSync(folder, { recursive: true });
try {
  const browser = await launch(["--enable-precise-memory-info"]);
  const measured = { browser: `Chromium ${browser.version()}`, repeat, pages: [] };
  for (const name of names) {
    const made = make(folder, name);
    const runs = [];
    for (let at = 0; at < repeat; at++) runs.push(await open(browser, made.page));
    measured.pages.push(summed(name, made, runs));
  }
  await browser.close();
  if (json) console.log(JSON.stringify(measured));
  else print(measured);
} finally {
  if (!keep) rmSync(folder, { recursive: true });
}

/** What was measured of one page, in milliseconds and bytes; three numbers are the least, the median and the greatest. */
function summed(name, made, runs) {
  const opened = runs.map((run) => run.opened);
  const { records, nodes, boxes } = opened[0].work;
  const moves = {};
  for (const colour of COLOURS) {
    const drags = runs.map((run) => run.drags[colour]);
    moves[colour] = { update: three(drags.flatMap((drag) => drag.moves)), cpu: three(drags.map((drag) => drag.each)), table: three(drags.map((drag) => drag.table)) };
  }
  return {
    name,
    what: PROFILES[name].what,
    bytes: made.bytes,
    written: 1000 * made.seconds,
    work: { records, nodes, boxes },
    opens: three(opened.map((one) => one.at)),
    cpu: three(opened.map((one) => one.cpu)),
    heap: Math.max(...opened.map((one) => one.heap)),
    moves,
  };
}

function three(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  return [sorted[0], sorted[sorted.length >> 1], sorted.at(-1)];
}

function print({ browser, pages }) {
  const text = (numbers) => `${numbers.map((number) => number.toFixed(1)).join(" / ")} ms`;
  console.log(`${cpus().length} cores, load ${loadavg()[0].toFixed(1)}, ${browser}, ${repeat} times each; least / median / greatest`);
  for (const { what, bytes, written, work, opens, cpu, heap, moves } of pages) {
    console.log(`\n${what}`);
    console.log(`  page: ${(bytes / 1e6).toFixed(2)} MB, written in ${(written / 1000).toFixed(1)} s`);
    console.log(`  work: ${work.records} records, ${work.nodes} nodes, ${work.boxes} boxes`);
    console.log(`  opens in ${text(opens)}, heap ${(heap / 1e6).toFixed(0)} MB; CPU of the main thread ${text(cpu)}`);
    for (const [colour, { update, cpu: each, table }] of Object.entries(moves)) {
      console.log(`  a move, coloured by ${colour}: ${text(update)}; CPU ${text(each)}; the table ${text(table)}`);
    }
  }
}
