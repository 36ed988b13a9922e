// Measures large pages of `nthbyte flamegraph` in headless Chromium: `node bench/page/measure.mjs [--repeat N] [--keep FOLDER] [NAME ...]`.
//
// The profiles are made up by crates/profile's example `synthesize`. Each page is opened several times. Times are
// those of the browser's own clock: from the start of the navigation until the graph is drawn; of each update while the
// pointer drags a range of time, with the boxes coloured by package, type and fate; and of filling the table when the range
// rests. The CPU time of the page's main thread is that of what it did, which other work on the machine disturbs less.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { launch } from "../../tests/page/browser.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const target = resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const MOVES = 40;
const COLOURS = ["package", "type", "fate"];

/** Made-up programs: samples, and the most nodes of the stack tree. */
const PROFILES = {
  stacks: { samples: 500_000, nodes: 170_000, what: "170,000 stacks, 500,000 samples" },
  samples: { samples: 3_000_000, nodes: 60_000, what: "60,000 stacks, 3 million samples" },
  both: { samples: 3_000_000, nodes: 500_000, what: "500,000 stacks, 3 million samples" },
};

function options(words) {
  const chosen = { repeat: 5, keep: null, names: [] };
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    if (word === "--repeat") chosen.repeat = Number(words.shift());
    else if (word === "--keep") chosen.keep = resolve(words.shift());
    else if (word in PROFILES) chosen.names.push(word);
    else throw new Error(`unknown: ${word}; the profiles are ${Object.keys(PROFILES).join(", ")}`);
  }
  if (chosen.names.length === 0) chosen.names = Object.keys(PROFILES);
  return chosen;
}

/** Makes a profile and its page. */
function make(folder, name) {
  const { samples, nodes } = PROFILES[name];
  const profile = join(folder, `${name}.nthb`);
  const page = join(folder, `${name}.html`);
  const run = (program, ...words) => execFileSync(join(target, "release", program), words.map(String), { stdio: ["ignore", "ignore", "inherit"] });
  run("examples/synthesize", "--samples", samples, "--nodes", nodes, profile);
  const began = performance.now();
  run("nthbyte", "flamegraph", profile, "-o", page);
  return { page, seconds: (performance.now() - began) / 1000, bytes: statSync(page).size };
}

/** Opens a page once, and drags over its timeline, once for each way to colour the boxes. */
async function open(browser, file) {
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  page.setDefaultTimeout(300_000);
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
  for (let move = 1; move <= MOVES; move++) {
    await page.mouse.move(box.x + (0.2 + (0.6 * move) / MOVES) * box.width, y);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    moves.push(await duration("update"));
  }
  const each = ((await cpu()) - before) / MOVES;
  await page.mouse.up();
  await page.waitForFunction(() => document.getElementById("table").ariaBusy === "false");
  const table = await duration("table");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.getElementById("range-reset").hidden);
  return { moves, each, table };
}

const least = (numbers) => Math.min(...numbers);
const median = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];
const greatest = (numbers) => Math.max(...numbers);
const three = (numbers) => `${[least, median, greatest].map((of) => of(numbers).toFixed(1)).join(" / ")} ms`;

const { repeat, keep, names } = options(process.argv.slice(2));
for (const what of [["nthbyte-cli", "--bins"], ["nthbyte-profile", "--example", "synthesize"]]) {
  execFileSync("cargo", ["build", "-q", "--release", "-p", ...what], { cwd: root, stdio: "inherit" });
}
const folder = keep ?? mkdtempSync(join(tmpdir(), "nthbyte-bench-page-"));
mkdirSync(folder, { recursive: true });
try {
  console.log(`${cpus().length} cores, load ${loadavg()[0].toFixed(1)}, node ${process.version}, ${repeat} times each; least / median / greatest`);
  const browser = await launch(["--enable-precise-memory-info"]);
  console.log(`Chromium ${browser.version()}`);
  for (const name of names) {
    const made = make(folder, name);
    const runs = [];
    for (let at = 0; at < repeat; at++) runs.push(await open(browser, made.page));
    const { work } = runs[0].opened;
    console.log(`\n${PROFILES[name].what}`);
    console.log(`  page: ${(made.bytes / 1e6).toFixed(2)} MB, written in ${made.seconds.toFixed(1)} s`);
    console.log(`  work: ${work.records} records, ${work.nodes} nodes, ${work.boxes} boxes`);
    console.log(`  opens in ${three(runs.map((run) => run.opened.at))}, heap ${(greatest(runs.map((run) => run.opened.heap)) / 1e6).toFixed(0)} MB`);
    console.log(`  main thread's CPU time to open: ${three(runs.map((run) => run.opened.cpu))}`);
    for (const colour of COLOURS) {
      const drags = runs.map((run) => run.drags[colour]);
      console.log(
        `  a move, coloured by ${colour}: ${three(drags.flatMap((drag) => drag.moves))}; CPU ${three(drags.map((drag) => drag.each))};` +
          ` the table ${three(drags.map((drag) => drag.table))}`,
      );
    }
  }
  await browser.close();
} finally {
  if (!keep) rmSync(folder, { recursive: true });
}
