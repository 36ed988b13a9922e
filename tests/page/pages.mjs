// The pages under test, written by crates/report's example `pages`; and the page's own modules.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
export const root = join(here, "../..");

/** Cargo's target folder. */
const target = resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
/** The path of the command `nthbyte`. */
export const command = join(target, "debug/nthbyte");

/** The variable with the folder of pages that all files of tests share; `npm test` sets it. */
export const SHARED = "NTHBYTE_TEST_PAGES";

/** Writes the pages into a new folder, and builds the command too; or takes those that all files share. */
export function makePages() {
  const shared = process.env[SHARED];
  if (shared) return pagesIn(shared, () => {});
  const folder = mkdtempSync(join(tmpdir(), "nthbyte-pages-"));
  const options = { cwd: root, stdio: ["ignore", "inherit", "inherit"] };
  // The whole workspace, as `cargo test` builds it: one package alone has its dependencies built once more,
  // with other features.
  execFileSync("cargo", ["build", "-q", "--workspace", "--all-features", "--bins", "--examples"], options);
  execFileSync(join(target, "debug/examples/pages"), [folder], options);
  return pagesIn(folder, () => rmSync(folder, { recursive: true }));
}

function pagesIn(folder, remove) {
  return {
    folder,
    remove,
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
