// Debian's Chromium, driven by playwright-core.
import { chromium } from "playwright-core";

/** Starts a browser; `CHROMIUM` names another one than /usr/bin/chromium. */
export function launch(more = []) {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    // Ends what hangs, on a slow machine too.
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
