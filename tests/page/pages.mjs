// The pages under test, written by crates/report's example `pages`; and the page's own modules.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
export const root = join(here, "../..");

/** Writes the pages into a new folder. */
export function makePages() {
  const folder = mkdtempSync(join(tmpdir(), "nthbyte-pages-"));
  const cargo = ["run", "-q", "-p", "nthbyte-report", "--example", "pages", "--", folder];
  execFileSync("cargo", cargo, { cwd: root, stdio: ["ignore", "inherit", "inherit"] });
  return {
    folder,
    url: (name) => pathToFileURL(join(folder, `${name}.html`)).href,
    html: (name) => readFileSync(join(folder, `${name}.html`), "utf8"),
    expected: (name) => JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8")),
  };
}

/** One of the page's modules, for calling its functions. */
export async function pageModule(name) {
  const { build } = createRequire(join(root, "web/package.json"))("esbuild");
  const entryPoints = [join(root, "web/src", name)];
  const built = await build({ entryPoints, bundle: true, write: false, format: "esm" });
  const source = Buffer.from(built.outputFiles[0].text).toString("base64");
  return import(`data:text/javascript;base64,${source}`);
}
