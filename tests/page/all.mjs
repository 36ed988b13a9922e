// Runs all files of tests, or those that are named: `node all.mjs [FILE…]`. They share the pages, which take longest to make.
import { spawnSync } from "node:child_process";

import { makePages, SHARED } from "./pages.mjs";

const pages = makePages();
try {
  const env = { ...process.env, [SHARED]: pages.folder };
  process.exitCode = spawnSync(process.execPath, ["--test", ...process.argv.slice(2)], { stdio: "inherit", env }).status ?? 1;
} finally {
  pages.remove();
}
