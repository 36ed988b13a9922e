// Debian's Chromium, driven by playwright-core.
import { chromium } from "playwright-core";

/** Starts a browser: the one in the variable `CHROMIUM`, or /usr/bin/chromium. */
export function launch(more = []) {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    // Ends a hanging call; long enough for a slow machine.
    timeout: 300_000,
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
