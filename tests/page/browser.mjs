// Debian's Chromium, driven by playwright-core.
import { chromium } from "playwright-core";

/** Starts a browser; `CHROMIUM` names another one than /usr/bin/chromium. */
export function launch(more = []) {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
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
