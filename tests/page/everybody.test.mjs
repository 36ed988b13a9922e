// Whether everybody can use the pages: at each size of the window, light and dark, by keyboard, by a screen reader.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";

import { launch, newPage } from "./browser.mjs";
import { makePages, pageModule } from "./pages.mjs";

/** 1440 and 900 pixels, and both zoomed to 200 %: half as many pixels of the page, each as large as two. */
const SIZES = {
  "1440 pixels": { viewport: { width: 1440, height: 900 } },
  "900 pixels": { viewport: { width: 900, height: 800 } },
  "1440 pixels at 200 %": { viewport: { width: 720, height: 450 }, deviceScaleFactor: 2 },
  "900 pixels at 200 %": { viewport: { width: 450, height: 400 }, deviceScaleFactor: 2 },
};
const SCHEMES = ["light", "dark"];

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let browser;
let pages;
let page;
/** What the page must not do; empty after each test. */
let complaints;

before(async () => {
  pages = makePages();
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

async function show(name, options) {
  await page?.close();
  page = await newPage(browser, { reducedMotion: "reduce", ...options });
  page.on("console", (message) => complaints.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  await page.goto(pages.url(name));
  await page.waitForSelector("#main:not([hidden]) .card");
}

const text = (selector) => page.textContent(selector);
const active = () => page.evaluate(() => document.activeElement.id);

describe("axe-core finds nothing serious", () => {
  async function findings() {
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    return violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`);
  }

  /** Looks at the page as it is now, in both schemes: the page follows the system. */
  async function check(what) {
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme });
      assert.equal(await page.evaluate(() => matchMedia("(prefers-color-scheme: dark)").matches), colorScheme === "dark");
      assert.deepEqual(await findings(), [], `${what}, ${colorScheme}`);
    }
  }

  for (const [size, options] of Object.entries(SIZES)) {
    test(size, async () => {
      for (const name of ["session", "pruned", "difference", "leak", "empty", "service"]) {
        await show(name, options);
        await page.evaluate(axe);
        await check(name);
      }
      await page.fill("#search", "remember");
      await page.focus("#timeline");
      await page.keyboard.press("ArrowRight");
      await page.focus("#graph");
      await page.keyboard.press("s");
      await check("with a search, a range, a tooltip, and one function's callers");
      await page.keyboard.press("?");
      await check("with the help");
    });
  }
});

describe("layout", () => {
  for (const [size, options] of Object.entries(SIZES)) {
    test(`nothing is cut, covered or scrolls sideways: ${size}`, async () => {
      for (const name of ["service", "session", "pruned", "difference", "leak"]) {
        await show(name, options);
        const faults = await page.evaluate(() => {
          const faults = [];
          const wide = document.documentElement.scrollWidth;
          if (wide > innerWidth) faults.push(`the page is ${wide} wide`);
          const visible = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest(".unseen");
          const name = (element) => `${element.id || element.className} ${element.textContent.slice(0, 30)}`;
          const apart = [...document.querySelectorAll("button, input, h1, h2, .swatched, .key, .summary, #facts, #search-result, #timeline, #graph, .place")].filter(visible);
          const boxes = apart.map((element) => element.getBoundingClientRect());
          boxes.forEach((box, at) => {
            if (box.left < 0 || box.right > innerWidth + 0.5) faults.push(`outside: ${name(apart[at])}`);
            for (let other = at + 1; other < boxes.length; other++) {
              const next = boxes[other];
              const across = Math.min(box.right, next.right) - Math.max(box.left, next.left);
              const down = Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top);
              if (across > 1 && down > 1 && !apart[at].contains(apart[other])) faults.push(`overlap: ${name(apart[at])}, ${name(apart[other])}`);
            }
          });
          // Names of functions and the command may end in an ellipsis; nothing else may.
          for (const element of document.querySelectorAll("button:not(.pick), h2, .swatched, .key, .summary, #facts, #pruned, .table-box, td")) {
            if (visible(element) && element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).display !== "inline") faults.push(`cut: ${name(element)}`);
          }
          for (const label of document.querySelectorAll("#timeline .x .tick text")) {
            const { left, right } = label.getBoundingClientRect();
            const chart = label.ownerSVGElement.getBoundingClientRect();
            if (left < chart.left || right > chart.right) faults.push(`cut: ${label.textContent}`);
          }
          const table = document.getElementById("table");
          const first = table?.querySelector("th.name").getBoundingClientRect().width;
          if (first < table?.clientWidth / 3) faults.push(`${first} pixels for names`);
          return faults;
        });
        assert.deepEqual(faults, [], name);
      }
    });
  }

  test("the graph opens with its leaves in the window, and is never higher than it", async () => {
    await show("service", SIZES["1440 pixels"]);
    const opened = await page.evaluate(() => ({ scrolled: scrollY, inside: document.getElementById("graph").scrollTop, ...document.getElementById("graph").getBoundingClientRect().toJSON() }));
    assert.deepEqual([opened.scrolled, opened.inside], [0, 0]);
    assert.ok(opened.top < 450 && opened.bottom < 900, JSON.stringify(opened));
    // The icicle's last rows are the types that `get` allocated.
    await page.focus("#graph");
    const leaves = [];
    for (let step = 0; step < 9; step++) {
      await page.keyboard.press("ArrowDown");
      leaves.push(await text("#graph-node"));
    }
    assert.ok(leaves.some((name) => name.startsWith("get, ")), leaves.join("; "));
    assert.equal(await page.evaluate(() => scrollY), 0);
    for (const options of Object.values(SIZES)) {
      await show("session", options);
      await page.click('#chains [data-value="shown"]');
      const high = await page.evaluate(() => document.getElementById("graph").offsetHeight);
      assert.ok(high < options.viewport.height, `${high} of ${options.viewport.height}`);
    }
  });
});

describe("contrast", () => {
  const AT_LEAST = 4.5;

  for (const colorScheme of SCHEMES) {
    test(`text on boxes is readable on every colour: ${colorScheme}`, async () => {
      const { fateColours } = await pageModule("colour.ts");
      const { changeColours } = await pageModule("change.ts");
      await show("service", { ...SIZES["1440 pixels"], colorScheme });
      const colours = [...fateColours(colorScheme), ...changeColours(colorScheme)];
      for (const by of ["package", "type"]) {
        await page.click(`#colour [data-value="${by}"]`);
        colours.push(...(await page.$$eval("#legend .swatch", (all) => all.map((one) => one.style.background))));
      }
      await show("large", { ...SIZES["1440 pixels"], colorScheme });
      colours.push(...(await page.$$eval("#legend .swatch", (all) => all.map((one) => one.style.background))));
      const ratios = await page.evaluate((colours) => {
        const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        const luminance = (...layers) => {
          for (const layer of layers) {
            pen.fillStyle = layer;
            pen.fillRect(0, 0, 1, 1);
          }
          const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map((part) => {
            const share = part / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
          });
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
        return colours.flatMap((colour) =>
          ["--frame-text", "--frame-faint"].map((name) => {
            const [dark, light] = [luminance(colour), luminance(colour, ink(name))].sort((a, b) => a - b);
            return { colour, name, ratio: (light + 0.05) / (dark + 0.05) };
          }),
        );
      }, colours);
      assert.ok(ratios.length > 30);
      assert.deepEqual(ratios.filter(({ ratio }) => ratio < AT_LEAST), []);
    });
  }
});

describe("keyboard only", () => {
  for (const [size, options] of Object.entries(SIZES)) {
    test(`every control is reached, and is seen when it is: ${size}`, async () => {
      await show("session", options);
      // Choices are one stop each: the arrow keys move in them.
      const expected = await page.evaluate(() => {
        const all = [...document.querySelectorAll("button, input, [tabindex='0']")];
        const stops = all.filter((element) => element.checkVisibility() && !element.disabled && element.tabIndex === 0 && !element.closest("dialog"));
        stops.forEach((element, at) => (element.dataset.stop = at));
        return stops.length;
      });
      assert.ok(expected > 100);
      const reached = new Set();
      for (let step = 0; step < expected; step++) {
        await page.keyboard.press("Tab");
        const now = await page.evaluate(() => {
          const element = document.activeElement;
          const { outlineStyle, outlineWidth } = getComputedStyle(element);
          const box = element.getBoundingClientRect();
          const [x, y] = [(box.left + box.right) / 2, (Math.max(box.top, 0) + Math.min(box.bottom, innerHeight)) / 2];
          const top = document.elementFromPoint(x, y);
          return {
            stop: element.dataset.stop,
            what: `${element.id} ${element.textContent.slice(0, 30)}`,
            outlined: outlineStyle === "solid" && parseFloat(outlineWidth) >= 2,
            uncovered: element.contains(top) || top?.contains(element) === true,
            inside: box.bottom > 0 && box.top < innerHeight,
          };
        });
        assert.ok(now.outlined && now.uncovered && now.inside, JSON.stringify(now));
        reached.add(now.stop);
      }
      assert.equal(reached.size, expected);
    });
  }

  test("every option of every choice is reached by the arrow keys", async () => {
    await show("session", SIZES["900 pixels"]);
    for (const group of await page.$$eval('[role="radiogroup"]:not([hidden])', (all) => all.map((one) => one.id))) {
      const options = await page.$$eval(`#${group} button:not(:disabled)`, (all) => all.map((one) => one.dataset.value));
      await page.focus(`#${group} [aria-checked="true"]`);
      const chosen = new Set();
      for (let step = 0; step < options.length; step++) {
        await page.keyboard.press("ArrowRight");
        chosen.add(await page.getAttribute(`#${group} [aria-checked="true"]`, "data-value"));
        assert.equal(await page.evaluate(() => document.activeElement.ariaChecked), "true");
      }
      assert.deepEqual([...chosen].sort(), options.sort(), group);
    }
  });

  test("a leak is found and looked at from both sides", async () => {
    await show("service", SIZES["900 pixels at 200 %"]);
    await page.focus('#objects [aria-checked="true"]');
    await page.keyboard.press("ArrowLeft");
    assert.match(await text("#summary strong"), / alive at the end$/);
    await page.focus("#graph");
    const seen = [];
    for (let step = 0; step < 12 && !seen.at(-1)?.startsWith("remember, "); step++) {
      await page.keyboard.press("ArrowDown");
      seen.push(await text("#graph-node"));
      const box = await page.locator("#tip").boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= 450 && box.y >= 0, JSON.stringify(box));
    }
    assert.match(seen.at(-1), /^remember, 100 %, /, seen.join("; "));
    await page.keyboard.press("s");
    assert.match(await text("#summary .where"), /^in all calls of remember, 100 % of all: callers above, callees below$/);
    await page.keyboard.press("ArrowUp");
    assert.match(await text("#graph-node"), /^view, /);
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("#summary .where").count(), 0);
    await page.keyboard.press("/");
    await page.keyboard.type("Middleware17");
    assert.equal(await active(), "search");
    assert.match(await text("#search-result"), /^1 of 1 · 100 % · /);
    await page.keyboard.press("Escape");
    assert.equal(await active(), "graph");
  });

  test("the focus stays where the next key is of use", async () => {
    await show("service", SIZES["1440 pixels"]);
    await page.focus(".centre");
    await page.keyboard.press("Enter");
    assert.match(await text("#summary .where"), /callers above, callees below$/);
    assert.equal(await active(), "graph");
    await page.focus("#zoom-reset");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("#summary .where").count(), 0);
    assert.equal(await active(), "graph");
    await page.focus(".pick");
    await page.keyboard.press("Enter");
    assert.match(await text("#search-result"), /^1 of /);
    assert.equal(await active(), "search");
    await page.keyboard.press("Escape");
    // The pointer has no use for it.
    await page.click(".centre");
    assert.notEqual(await active(), "graph");
  });

  test("a chain opens, and closes with all others", async () => {
    await show("service", SIZES["1440 pixels"]);
    await page.focus("#graph");
    let steps = 0;
    while (!(await text("#graph-node")).includes("folded calls") && steps++ < 10) await page.keyboard.press("ArrowDown");
    assert.match(await text("#graph-node"), /^\d+ folded calls from /);
    assert.equal(await page.getAttribute("#graph-node", "aria-expanded"), "false");
    await page.keyboard.press("Enter");
    assert.doesNotMatch(await text("#graph-node"), /folded/);
    assert.equal(await page.getAttribute("#graph-node", "aria-expanded"), null);
    await page.keyboard.press("ArrowDown");
    assert.match(await text("#graph-node"), /^Middleware1\.__call__, /);
    await page.keyboard.press("c");
    await page.keyboard.press("c");
    await page.keyboard.press("Home");
    assert.match(await text("#graph-node"), /^all, /);
  });
});

describe("the accessibility tree", () => {
  test("has each control by its role and name", async () => {
    await show("session", SIZES["1440 pixels"]);
    const controls = [
      ["button", "Help: keys and meanings"],
      ["button", "Dark or light"],
      ...["Measure", "Objects", "Direction", "Chains of calls", "Merge by", "Colour by", "Rows"].map((name) => ["radiogroup", name]),
      ["radio", "Alive at the end"],
      ["slider", "Range of time"],
      ["searchbox", "Search"],
      ["list", "Colours"],
      ["tree", "Flame graph"],
      ["table", "Functions, types or files"],
      ...["Name", "Self", "Total", "Samples"].map((name) => ["button", name]),
      ...["What is shown", "Memory over time", "Flame graph", "Table"].map((name) => ["region", name]),
    ];
    for (const [role, name] of controls) {
      // A sorted column's button has an arrow after its name.
      const pattern = new RegExp(`^${name}( [↓↑])?$`);
      assert.equal(await page.getByRole(role, { name: pattern }).count(), 1, `${role} ${name}`);
    }
    assert.match(await page.locator("#legend").ariaSnapshot(), /listitem: .*no function/);
  });

  test("says each box with its figure, its interval and its place", async () => {
    await show("session", SIZES["1440 pixels"]);
    await page.focus("#graph");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowRight");
    const item = page.getByRole("treeitem");
    assert.match(await item.textContent(), /^.+, [\d.]+ %, [\d.]+ .*, 95 %: .+ – .+$/);
    assert.deepEqual(await item.evaluate((one) => [one.ariaLevel, one.ariaPosInSet, Number(one.ariaSetSize) > 1, one.ariaSelected]), ["2", "2", true, "true"]);
    assert.equal(await page.getAttribute("#graph", "aria-activedescendant"), "graph-node");
    assert.match(await page.locator(`#${await page.getAttribute("#graph", "aria-describedby")}`).textContent(), /arrow keys/);
  });

  test("says the range of time, and what a search finds", async () => {
    await show("session", SIZES["1440 pixels"]);
    const slider = page.getByRole("slider");
    assert.equal(await slider.getAttribute("aria-valuetext"), "the whole session");
    await page.focus("#timeline");
    await page.keyboard.press("ArrowRight");
    // Both are written when the next frame is drawn.
    await page.waitForFunction(
      () => document.querySelector("[role=slider]").getAttribute("aria-valuetext") !== "the whole session",
    );
    assert.match(await slider.getAttribute("aria-valuetext"), /^[\d.]+ m?s to [\d.]+ m?s$/);
    await page.fill("#search", "function_1");
    await page.getByRole("status").filter({ hasText: /^1 of / }).waitFor({ state: "attached" });
  });
});
