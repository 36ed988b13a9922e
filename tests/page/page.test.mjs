// The page of `nthbyte flamegraph`, in Chromium, opened from a file.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";

import { drawn, launch, newPage } from "./browser.mjs";
import { makePages, pageModule, root } from "./pages.mjs";

const DIED_YOUNG = 0;
const STILL_LIVE = 3;
/** The height of a row of the graph, as in web/src/graph.ts. */
const ROW = 21;

/** What is said of a figure of these objects. */
const NAMES = { all: "allocated", "died-young": "died young", survived: "survived", "still-alive": "alive at the end" };

let browser;
let pages;
let format;
let page;
/** Forbidden actions of the page; the list must be empty after each test. */
let complaints;

before(async () => {
  pages = makePages();
  format = await pageModule("format.ts");
  browser = await launch();
});

after(async () => {
  await browser?.close();
  pages?.remove();
});

beforeEach(async () => {
  complaints = [];
  await open({});
});

afterEach(async () => {
  await page.close();
  assert.deepEqual(complaints, []);
});

async function open(options) {
  await page?.close();
  page = await newPage(browser, { viewport: { width: 1300, height: 1000 }, ...options });
  page.on("console", (message) => complaints.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  page.on("request", (request) => {
    if (request.url() !== page.expectedUrl) complaints.push(`request: ${request.url()}`);
  });
  page.on("dialog", (dialog) => complaints.push(`dialog: ${dialog.message()}`));
}

async function show(name) {
  page.expectedUrl = pages.url(name);
  await page.goto(page.expectedUrl);
  await page.waitForSelector("#summary strong");
  return pages.expected(name);
}

const text = (selector) => page.textContent(selector);
const choose = (group, value) => page.click(`#${group} [data-value="${value}"]`);
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const focusGraph = () => page.focus("#graph");
/** The focused element, as a screen reader describes it. */
const current = () => text("#graph-node");

/** A point in a row of the graph; rows are counted from the root of an icicle. */
async function pointInRow(row, share) {
  await page.evaluate(() => document.getElementById("graph-card").scrollIntoView());
  const box = await page.locator("#graph-canvas").boundingBox();
  return [box.x + share * box.width, box.y + (row + 0.5) * ROW];
}

async function rowsOfTable() {
  return page.$$eval("#table tbody tr", (rows) =>
    rows.map((row) => ({
      name: row.querySelector(".pick").textContent,
      place: row.querySelector(".place").textContent,
      self: row.querySelectorAll(".share span:first-child")[0].textContent,
      total: row.querySelectorAll(".share span:first-child")[1].textContent,
      samples: Number(row.querySelector(".samples").textContent.replaceAll(",", "")),
    })),
  );
}

describe("figures", () => {
  test("every choice of measure and objects adds up to what the profile says", async () => {
    const expected = await show("session");
    const counted = {
      all: () => true,
      "died-young": (fate) => fate === DIED_YOUNG,
      survived: (fate) => fate !== DIED_YOUNG,
      "still-alive": (fate) => fate === STILL_LIVE,
    };
    for (const [objects, counts] of Object.entries(counted)) {
      await choose("objects", objects);
      await choose("measure", "bytes");
      const bytes = sum(expected.bytes.filter((_, fate) => counts(fate)));
      assert.equal(await text("#summary strong"), `${format.bytes(bytes)} ${NAMES[objects]}`);
      await choose("measure", "allocations");
      const allocations = sum(expected.allocations.filter((_, fate) => counts(fate)));
      const what = objects === "all" ? "" : ` ${NAMES[objects]}`;
      assert.equal(await text("#summary strong"), `${format.count(allocations)} allocations${what}`);
    }
    await choose("measure", "time");
    const time = format.seconds(expected.cpu_samples / 100);
    assert.equal(await text("#summary strong"), `${time} of CPU time`);
    assert.ok(await page.isDisabled('#objects [data-value="survived"]'));
  });

  test("the table holds what each function allocated", async () => {
    const expected = await show("session");
    while (await page.isVisible("#table-more")) await page.click("#table-more");
    const rows = await rowsOfTable();
    const wanted = new Map(expected.functions.map(([name, place, ...sums]) => [`${name} ${place}`, sums]));
    assert.equal(rows.length, wanted.size);
    for (const row of rows) {
      const [self, total] = wanted.get(`${row.name} ${row.place}`);
      assert.deepEqual([row.self, row.total], [format.bytes(self), format.bytes(total)], row.name);
    }
  });

  test("merging by line splits functions, and changes no sum", async () => {
    await show("session");
    const before = [await text("#summary"), await rowsOfTable()];
    const picture = await page.locator("#graph-canvas").screenshot();
    await choose("frames", "line");
    assert.deepEqual([await text("#summary"), await rowsOfTable()], before);
    assert.notDeepEqual(await page.locator("#graph-canvas").screenshot(), picture);
  });

  test("the page's 95 % intervals are those of the report", async () => {
    const { interval } = await pageModule("interval.ts");
    for (const name of ["session", "large"]) {
      for (const set of pages.expected(name).intervals) {
        for (const quantity of ["bytes", "allocations"]) {
          const [moments, estimate] = set[quantity];
          const { low, high } = interval(moments, set[`heaviest_${quantity}`]);
          const near = (a, b) => assert.ok(Math.abs(a - b) <= 1e-6 * estimate.estimate, `${a} ${b}`);
          near(low, estimate.low);
          near(high, estimate.high);
        }
      }
    }
  });

  test("the total shows its interval", async () => {
    const { intervals } = await show("session");
    const { low, high } = intervals.at(-1).bytes[1];
    assert.equal(await text("#summary .faint"), `95 %: ${format.bytes(low)} – ${format.bytes(high)}`);
  });

  test("where every allocation was recorded, figures are called exact", async () => {
    const expected = await show("exact");
    assert.equal(await text("#summary strong"), `${format.bytes(sum(expected.bytes))} allocated`);
    assert.equal(await text("#summary .faint"), "exact");
  });

  test("a profile without samples gives an empty page that says so", async () => {
    await show("empty");
    assert.equal(await text("#summary strong"), "0 B allocated");
    assert.equal(await text("#table-count"), "0 in all");
  });
});

describe("graph", () => {
  test("the pointer shows a node's estimate, its interval and its fates", async () => {
    await show("session");
    await page.mouse.move(...(await pointInRow(1, 0.1)));
    const tip = page.locator("#tip");
    assert.match(await tip.textContent(), /GiB.* – .*GiB.*% of all.*samples.*died young.*%/);
    await page.mouse.move(5, 5);
    assert.ok(await tip.isHidden());
  });

  test("a click zooms, and Reset zoom goes back", async () => {
    await show("session");
    const whole = await text("#summary");
    await page.mouse.move(...(await pointInRow(1, 0.1)));
    const name = await text("#tip .name");
    await page.mouse.click(...(await pointInRow(1, 0.1)));
    const zoomed = await text("#summary");
    assert.match(zoomed, /% of all$/);
    assert.ok(zoomed.includes(`in ${name}`));
    // The box that fills the width is now under a point that was outside it.
    await page.mouse.move(...(await pointInRow(1, 0.95)));
    assert.equal(await text("#tip .name"), name);
    await page.click("#zoom-reset");
    assert.equal(await text("#summary"), whole);
  });

  test("icicle and flame are mirror images", async () => {
    await show("session");
    await page.mouse.move(...(await pointInRow(0, 0.5)));
    assert.equal(await text("#tip .name"), "all");
    await choose("orientation", "flame");
    await page.evaluate(() => document.getElementById("graph-card").scrollIntoView());
    const box = await page.locator("#graph-canvas").boundingBox();
    await page.mouse.move(box.x + 200, box.y + box.height - ROW / 2);
    assert.equal(await text("#tip .name"), "all");
  });

  test("each colouring has its legend and its picture", async () => {
    await show("session");
    const seen = new Set();
    for (const by of ["package", "type", "fate"]) {
      await choose("colour", by);
      seen.add((await page.locator("#graph-canvas").screenshot()).toString("base64"));
      const legend = await page.$$eval("#legend .swatched", (all) => all.map((one) => one.textContent));
      const shares = legend.map((entry) => Number(/([\d.]+) %$/.exec(entry)?.[1] ?? 0));
      assert.ok(Math.abs(sum(shares) - 100) < 0.5, `${by}: ${legend}`);
    }
    assert.equal(seen.size, 3);
    assert.match(await text("#legend"), /died young.*freed later.*alive at the end/);
  });
});

describe("search", () => {
  test("shows the share of what is found, by name and by pattern", async () => {
    const expected = await show("session");
    // Types are leaves, so nothing is counted twice, and their share is that of their rows.
    await choose("table-of", "types");
    const dict = (await rowsOfTable()).find((row) => row.name === "float");
    await page.fill("#search", "FLOAT");
    const result = await text("#search-result");
    assert.ok(result.endsWith(` · ${dict.total}`), `${result} ${dict.total}`);
    assert.match(result, /^1 of [\d,]+ · [\d.]+ % · /);
    await page.fill("#search", "/^flo.t$/");
    assert.equal(await text("#search-result"), result);
    await page.fill("#search", "/./");
    assert.ok((await text("#search-result")).endsWith(` · 100 % · ${format.bytes(sum(expected.bytes))}`));
    await page.fill("#search", "nowhere to be found");
    assert.equal(await text("#search-result"), "nothing found");
    await page.fill("#search", "/(/");
    assert.equal(await text("#search-result"), "not a valid pattern");
  });

  test("highlights in the graph and filters the table; a row's name searches for it", async () => {
    await show("session");
    const plain = await page.locator("#graph-canvas").screenshot();
    const [first] = await rowsOfTable();
    await page.click("#table tbody tr:first-child .pick");
    assert.equal(await page.inputValue("#search"), first.name);
    assert.notDeepEqual(await page.locator("#graph-canvas").screenshot(), plain);
    for (const row of await rowsOfTable()) assert.ok(`${row.name} ${row.place}`.includes(first.name));
    await page.keyboard.press("Escape");
    assert.equal(await page.inputValue("#search"), "");
    assert.equal(await text("#search-result"), "");
  });
});

describe("range of time", () => {
  const dragTimeline = async (from, to) => {
    await drawn(page);
    const box = await page.locator("#timeline .overlay").boundingBox();
    const y = box.y + box.height / 2;
    await page.mouse.move(box.x + from * box.width, y);
    await page.mouse.down();
    await page.mouse.move(box.x + ((from + to) / 2) * box.width, y);
    await page.mouse.move(box.x + to * box.width, y);
    await page.mouse.up();
    await page.mouse.move(5, 5);
    await drawn(page);
  };
  const samples = async () => Math.max(...(await rowsOfTable()).map((row) => row.samples));

  test("the halves hold together what the whole holds", async () => {
    await show("session");
    const whole = await samples();
    await dragTimeline(0, 0.5);
    assert.match(await text("#timeline-legend .range"), /^Shown: 0 s to /);
    const first = await samples();
    await page.click("#range-reset");
    await dragTimeline(0.5, 1);
    const second = await samples();
    assert.equal(first + second, whole);
    assert.ok(first > 0.4 * whole && second > 0.4 * whole);
    await page.click("#range-reset");
    await drawn(page);
    assert.equal(await samples(), whole);
    assert.equal(await text("#timeline-legend .range"), "Shown: the whole session");
  });

  test("the keyboard moves it, widens it and lets it go", async () => {
    await show("session");
    const whole = await text("#summary");
    await page.focus("#timeline");
    const range = async () => {
      await drawn(page);
      return page.getAttribute("#timeline", "aria-valuetext");
    };
    await page.keyboard.press("ArrowRight");
    const narrow = await range();
    await page.keyboard.press("ArrowRight");
    const moved = await range();
    await page.keyboard.press("Shift+ArrowRight");
    const widened = await range();
    assert.equal(new Set([narrow, moved, widened, "the whole session"]).size, 4);
    assert.equal(widened.split(" to ")[0], moved.split(" to ")[0]);
    await page.keyboard.press("Escape");
    assert.equal(await range(), "the whole session");
    await drawn(page);
    assert.equal(await text("#summary"), whole);
  });
});

describe("table", () => {
  test("sorts by each column, both ways", async () => {
    await show("session");
    for (const key of ["samples", "name"]) {
      const sortedBy = async () => {
        await page.click(`[data-sort=${key}]`);
        const way = await page.getAttribute(`th:has([data-sort=${key}])`, "aria-sort");
        return [way, (await rowsOfTable()).map((row) => row[key])];
      };
      const ways = [await sortedBy(), await sortedBy()];
      assert.deepEqual(new Set(ways.map(([way]) => way)), new Set(["ascending", "descending"]));
      const compare = (a, b) => (key === "samples" ? a - b : a.localeCompare(b, "en", { numeric: true }));
      for (const [way, values] of ways) {
        const inOrder = values.toSorted(compare);
        assert.deepEqual(values, way === "ascending" ? inOrder : inOrder.toReversed());
      }
    }
    assert.equal(await page.locator("th[aria-sort]").count(), 1);
  });
});

describe("keyboard", () => {
  test("arrows walk, Enter zooms, Escape goes back, / searches", async () => {
    await show("session");
    await focusGraph();
    assert.match(await current(), /^all, 100 %, .* 95 %: .* – /);
    await page.keyboard.press("ArrowDown");
    const child = await current();
    await page.keyboard.press("ArrowRight");
    const sibling = await current();
    assert.equal(new Set(["all", child, sibling]).size, 3);
    await page.keyboard.press("ArrowLeft");
    assert.equal(await current(), child);
    await page.keyboard.press("ArrowUp");
    assert.match(await current(), /^all, /);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    assert.ok((await text("#summary .where")).includes(child.split(",")[0]));
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("#summary .where").count(), 0);
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.id), "search");
    await page.keyboard.type("float/");
    assert.equal(await page.inputValue("#search"), "float/");
    await page.keyboard.press("Escape");
    assert.equal(await page.inputValue("#search"), "");
    assert.equal(await page.evaluate(() => document.activeElement.id), "graph");
  });

  test("all controls can be reached and used", async () => {
    await show("session");
    const reached = new Set();
    for (let step = 0; step < 20; step++) {
      await page.keyboard.press("Tab");
      reached.add(await page.evaluate(() => document.activeElement.closest("[id]")?.id));
    }
    for (const id of ["measure", "objects", "orientation", "chains", "frames", "colour", "timeline", "search", "graph", "table-of"]) {
      assert.ok(reached.has(id), `${id} among ${[...reached]}`);
    }
    await page.focus('#objects [aria-checked="true"]');
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.getAttribute('#objects [data-value="died-young"]', "aria-checked"), "true");
    await focusGraph();
    await page.keyboard.press("?");
    assert.ok(await page.isVisible("#help"));
    await page.keyboard.press("Escape");
    assert.ok(await page.isHidden("#help"));
  });
});

describe("theme", () => {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);

  test("follows the system, until the reader chooses", async () => {
    await open({ colorScheme: "dark" });
    await show("session");
    const dark = await ground();
    await page.emulateMedia({ colorScheme: "light" });
    const light = await ground();
    assert.notEqual(dark, light);
    const picture = await page.locator("#graph-canvas").screenshot();
    await page.click("#theme-button");
    assert.equal(await ground(), dark);
    assert.notDeepEqual(await page.locator("#graph-canvas").screenshot(), picture);
    await page.click("#theme-button");
    assert.equal(await ground(), light);
  });
});

describe("what a page must withstand", () => {
  test("names are text: nothing in a profile becomes markup or script", async () => {
    await show("hostile");
    await page.mouse.move(...(await pointInRow(1, 0.1)));
    for (const of of ["types", "files", "functions"]) await choose("table-of", of);
    for (const by of ["type", "package"]) await choose("colour", by);
    await page.click("#table tbody tr:nth-child(3) .pick");
    await page.fill("#search", "</script>");
    assert.match(await text("#search-result"), /%/);
    assert.equal(await page.evaluate(() => window.injected), undefined);
    assert.equal(await page.locator("main img, #tip img, body svg:not(#timeline-chart)").count(), 0);
    assert.equal(await page.locator("script").count(), 1);
    assert.match(await text("#table tbody"), /<\/script><script>window\.injected=1<\/script>/);
    // Marks that change the text's direction, and line ends, are escaped.
    assert.match(await text("#notes"), /\\u2028window/);
    const body = await page.evaluate(() => document.body.innerText);
    assert.doesNotMatch(body, /[\u202a-\u202e\u2066-\u2069]/);
    await page.fill("#search", "longlonglong");
    assert.match(await text("#search-result"), /%/);
  });

  test("a page's text holds nothing of the profile outside the block of data", async () => {
    assert.equal(pages.html("hostile").replace(/(id="data">)[^<]*/, "$1"), pages.html("session").replace(/(id="data">)[^<]*/, "$1"));
    assert.match(pages.html("hostile"), /id="data">[A-Za-z0-9+/]+=*<\/script>/);
  });

  test("the policy forbids all requests and all scripts but the page's own", async () => {
    await show("session");
    const policy = await page.getAttribute("meta[http-equiv=Content-Security-Policy]", "content");
    assert.match(policy, /^default-src 'none'; script-src 'sha256-[^;]+'; style-src 'sha256-[^;]+';/);
    const blocked = await page.evaluate(async () => {
      const script = document.createElement("script");
      script.textContent = "window.injected = 1";
      document.body.append(script);
      const fetched = await fetch("https://example.org/").then(() => "fetched", () => "refused");
      return [window.injected, fetched];
    });
    assert.deepEqual(blocked, [undefined, "refused"]);
    assert.ok(complaints.length >= 2, "the browser reports both");
    complaints.length = 0;
  });

  test("a narrow window has no sideways scrolling", async () => {
    await open({ viewport: { width: 360, height: 700 } });
    for (const name of ["session", "hostile"]) {
      await show(name);
      const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide <= window, `${name}: ${wide} > ${window}`);
    }
  });

  test("damaged data give one clear line", async () => {
    await show("session");
    const broken = pages.html("session").replace(/(id="data">)[^<]{400}/, "$1");
    await page.setContent(broken);
    await page.waitForSelector("#notice:not([hidden])");
    assert.match(await text("#notice"), /^This page could not be opened: /);
    assert.ok(await page.isHidden("#main"));
    complaints.length = 0;
  });
});

test("the committed page is what its sources build", () => {
  const npm = ["--silent", "--prefix", join(root, "web"), "run", "check"];
  execFileSync("npm", npm, { stdio: ["ignore", "inherit", "inherit"] });
});

describe("a difference", () => {
  test("shows the means of both sides, and colours what changed", async () => {
    const expected = await show("difference");
    for (const side of ["new", "old"]) {
      await choose("side", side);
      await choose("measure", "bytes");
      assert.equal(await text("#summary strong"), `${format.bytes(sum(expected[side].bytes))} allocated`);
      await choose("measure", "allocations");
      assert.equal(await text("#summary strong"), `${format.count(sum(expected[side].allocations))} allocations`);
    }
    const legend = await page.$$eval("#legend .swatched bdi", (names) => names.map((name) => name.textContent));
    assert.deepEqual(legend, ["doubled, or new", "grew", "may be chance", "shrank", "halved, or gone"]);
    assert.match(await text("#facts"), /against app\.py --fast .* mean of 2 runs/);
    await focusGraph();
    await page.keyboard.press("ArrowDown");
    assert.match(await text("#tip"), /old.*new.*difference/);
  });

  test("a page of one profile has no sides", async () => {
    await show("session");
    assert.equal(await page.isVisible("#side"), false);
    assert.equal(await page.$("#colour [data-value='change']"), null);
  });
});
