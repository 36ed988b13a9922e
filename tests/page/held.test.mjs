// The card of the page that says who holds what is alive, and what it has to do with the graph of who allocated it.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { launch, newPage } from "./browser.mjs";
import { makePages } from "./pages.mjs";

let browser;
let pages;
let page;

before(async () => {
  pages = makePages();
  browser = await launch();
  page = await newPage(browser, { viewport: { width: 1300, height: 1600 } });
  await page.goto(pages.url("held"));
  await page.waitForSelector("#held-card:not([hidden])");
});

after(async () => {
  await browser?.close();
  pages?.remove();
});

const text = (id) => page.textContent(id);

/** Clicks the middle of a box of the holders: a row from the top, and a part of the width. */
async function click(row, part) {
  const box = await page.locator("#held-canvas").boundingBox();
  await page.mouse.click(box.x + box.width * part, box.y + 21 * row + 10);
  await page.waitForTimeout(300);
}

const pixel = (id, row, part) => page.$eval(id, (canvas, [row, part]) => {
  const scale = canvas.width / canvas.clientWidth;
  return [...canvas.getContext("2d").getImageData(canvas.width * part, (21 * row + 3) * scale, 1, 1).data];
}, [row, part]);

describe("held by", () => {
  test("a page without a snapshot has no such card", async () => {
    await page.goto(pages.url("session"));
    await page.waitForSelector("#summary strong");
    assert.ok(await page.$eval("#held-card", (card) => card.hidden));
    await page.goto(pages.url("held"));
    await page.waitForSelector("#held-card:not([hidden])");
  });

  test("a click on a holder says how much it holds, and who allocated that", async () => {
    assert.match(await text("#held-summary"), /^all that is alive: /);
    assert.match(await text("#held-besides"), /^held by C code .*; garbage not yet collected .*; no holder found /);
    await click(1, 0.25);
    const zoomed = await text("#held-summary");
    assert.match(zoomed, /^(cache, dict|app\.orm\.models, list|__main__|app\.orm)/);
    assert.match(await text("#held-by"), /^Allocated by: .+ \d/);
    await page.click("#held-by .link");
    const name = await page.textContent("#held-by .link");
    assert.equal(await page.inputValue("#search"), name);
    await page.click("#held-reset");
    assert.match(await text("#held-summary"), /^all that is alive: /);
    await page.fill("#search", "");
  });

  test("a click on a function says who holds what it allocated", async () => {
    assert.ok(await page.$eval("#held-of", (line) => line.hidden));
    const graph = await page.locator("#graph-canvas").boundingBox();
    await page.mouse.click(graph.x + 30, graph.y + 21 + 10);
    await page.waitForTimeout(300);
    assert.match(await text("#held-of"), /^What .+ allocated is held by: .+ \d/);
    await page.click("#held-of .link");
    assert.doesNotMatch(await text("#held-summary"), /^all that is alive/);
    await page.click("#held-reset");
    await page.click("#zoom-reset");
    assert.ok(await page.$eval("#held-of", (line) => line.hidden));
  });

  test("the search finds holders and their types", async () => {
    await page.fill("#held-search", "session");
    assert.match(await text("#held-result"), /^\d.* % · /);
    await page.fill("#held-search", "no such thing");
    assert.equal(await text("#held-result"), "nothing found");
    await page.fill("#held-search", "/[/");
    assert.equal(await page.getAttribute("#held-search", "aria-invalid"), "true");
    await page.fill("#held-search", "");
  });

  test("its colours are those of the other graph", async () => {
    const colours = async () => [await pixel("#held-canvas", 1, 0.25), await pixel("#held-canvas", 1, 0.9)].join(" ");
    const seen = new Set();
    for (const by of ["Package", "Type", "Fate"]) {
      await page.getByRole("radio", { name: by, exact: true }).first().click();
      seen.add(await colours());
    }
    assert.equal(seen.size, 3);
    // What is alive has the colour of what is alive.
    const swatches = await page.$$eval("#legend .swatch", (all) => all.map((one) => getComputedStyle(one).backgroundColor));
    assert.ok(swatches.length > 0);
    await page.getByRole("radio", { name: "Package", exact: true }).first().click();
  });

  test("the keyboard moves and zooms", async () => {
    await page.focus("#held");
    await page.keyboard.press("ArrowDown");
    assert.doesNotMatch(await text("#held-node"), /^all that is alive/);
    await page.keyboard.press("Enter");
    await page.waitForTimeout(300);
    assert.doesNotMatch(await text("#held-summary"), /^all that is alive/);
    await page.keyboard.press("Escape");
    assert.match(await text("#held-summary"), /^all that is alive/);
  });
});
