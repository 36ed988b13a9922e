// Builds the pages: each is one HTML file with a marker that the profile's data replace.
//
//   node build.mjs           writes crates/report/assets/flamegraph.html and leaks.html
//   node build.mjs --check   fails if one of them differs from what the sources build
import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "../crates/report/assets");
/** The sources of each page: its markup, its script and its style. */
const PAGES = {
  "flamegraph.html": ["src/page.html", "src/main.ts", "src/page.css"],
  "leaks.html": ["src/leaks.html", "src/leaks.ts", "src/leaks.css"],
};
const DATA = "@NTHBYTE_DATA@";

async function bundle(entry) {
  const built = await esbuild.build({
    absWorkingDir: here,
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: "iife",
    target: ["chrome113", "firefox115", "safari16.4"],
    charset: "ascii",
    legalComments: "none",
    outdir: "out",
  });
  // The bundle is inside an element: no end tag and no comment in it may end that element.
  const text = built.outputFiles[0].text.trim().replaceAll("</", "<\\/").replaceAll("<!--", "<\\!--");
  return { text, inputs: Object.keys(built.metafile.inputs) };
}

/** The licence texts of all packages in the bundle. Equal texts occur once. */
function licences(inputs) {
  const packages = new Set(inputs.map((input) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1]).filter(Boolean));
  const texts = new Map();
  for (const name of [...packages].sort()) {
    const folder = join(here, "node_modules", name);
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} has no licence text`);
    const text = readFileSync(join(folder, file), "utf8").replaceAll("\r\n", "\n").trim();
    texts.set(text, [...(texts.get(text) ?? []), `${name} ${version}`]);
  }
  return [...texts].map(([text, names]) => `${names.join(", ")}:\n\n${text}`).join("\n\n");
}

function policy(style, script) {
  const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  return [
    "default-src 'none'",
    `script-src ${hash(script)}`,
    `style-src ${hash(style)}`,
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
}

async function page([markup, code, look]) {
  const style = await bundle(look);
  const script = await bundle(code);
  const notices = `This page contains:\n\n${licences([...script.inputs, ...style.inputs])}`;
  if (notices.includes("--")) throw new Error("a licence text would end the comment that holds it");
  const filled = { "@POLICY@": policy(style.text, script.text), "@STYLE@": style.text, "@SCRIPT@": script.text };
  let html = readFileSync(join(here, markup), "utf8").replace("</html>", `<!--\n${notices}\n-->\n</html>`);
  // A replacement string would interpret `$`; the result of a function is used unchanged.
  for (const [name, text] of Object.entries(filled)) html = html.replace(name, () => text);
  if (html.split(DATA).length !== 2) throw new Error(`the page must hold ${DATA} exactly once`);
  return html;
}

for (const [name, sources] of Object.entries(PAGES)) {
  const html = await page(sources);
  const target = join(assets, name);
  if (!process.argv.includes("--check")) {
    writeFileSync(target, html);
  } else if (!existsSync(target) || readFileSync(target, "utf8") !== html) {
    console.error(`crates/report/assets/${name} differs from what web/ builds: run \`npm --prefix web run build\`.`);
    process.exitCode = 1;
  }
}
