// Debian's Chromium, driven by playwright-core.
import { chromium } from "playwright-core";

// Milliseconds after which a call that hangs ends; long enough for a slow machine.
const LONG = 300_000;

/** Starts a browser: the one in the variable `CHROMIUM`, or /usr/bin/chromium. */
export function launch(more = []) {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    timeout: LONG,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      ...more,
    ],
  });
}

/** Opens a page in a browser or in one of its contexts. */
export async function newPage(browser, options = {}) {
  const page = await browser.newPage(options);
  page.setDefaultTimeout(LONG);
  return page;
}

/** Waits until the page shows a change: the page computes it in the frame after the next. */
export async function framesPass(page) {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

/** The same, and waits for the table, which follows when the range of time rests. */
export async function drawn(page) {
  await framesPass(page);
  await page.waitForFunction(() => document.getElementById("table").ariaBusy !== "true");
}
