// The page as the output of a notebook's cell, in frames like those that notebooks show outputs in.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { after, before, describe, test } from "node:test";

import { drawn, launch, newPage } from "./browser.mjs";
import { makePages, root } from "./pages.mjs";

let browser;
let pages;
let output;
const folder = mkdtempSync(join(tmpdir(), "nthbyte-notebook-"));

before(async () => {
  pages = makePages();
  const program = "import sys\nfrom nthbyte._notebook import Page\nprint(Page(sys.stdin.read(), 640)._repr_html_())";
  const env = { ...process.env, PYTHONPATH: join(root, "python") };
  const options = { input: pages.html("labels"), env, encoding: "utf8", maxBuffer: 1 << 28 };
  output = execFileSync(process.env.PYTHON ?? "python3", ["-c", program], options);
  browser = await launch();
});

after(async () => {
  await browser?.close();
  pages?.remove();
  rmSync(folder, { recursive: true });
});

const NO_POLICY = "";
// What VS Code's setting notebook.experimental.enableCsp allows; without it, there is no policy.
const POLICY =
  `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; ` +
  `style-src 'self' 'unsafe-inline'; img-src 'self' https: http: data:; font-src 'self' https:; connect-src https:; child-src https: data:">`;

/** Shows the output as VS Code does: as `innerHTML`, in a sandboxed frame with a base, and perhaps a policy. */
async function show(policy) {
  const inner =
    `<html><head><base href="https://file.example/folder/">${policy}</head><body><div id="container"></div>` +
    `<script>addEventListener("message", (event) => { document.getElementById("container").innerHTML = event.data; });</script></body></html>`;
  const file = join(folder, "outer.html");
  writeFileSync(
    file,
    `<iframe id="webview" sandbox="allow-same-origin allow-pointer-lock allow-scripts allow-downloads" style="width: 1200px; height: 900px"></iframe>
    <script type="application/json" id="texts">${JSON.stringify([inner, output]).replaceAll("<", "\\u003c")}</script>
    <script>
      const [inner, output] = JSON.parse(document.getElementById("texts").textContent);
      const frame = document.getElementById("webview");
      frame.onload = () => frame.contentWindow.postMessage(output, "*");
      frame.srcdoc = inner;
    </script>`,
  );
  const page = await newPage(browser, { viewport: { width: 1300, height: 1000 } });
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    // It is about the outer frame, which is VS Code's.
    if (!message.text().includes("can escape its sandboxing")) complaints.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(pathToFileURL(folder).href)) complaints.push(request.url());
  });
  await page.goto(pathToFileURL(file).href);
  const webview = await (await page.waitForSelector("#webview")).contentFrame();
  const shown = await (await webview.waitForSelector("#container iframe")).contentFrame();
  await shown.waitForSelector("#summary strong");
  return { page, shown, complaints };
}

describe("the output of a cell", () => {
  for (const [name, policy] of [["no policy", NO_POLICY], ["VS Code's policy", POLICY]]) {
    test(`is the page, and its controls work: ${name}`, async () => {
      const { page, shown, complaints } = await show(policy);
      const whole = await shown.textContent("#summary strong");
      assert.match(whole, /allocated$/);
      await shown.selectOption("#only", { label: "endpoint: /checkout" });
      await drawn(shown);
      assert.notEqual(await shown.textContent("#summary strong"), whole);
      await shown.click('#objects [data-value="still-alive"]');
      await drawn(shown);
      assert.match(await shown.textContent("#summary strong"), /alive/);
      assert.deepEqual(complaints, []);
      await page.close();
    });
  }
});
