// The page of `nthbyte flamegraph` on a web service and on large profiles, and the page of `nthbyte leaks`.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";

import { drawn, framesPass, launch, newPage } from "./browser.mjs";
import { makePages, pageModule } from "./pages.mjs";

/** The height of a row of the graph, as in web/src/paint.ts. */
const ROW = 21;
/** As in crates/report/examples/pages/made_up.rs. */
const MIDDLEWARE = 25;

let browser;
let pages;
let format;
let page;
/** What the page must not do; empty after each test. */
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

beforeEach(() => {
  complaints = [];
});

afterEach(async () => {
  await page?.close();
  page = null;
  assert.deepEqual(complaints, []);
});

async function show(name, options = {}) {
  await page?.close();
  page = await newPage(browser, { viewport: { width: 1440, height: 900 }, reducedMotion: "reduce", ...options });
  page.on("console", (message) => {
    // Chromium's advice on how these tests look at the canvas.
    if (!message.text().includes("willReadFrequently")) complaints.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  await page.goto(pages.url(name));
  await page.waitForSelector("#main:not([hidden]) .card");
}

const text = (selector) => page.textContent(selector);
const choose = (group, value) => page.click(`#${group} [data-value="${value}"]`);
const rows = () => page.evaluate(() => Math.round(document.getElementById("graph-space").offsetHeight / 21));
const work = () => page.evaluate(() => performance.getEntriesByName("nthbyte update").at(-1).detail);

/** The figures of the update that a key makes. It comes with a frame of its own, after what the key changes at once. */
async function workOfKey(key) {
  await page.evaluate(() => performance.clearMeasures("nthbyte update"));
  await page.keyboard.press(key);
  await page.waitForFunction(() => performance.getEntriesByName("nthbyte update").length > 0);
  return work();
}

/** The names in the tooltips of a column of boxes, from the top. */
async function column(share) {
  await page.evaluate(() => document.getElementById("graph-card").scrollIntoView());
  const box = await page.locator("#graph-canvas").boundingBox();
  const names = [];
  for (let y = ROW / 2; y < box.height; y += ROW) {
    await page.mouse.move(box.x + share * box.width, box.y + y);
    names.push((await page.isVisible("#tip")) ? await text("#tip .name") : null);
  }
  return names;
}

/** The colours in the legend, by their meanings. */
const legend = () =>
  page.$$eval("#legend .swatched", (all) =>
    Object.fromEntries(all.map((one) => [one.querySelector("bdi").textContent, one.querySelector(".swatch").style.background])),
  );

describe("chains of calls", () => {
  test("are one box, which a click opens; and all of them by a choice", async () => {
    await show("service");
    const folded = await rows();
    const names = await column(0.3);
    const at = names.indexOf("Middleware0.__call__");
    // main, run, and the fold with all of the middleware: the chain ends at the view.
    assert.ok(names.includes("view"), String(names));
    assert.ok(folded < 12, `${folded} rows`);
    const box = await page.locator("#graph-canvas").boundingBox();
    const fold = at >= 0 ? at : names.findIndex((name) => name?.startsWith("run"));
    await page.mouse.move(box.x + 0.3 * box.width, box.y + (fold + 0.5) * ROW);
    assert.match(await text("#tip"), /calls, each passing nearly all to the next/);
    await page.mouse.click(box.x + 0.3 * box.width, box.y + (fold + 0.5) * ROW);
    assert.ok((await rows()) >= MIDDLEWARE, "the chain is open");
    await choose("chains", "shown");
    const shown = await rows();
    assert.ok(shown >= MIDDLEWARE + 5);
    await choose("chains", "folded");
    assert.equal(await rows(), folded);
    await page.keyboard.press("c");
    assert.equal(await rows(), shown);
  });

  test("a search opens the chain that it finds something in", async () => {
    await show("service");
    await page.fill("#search", "Middleware17");
    assert.match(await text("#search-result"), /^1 of 1 · /);
    assert.ok((await rows()) >= MIDDLEWARE);
  });
});

describe("search", () => {
  const windows = [[1440, 900], [1100, 480], [720, 450], [450, 400]];
  for (const [width, height] of windows) {
    for (const orientation of ["icicle", "flame"]) {
      test(`Enter goes to the next match, and each is inside the window: ${width} x ${height}, ${orientation}`, async () => {
        await show("session", { viewport: { width, height } });
        await choose("orientation", orientation);
        await page.evaluate(() => scrollTo(0, 0));
        await page.fill("#search", "function_1");
        const [, all] = /^1 of ([\d,]+) · /.exec(await text("#search-result"));
        assert.ok(Number(all.replace(",", "")) > 20);
        for (let step = 1; step <= 12; step++) {
          assert.ok((await text("#search-result")).startsWith(`${step} of `));
          await inWindow();
          // The reader scrolls away: the next match is scrolled to again.
          if (step % 3 === 0) await page.evaluate((to) => scrollTo(0, to), step % 2 === 0 ? 0 : 1e6);
          await page.press("#search", "Enter");
        }
        await page.press("#search", "Shift+Enter");
        assert.ok((await text("#search-result")).startsWith("12 of "));
        await inWindow();
      });
    }
  }

  /** The outline of the match is inside the window, and the graph's head does not cover it. */
  async function inWindow() {
    const row = await outlined();
    const [head, high] = await page.evaluate(() => [Math.max(...["#graph-head", ".search"].map((part) => document.querySelector(part).getBoundingClientRect().bottom)), innerHeight]);
    assert.ok(row !== null && row > head - 1 && row + ROW <= high + 1, `row at ${row}, head ends at ${head}, window at ${high}`);
  }

  /** The height in the window of the box with the outline, read from the canvas. Its edges are lines of 12 pixels and more; the lines under matches are lower. */
  const outlined = async () => {
    await framesPass(page);
    return page.evaluate(() => {
      const canvas = document.getElementById("graph-canvas");
      const { width, height } = canvas;
      const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
      const mark = getComputedStyle(canvas).getPropertyValue("--mark").trim();
      const [r, g, b] = [1, 3, 5].map((at) => parseInt(mark.slice(at, at + 2), 16));
      const isMark = (x, y) => {
        const at = 4 * (y * width + x);
        return data[at] === r && data[at + 1] === g && data[at + 2] === b;
      };
      for (let x = 0; x < width; x++) {
        for (let y = 0, high = 0; y < height; y++) {
          high = isMark(x, y) ? high + 1 : 0;
          if (high === 12) return canvas.getBoundingClientRect().top + ((y - 11) * canvas.offsetHeight) / height;
        }
      }
      return null;
    });
  };

  test("a match that is too narrow is zoomed to", async () => {
    await show("large");
    await page.fill("#search", "Class77.method_1555");
    assert.match(await text("#search-result"), /^1 of /);
    assert.ok(await page.isVisible("#zoom-reset"));
    assert.notEqual(await outlined(), null);
  });
});

describe("callers and callees", () => {
  test("of a function are above and below it, with its total", async () => {
    await show("service");
    await page.click('#table tbody tr:has-text("view") .centre');
    assert.match(await text("#summary .where"), /^in all calls of view, .* callers above, callees below$/);
    const names = await column(0.2);
    const at = names.indexOf("view");
    assert.ok(at > 0 && names.indexOf("main") < at && names.indexOf("get") > at, String(names));
    const total = await page.$$eval("#table tbody tr", (all) => {
      const row = all.find((one) => one.querySelector(".pick").textContent === "view");
      return row.querySelectorAll(".share span:first-child")[1].textContent;
    });
    assert.equal(await text("#summary strong"), `${total} allocated`);
    // A click makes a caller or a callee the middle.
    const box = await page.locator("#graph-canvas").boundingBox();
    await page.mouse.click(box.x + 0.2 * box.width, box.y + (names.indexOf("get") + 0.5) * ROW);
    assert.match(await text("#summary .where"), /^in all calls of get, /);
    await page.click("#zoom-reset");
    assert.equal(await page.locator("#summary .where").count(), 0);
  });

  test("a recursive function counts once, and every function agrees with the table", async () => {
    await show("session");
    for (let row = 1; row <= 6; row++) {
      const total = await text(`#table tbody tr:nth-child(${row}) td:nth-child(4) span:first-child`);
      await page.click(`#table tbody tr:nth-child(${row}) .centre`);
      assert.equal(await text("#summary strong"), `${total} allocated`);
    }
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("#summary .where").count(), 0);
  });
});

describe("colours", () => {
  test("are those of your code, the standard library and packages, the same in every view", async () => {
    await show("service");
    const whole = await legend();
    // `yaml` was installed from the distribution PyYAML.
    const names = ["your code", "standard library", "django", "requests", "PyYAML", "no function"];
    assert.deepEqual(new Set(Object.keys(whole)), new Set(names));
    assert.equal(new Set(Object.values(whole)).size, names.length, "each has its own colour");
    for (const objects of ["died-young", "survived", "still-alive"]) {
      await choose("objects", objects);
      const shown = await legend();
      for (const [name, colour] of Object.entries(shown)) assert.equal(colour, whole[name], `${objects}: ${name}`);
    }
    // Only what has a box is in the legend.
    assert.deepEqual(Object.keys(await legend()), ["your code", "standard library", "django", "no function"]);
    await choose("objects", "all");
    await choose("measure", "allocations");
    await choose("orientation", "flame");
    assert.deepEqual(await legend(), whole);
  });

  test("of methods that attrs generates are those of the class's package", async () => {
    const { owners } = await pageModule("module.ts");
    const files = [
      "/v/lib/python3.13/site-packages/yaml/a.py",
      "/v/lib/python3.13/site-packages/six.py",
      "<attrs generated methods yaml.nodes.Node>",
      "<attrs generated init six.moves>",
      "<attrs generated methods app.models.User>",
      "/home/a/app.py",
      "<string>",
      "<frozen os>",
      "/v/bin/pytest",
      "/v/bin/tool.py",
    ];
    const functions = { name: [], file: [...files.keys()], line: [] };
    const { names, ofFunction } = owners({ header: { files, functions, distributions: { yaml: "PyYAML" } }, frameKind: [], frameFunction: [] });
    const expected = ["PyYAML", "six", "PyYAML", "six", "your code", "your code", "your code", "standard library", "pytest", "your code"];
    assert.deepEqual(Array.from(ofFunction, (at) => names[at]), expected);
  });

  test("of a function are the same in every view", async () => {
    await show("service");
    /** The colours of some functions' boxes, from the canvas. */
    const colours = async (share, wanted) => {
      const names = await column(share);
      await page.mouse.move(0, 0);
      await framesPass(page);
      const found = {};
      for (const name of wanted) {
        assert.ok(names.includes(name), `${name} among ${names}`);
        found[name] = await page.evaluate(
          ([share, row]) => {
            const canvas = document.getElementById("graph-canvas");
            return [...canvas.getContext("2d").getImageData(Math.round(share * canvas.width), row * 21 + 2, 1, 1).data].join();
          },
          [share, names.indexOf(name)],
        );
      }
      return found;
    };
    const whole = await colours(0.2, ["main", "run", "view", "get"]);
    assert.equal(new Set(Object.values(whole)).size, 4);
    await choose("measure", "allocations");
    assert.deepEqual(await colours(0.2, Object.keys(whole)), whole);
    await choose("orientation", "flame");
    assert.deepEqual(await colours(0.2, Object.keys(whole)), whole);
    await choose("orientation", "icicle");
    await choose("objects", "died-young");
    assert.deepEqual(await colours(0.2, Object.keys(whole)), whole);
    await page.focus("#timeline");
    await page.keyboard.press("ArrowRight");
    assert.deepEqual(await colours(0.2, Object.keys(whole)), whole);
    await page.click('#table tbody tr:has-text("view") .centre');
    const { view, get } = whole;
    assert.deepEqual(await colours(0.2, ["view", "get"]), { view, get });
    await choose("chains", "shown");
    assert.deepEqual(await colours(0.2, Object.keys(whole)), whole);
  });

  test("every pixel of the graph has a colour of the legend", async () => {
    await show("service");
    for (const by of ["package", "type", "fate"]) {
      await choose("colour", by);
      const strange = await page.evaluate(() => {
        const paint = document.createElement("canvas").getContext("2d");
        const rgb = (colour) => {
          paint.fillStyle = colour;
          paint.fillRect(0, 0, 1, 1);
          return [...paint.getImageData(0, 0, 1, 1).data.slice(0, 3)];
        };
        const style = getComputedStyle(document.getElementById("graph"));
        const known = [...document.querySelectorAll("#legend .swatch")].map((one) => rgb(one.style.background));
        known.push(rgb(style.getPropertyValue("--surface")));
        const canvas = document.getElementById("graph-canvas");
        const { width, height } = canvas;
        const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
        let strange = 0;
        // The upper edge of each row, where no text is. Shades of one colour differ by 15 at most.
        for (let y = 2; y < height; y += 21) {
          for (let x = 10; x < width - 10; x += 7) {
            const at = 4 * (y * width + x);
            if (data[at + 3] !== 255) continue;
            if (!known.some((colour) => colour.every((part, i) => Math.abs(part - data[at + i]) <= 15))) strange++;
          }
        }
        return strange;
      });
      assert.equal(strange, 0, by);
    }
  });

  test("what is alive at the end is called so, in the choice, the figure, the bars and the legend", async () => {
    await show("service");
    await choose("objects", "still-alive");
    assert.match(await text("#summary strong"), / alive at the end$/);
    assert.equal(await text('#objects [data-value="still-alive"]'), "Alive at the end");
    assert.match(await text(".panel.allocated"), /^Alive at the end, per /);
    await choose("colour", "fate");
    assert.match(await text("#legend"), /alive at the end 100 %/);
  });
});

test("each line of memory is whole, and its legend has a figure at every moment", async () => {
  await show("service");
  for (const line of ["rss", "heap_used"]) {
    const path = await page.getAttribute(`#timeline .series .${line}`, "d");
    assert.equal(path.match(/M/g).length, 1, path);
    assert.ok(path.match(/L/g).length > 10, path);
  }
  const box = await page.locator("#timeline svg").boundingBox();
  for (const share of [0.2, 0.31, 0.5, 0.77]) {
    await page.mouse.move(box.x + share * box.width, box.y + 40);
    assert.match(await text("#timeline-legend .rss"), /^RSS [\d.]+ MiB$/);
    assert.match(await text("#timeline-legend .heap_used"), /^heap used [\d.]+ MiB$/);
  }
});

test("lines and bars have axes of their own, which do not overlap", async () => {
  await show("session");
  const box = (selector) => page.locator(selector).first().boundingBox();
  const [lines, bars] = [await box("#timeline .y"), await box("#timeline .y-bars")];
  assert.ok(lines.y + lines.height <= bars.y + 1, `${JSON.stringify(lines)} ${JSON.stringify(bars)}`);
  assert.match(await text("#timeline .y-bars"), /iB$/);
  assert.match(await text("#timeline .y"), /iB$/);
});

describe("large profiles", () => {
  test("an update looks at each record at most once, a small move at few, and it draws what can be seen", async () => {
    await show("large");
    const { records, nodes, boxes } = await work();
    assert.equal(records, 180_000);
    assert.ok(nodes <= 60_001 + 180_000, `${nodes} nodes`);
    assert.ok(boxes < 1440 * 2 * 60, `${boxes} boxes`);
    await page.focus("#timeline");
    const part = await workOfKey("ArrowRight");
    assert.deepEqual([part.records, part.nodes], [records, nodes]);
    const moved = await workOfKey("ArrowRight");
    assert.ok(moved.records < records / 2, `${moved.records} records after a move by a 64th`);
  });

  test("too many stacks are pruned: sums stay, and a line says what is missing", async () => {
    await show("pruned");
    assert.ok(pages.html("pruned").length < 5e5, `${pages.html("pruned").length} bytes`);
    const expected = pages.expected("pruned");
    const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
    assert.equal(await text("#summary strong"), `${format.bytes(sum(expected.bytes))} allocated`);
    for (const [objects, counts] of [["died-young", [0]], ["still-alive", [3]], ["survived", [1, 2, 3]]]) {
      await choose("objects", objects);
      const bytes = sum(expected.bytes.filter((_, fate) => counts.includes(fate)));
      assert.ok((await text("#summary strong")).startsWith(`${format.bytes(bytes)} `), objects);
    }
    const line = await text("#pruned");
    assert.match(line, /^Pruned: [\d,]+ of 20,000 stacks, each with less than [\d.]+ % of every view, .* “small calls”/);
    const commands = await page.$$eval("#pruned code", (all) => all.map((one) => one.textContent));
    assert.deepEqual(commands, ["nthbyte tree", "nthbyte summary", "nthbyte flamegraph --since … --until …"]);
    const { records, nodes } = await work();
    assert.ok(records <= 40_000 && nodes < 3 * 20_000);
    await page.fill("#search", "small calls");
    assert.match(await text("#search-result"), /^1 of [\d,]+ · /);
  });

  for (const name of ["large", "pruned"]) {
    test(`have the same views as small ones: ${name}`, async () => {
      await show(name);
      // The graph begins in the window, with the callers, and is not higher than it.
      const graph = await page.locator("#graph").boundingBox();
      assert.ok(graph.y < 600 && graph.height < 900, JSON.stringify(graph));
      assert.equal(await page.evaluate(() => document.getElementById("graph").scrollTop), 0);
      const colours = await legend();
      // A search goes from match to match, with a share of all.
      await page.fill("#search", "Class1");
      assert.match(await text("#search-result"), /^1 of [\d,]+ · /);
      await page.press("#search", "Enter");
      assert.match(await text("#search-result"), /^2 of /);
      await page.press("#search", "Escape");
      await page.keyboard.press("Escape");
      await drawn(page);
      // All calls of a function have the total that the table says; on a pruned page both have only those that were kept.
      for (const row of [1, 2]) {
        const total = await text(`#table tbody tr:nth-child(${row}) td:nth-child(4) span:first-child`);
        await page.click(`#table tbody tr:nth-child(${row}) .centre`);
        assert.equal(await text("#summary strong"), `${total} allocated`);
        await page.click("#zoom-reset");
      }
      // A part of the time and what is alive have the same colours.
      await page.focus("#timeline");
      await page.keyboard.press("ArrowRight");
      await choose("objects", "still-alive");
      assert.match(await text("#summary strong"), /^[\d.,]+ [KMGT]?i?B alive at the end$/);
      assert.deepEqual(await legend(), colours);
    });
  }

  test("a page that holds everything has no such line", async () => {
    await show("large");
    assert.ok(await page.isHidden("#pruned"));
  });
});

describe("keys", () => {
  test("Escape sums nothing again if there is nothing to undo", async () => {
    await show("service");
    await drawn(page);
    await page.evaluate(() => performance.clearMeasures());
    await page.focus("#graph");
    await page.keyboard.press("Escape");
    await drawn(page);
    assert.equal(await page.evaluate(() => performance.getEntriesByType("measure").length), 0);
  });
});

describe("leaks", () => {
  test("shows the place, its figures, its curve with an interval, and the survival of its objects", async () => {
    await show("leak");
    const { profiles } = pages.expected("leak");
    const [finding] = profiles[0].findings;
    assert.ok(finding, "the made-up leak is found");
    const card = page.locator(".finding").first();
    assert.equal(await card.locator("h2").textContent(), finding.place.function);
    assert.match(await card.textContent(), /cache\.py/);
    const figures = await card.locator(".figures").textContent();
    const growth = finding.per_minute ?? finding.grown;
    assert.ok(figures.startsWith(`${format.bytes(finding.held.estimate)} alive at the end`), figures);
    assert.ok(figures.includes(`95 %: ${format.bytes(growth.low)} – ${format.bytes(growth.high)}`), figures);
    assert.equal(await card.locator("svg").count(), 2);
    const label = await card.locator("svg").first().getAttribute("aria-label");
    assert.ok(label.endsWith(`${format.bytes(finding.curve.at(-1))} at the end`), label);
    assert.match(await card.locator("svg").nth(1).getAttribute("aria-label"), /^Survival of .* live longer than /);
    assert.equal(await page.evaluate(() => document.scripts.length), 1, "names are text");
    assert.equal(await page.locator("main script").count(), 0);
  });

  test("the band at the end of the curve is the interval of what is alive then", async () => {
    await show("leak");
    const { curvePoints } = await pageModule("curve.ts");
    const [finding] = pages.expected("leak").profiles[0].findings;
    const last = curvePoints(finding.curve, 1, finding.held.estimate / finding.samples).at(-1);
    for (const side of ["low", "high"]) {
      assert.ok(Math.abs(last[side] / finding.held[side] - 1) < 0.02, `${side}: ${last[side]} ${finding.held[side]}`);
    }
  });
});
