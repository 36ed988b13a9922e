// What was alive at the peak and at a moment: the page's figures are those of all other reports.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { drawn, framesPass, launch, newPage } from "./browser.mjs";
import { makePages, pageModule } from "./pages.mjs";

let browser;
let pages;
let format;
let page;
const complaints = [];

before(async () => {
  pages = makePages();
  format = await pageModule("format.ts");
  browser = await launch();
  page = await newPage(browser, { viewport: { width: 1300, height: 1000 } });
  page.on("pageerror", (error) => complaints.push(error.message));
});

after(async () => {
  await browser?.close();
  pages?.remove();
  assert.deepEqual(complaints, []);
});

async function show(name) {
  await page.goto(pages.url(name));
  await page.waitForSelector("#summary strong");
}

const text = (selector) => page.textContent(selector);
const choose = (group, value) => page.click(`#${group} [data-value="${value}"]`);
const chosen = () => page.getAttribute('#objects [aria-checked="true"]', "data-value");
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

/** The functions of the table: what each has alone and with what it calls. */
async function functions() {
  while (await page.isVisible("#table-more")) await page.click("#table-more");
  const rows = await page.$$eval("#table tbody tr", (all) =>
    all.map((row) => [
      `${row.querySelector(".pick").textContent} ${row.querySelector(".place").textContent}`,
      ...[...row.querySelectorAll(".share span:first-child")].map((cell) => cell.textContent),
    ]));
  return new Map(rows.map(([name, ...figures]) => [name, figures]));
}

/** Chooses a moment by the keyboard: so many parts of 256 from the start. Whether the page has it. */
async function chooseMoment(part) {
  await page.focus("#timeline");
  await page.keyboard.press("Home");
  await framesPass(page);
  const one = Number(await page.getAttribute("#timeline", "aria-valuenow"));
  for (let left = part - one; left >= one; left -= left >= 16 ? 16 : one) {
    await page.keyboard.press(left >= 16 ? "Shift+ArrowRight" : "ArrowRight");
  }
  await drawn(page);
  return Number(await page.getAttribute("#timeline", "aria-valuenow")) === part;
}

for (const name of ["session", "exact"]) {
  describe(`figures of what was alive: ${name}`, () => {
    test("at the peak are those of a report: the sum, its interval, and each function", async () => {
      await show(name);
      await choose("objects", "peak");
      const { peak } = pages.expected(name).alive;
      const whole = await text("#summary strong");
      assert.ok(whole.startsWith(`${format.bytes(sum(peak.bytes))} alive at the peak, `), whole);
      const { low, high } = peak.intervals.at(-1).bytes[1];
      const interval = name === "exact" ? "exact" : `95 %: ${format.bytes(low)} – ${format.bytes(high)}`;
      assert.equal(await text("#summary .faint"), interval);
      const found = await functions();
      const expected = peak.functions.filter(([, , , total]) => total > 0);
      assert.equal(found.size, expected.length);
      for (const [of, place, own, total] of expected) {
        assert.deepEqual(found.get(`${of} ${place}`), [format.bytes(own), format.bytes(total)], of);
      }
      // Of what has no sample, the interval says what half of the samples may have missed.
      const unseen = await page.$$eval("#table tbody tr", (all) =>
        all.map((row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent)).find(([self]) => self.startsWith("0 B"))[1]);
      const most = -Math.log(0.05) * peak.intervals[0].heaviest_bytes;
      assert.equal(unseen, name === "exact" ? "exact" : `0 B – ${format.bytes(most)}`);
      await choose("measure", "allocations");
      const allocations = format.count(sum(peak.allocations));
      assert.ok((await text("#summary strong")).startsWith(`${allocations} allocations alive at the peak, `));
    });

    test("at a moment are those of a report for the same moment", async () => {
      await show(name);
      await choose("objects", "moment");
      let compared = 0;
      for (const { part, expected } of pages.expected(name).alive.moments) {
        if (!(await chooseMoment(part))) continue;
        compared++;
        const whole = await text("#summary strong");
        assert.ok(whole.startsWith(`${format.bytes(sum(expected.bytes))} alive at `), `${part}: ${whole}`);
        const { low, high } = expected.intervals.at(-1).bytes[1];
        if (name !== "exact") assert.equal(await text("#summary .faint"), `95 %: ${format.bytes(low)} – ${format.bytes(high)}`);
        const found = await functions();
        for (const [of, place, own, total] of expected.functions) {
          assert.deepEqual(found.get(`${of} ${place}`), [format.bytes(own), format.bytes(total)], `${part}: ${of}`);
        }
      }
      assert.ok(compared >= 2, `${compared} moments`);
    });
  });
}

describe("moments", () => {
  test("a page for the peak opens so", async () => {
    await show("peak");
    assert.equal(await chosen(), "peak");
    assert.match(await text("#summary strong"), /^[\d.]+ [KMG]iB alive at the peak, [\d.]+ m?s$/);
    assert.match(await text("#timeline-legend .range"), /^Shown: alive at the peak, /);
  });

  test("a click in the timeline shows what was alive then, a drag moves the moment, Escape goes back", async () => {
    await show("session");
    const box = await page.locator("#timeline svg").boundingBox();
    const at = (share) => [box.x + share * box.width, box.y + 50];
    await page.mouse.click(...at(0.5));
    await drawn(page);
    assert.equal(await chosen(), "moment");
    const middle = await text("#summary strong");
    assert.match(middle, /^[\d.]+ [KMG]iB alive at [\d.]+ m?s$/);
    assert.ok(await page.isHidden("#range-reset"), "there is no range");
    await page.mouse.move(...at(0.5));
    await page.mouse.down();
    await page.mouse.move(...at(0.8), { steps: 4 });
    await page.mouse.up();
    await drawn(page);
    const later = await text("#summary strong");
    assert.notEqual(later, middle);
    assert.ok(await page.isHidden("#range-reset"), "the drag moved the moment alone");
    await page.mouse.click(...at(0.8));
    await drawn(page);
    assert.equal(await text("#summary strong"), later);
    await page.keyboard.press("Escape");
    assert.equal(await chosen(), "all");
    // A drag over the timeline of what was allocated still chooses a range.
    await page.mouse.move(...at(0.3));
    await page.mouse.down();
    await page.mouse.move(...at(0.6), { steps: 4 });
    await page.mouse.up();
    assert.equal(await chosen(), "all");
    assert.ok(await page.isVisible("#range-reset"));
    await choose("objects", "peak");
    assert.ok(await page.isHidden("#range-reset"), "a moment has no range");
  });

  test("callers and callees, lines and colours are of the moment too", async () => {
    await show("session");
    await choose("objects", "peak");
    await choose("colour", "fate");
    assert.match(await text("#legend"), /alive at the end \d/);
    const total = await text("#table tbody tr:first-child td:nth-child(4) span:first-child");
    await page.click("#table tbody tr:first-child .centre");
    assert.ok((await text("#summary strong")).startsWith(`${total} alive at the peak`));
    await page.click("#zoom-reset");
    const whole = await text("#summary strong");
    await choose("frames", "line");
    assert.equal(await text("#summary strong"), whole);
  });

  test("a profile that does not know them says why", async () => {
    await show("empty");
    assert.ok(await page.isDisabled('#objects [data-value="peak"]'));
    assert.match(await page.getAttribute('#objects [data-value="moment"]', "title"), /no allocation samples/);
  });
});

describe("hover", () => {
  test("covers neither its box nor what is below it in the tree", async () => {
    await show("service");
    for (const orientation of ["icicle", "flame"]) {
      await choose("orientation", orientation);
      await page.evaluate(() => document.getElementById("graph").scrollIntoView({ block: "end" }));
      const box = await page.locator("#graph-canvas").boundingBox();
      for (const [share, row] of [[0.1, 1], [0.3, 3], [0.7, 6], [0.9, 2]]) {
        const y = orientation === "icicle" ? box.y + (row + 0.5) * 21 : box.y + box.height - (row + 0.5) * 21;
        await page.mouse.move(box.x + share * box.width, y);
        const tip = await page.locator("#tip").boundingBox();
        const [top, bottom] = [y - 10.5, y + 10.5];
        const isClear = orientation === "icicle" ? tip.y + tip.height <= top : tip.y >= bottom;
        // Without room on the side of the callers it is beside the pointer.
        const isAside = Math.abs(tip.x - (box.x + share * box.width)) > 100;
        assert.ok(isClear || isAside, `${orientation} ${row}: ${JSON.stringify(tip)} ${y}`);
        if (orientation === "icicle") assert.ok(isClear, "there is room above the graph");
      }
    }
  });
});

describe("bars", () => {
  test("a huge one is cut, so that the others can be compared", async () => {
    const { scaleOf } = await pageModule("bars.ts");
    const [few, many] = [[1, 2, 3, 100], Array.from({ length: 100 }, (_, at) => 1 + (at % 9))];
    assert.deepEqual(scaleOf(few), { full: 100, longest: 100 }, "of few bars each is whole");
    assert.deepEqual(scaleOf(many), { full: 9, longest: 9 });
    assert.deepEqual(scaleOf([...many, 500, 600]), { full: 1.3 * 9, longest: 9 });
    assert.deepEqual(scaleOf([...many, 20]), { full: 20, longest: 20 }, "twice as long is not huge");
    assert.deepEqual(scaleOf([...many, ...Array(40).fill(500)]), { full: 500, longest: 500 }, "many are no exception");
    assert.deepEqual(scaleOf([]), { full: 0, longest: 0 });
  });
});
