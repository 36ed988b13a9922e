// The panel of the page that says what the resident set was made of.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { launch, newPage } from "./browser.mjs";
import { makePages, pageModule } from "./pages.mjs";

let browser;
let pages;
let format;
let page;

before(async () => {
  pages = makePages();
  format = await pageModule("format.ts");
  browser = await launch();
  page = await newPage(browser, { viewport: { width: 1300, height: 1000 } });
});

after(async () => {
  await browser?.close();
  pages?.remove();
});

async function show(name) {
  await page.goto(pages.url(name));
  await page.waitForSelector("#summary strong");
  return pages.expected(name);
}

/** The table's cells. */
const cells = () => page.$$eval("#memory-table tbody tr", (rows) =>
  rows.map((row) => [...row.children].map((cell) => cell.textContent.trim())));

describe("what RSS is made of", () => {
  test("the peak is shown first, each row with its bytes and interval, and groups are sums", async () => {
    const moments = await show("memory");
    const peak = moments.find(({ at }) => at === "peak");
    await page.click("#memory-details summary");
    const found = await cells();
    for (const row of peak.rows.filter(({ name, group, key }) => name !== group && key !== "agent")) {
      const { low, estimate, high } = row.bytes;
      const cell = found.find(([name]) => name === row.name);
      assert.ok(cell, `no row ${row.name}`);
      assert.equal(cell[1], format.bytes(estimate));
      assert.equal(cell[3], row.counted || high <= low ? "" : `${format.bytes(low)} – ${format.bytes(high)}`);
      const group = peak.rows.filter((other) => other.group === row.group);
      const sum = group.reduce((sum, { bytes }) => sum + bytes.estimate, 0);
      assert.equal(found.find(([name]) => name === row.group)[1], format.bytes(Math.max(sum, 0)));
    }
    // The made-up session has a higher RSS between two readings.
    assert.ok(peak.peak_rss > 1.02 * peak.rss, `${peak.peak_rss} ${peak.rss}`);
    assert.match(await page.textContent("#memory-when"), /in the largest reading/);
    assert.ok((await page.textContent("#memory-notes")).includes(format.bytes(peak.peak_rss)));
    assert.match(await page.textContent("#memory-notes"), /Held by what survives of/);
    const bar = await page.$$eval("#memory-bar span", (parts) => parts.map((part) => part.getBoundingClientRect().width));
    const whole = await page.$eval("#memory-bar", (box) => box.clientWidth);
    assert.ok(Math.abs(bar.reduce((sum, width) => sum + width, 0) - whole) < 5);
  });

  test("the slider goes through the moments, by keyboard too", async () => {
    const moments = await show("memory");
    await page.click("#memory-details summary");
    await page.focus("#memory-moment");
    await page.keyboard.press("Home");
    for (const moment of moments) {
      assert.match(await page.textContent("#memory-when"), new RegExp(`^${format.bytes(moment.rss)}`));
      assert.equal(await page.getAttribute("#memory-moment", "aria-valuetext"), await page.textContent("#memory-when"));
      await page.keyboard.press("ArrowRight");
    }
  });

  test("a profile without it has no panel", async () => {
    await show("session");
    assert.equal(await page.isVisible("#memory-card"), false);
  });
});
