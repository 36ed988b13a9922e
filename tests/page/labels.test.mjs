// Labels on the page: what is at the top of the graph, rows of the table, and one value alone. The figures are those of reports.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { drawn, launch, newPage } from "./browser.mjs";
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
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
/** The choice with this text: of a group of buttons, its value. */
const valueOf = (group, label) =>
  page.$$eval(`#${group} button`, (all, wanted) => all.find((one) => one.textContent === wanted)?.dataset.value, label);

/** The table's rows: name and total. */
async function rows() {
  while (await page.isVisible("#table-more")) await page.click("#table-more");
  return new Map(
    await page.$$eval("#table tbody tr", (all) =>
      all.map((row) => [row.querySelector(".pick").textContent, row.querySelectorAll(".share span:first-child")[1].textContent])),
  );
}

async function only(label) {
  await page.selectOption("#only", { label });
  await drawn(page);
}

describe("labels", () => {
  test("are at the top of the graph and rows of the table, with the sums of reports", async () => {
    await show("labels");
    const { all, ...values } = pages.expected("labels");
    const whole = await text("#summary strong");
    await choose("by", await valueOf("by", "endpoint"));
    await drawn(page);
    assert.equal(await text("#summary strong"), whole);
    const found = await rows();
    const named = Object.values(values).map((of) => sum(of.bytes));
    const shown = (value) => `endpoint=${format.visible(value)}`;
    for (const [value, of] of Object.entries(values)) assert.equal(found.get(shown(value)), format.bytes(sum(of.bytes)), value);
    assert.equal(found.get("[no label]"), format.bytes(sum(all.bytes) - sum(named)));
    assert.equal(found.size, Object.keys(values).length + 1);
    await page.fill("#search", "endpoint=/search");
    await drawn(page);
    assert.match(await text("#search-result"), /^1 of 1/);
    await page.fill("#search", "");
    await choose("measure", "time");
    await drawn(page);
    assert.ok((await rows()).has("endpoint=/checkout"));
  });

  test("one value alone: every figure is that of a report of it", async () => {
    await show("labels");
    const { "/checkout": expected, all } = pages.expected("labels");
    await only("endpoint: /checkout");
    assert.ok((await text("#summary strong")).startsWith(`${format.bytes(sum(expected.bytes))} allocated`));
    const found = await rows();
    for (const [name, , , total] of expected.functions) assert.equal(found.get(name), format.bytes(total), name);
    assert.equal(found.size, expected.functions.length);
    await choose("objects", "still-alive");
    await drawn(page);
    assert.ok((await text("#summary strong")).startsWith(format.bytes(expected.bytes[3])));
    await choose("objects", "all");
    // With another key at the top, the parts of the one value.
    await choose("by", await valueOf("by", "tenant"));
    await drawn(page);
    const tenants = await rows();
    assert.deepEqual([...tenants.keys()].sort(), ["[no label]", "tenant=a"]);
    await only("all");
    assert.ok((await text("#summary strong")).startsWith(`${format.bytes(sum(all.bytes))} allocated`));
  });

  test("types may be at the top; a page without groups offers neither", async () => {
    await show("session");
    assert.ok((await page.isHidden("#only-box")) && (await page.isHidden("#by")));
    await show("labels");
    await choose("table-of", "types");
    const before = await rows();
    const whole = await text("#summary strong");
    await choose("by", "type");
    await drawn(page);
    assert.equal(await text("#summary strong"), whole);
    assert.deepEqual(await rows(), before);
    await page.focus("#graph");
    await page.keyboard.press("ArrowDown");
    const first = await text("#graph-node");
    assert.ok([...before.keys()].some((name) => first.startsWith(`${name}, `)), first);
  });
});
