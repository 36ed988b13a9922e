// `nthbyte view`: the data that real pages in Chromium can and cannot read from it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";

import { launch, newPage } from "./browser.mjs";
import { command, makePages } from "./pages.mjs";

const PROFILER = "https://profiler.firefox.com";
/** A name that resolves to this machine, as an attacker's name may do. */
const REBOUND = "rebound.example";

let browser;
/** A browser that lets any page send requests to this machine, so that only the server can refuse them. */
let trusting;
let pages;
let view;
/** The command's exit status. */
let ended;
/** The address that is passed to the Firefox Profiler. */
let profile;

before(async () => {
  pages = makePages();
  view = spawn(command, ["view", "--no-browser", join(pages.folder, "session.nthb")], { stdio: ["ignore", "pipe", "ignore"] });
  ended = new Promise((resolve) => view.once("exit", resolve));
  const line = once(createInterface({ input: view.stdout }), "line");
  const [address] = await Promise.race([line, ended.then((status) => assert.fail(`view ended with ${status}`))]);
  assert.ok(address.startsWith(`${PROFILER}/from-url/`), address);
  profile = decodeURIComponent(address.slice(`${PROFILER}/from-url/`.length).split("/")[0]);
  browser = await launch();
  trusting = await launch([
    `--host-resolver-rules=MAP ${REBOUND} 127.0.0.1`,
    "--disable-features=LocalNetworkAccessChecks",
  ]);
});

after(async () => {
  await browser?.close();
  await trusting?.close();
  if (view) {
    view.kill("SIGTERM");
    assert.equal(await ended, 0, "it ends cleanly");
  }
  pages?.remove();
});

/** The result when a page of an origin fetches an address. */
async function fetchFrom(page, address) {
  return page.evaluate(async (address) => {
    try {
      const response = await fetch(address);
      const body = await response.json();
      return `${response.status}: ${body.threads.length > 0 ? "threads" : "no threads"}`;
    } catch (error) {
      return error.name;
    }
  }, address);
}

test("a page of the Firefox Profiler's origin reads the profile", async () => {
  const context = await browser.newContext();
  await context.grantPermissions(["local-network-access"], { origin: PROFILER });
  const page = await newPage(context);
  // Only the origin matters; the page itself and a network are not needed.
  await page.route(`${PROFILER}/**`, (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html>" }));
  await page.goto(PROFILER);
  assert.equal(await fetchFrom(page, profile), "200: threads");
  await context.close();
});

test("a page of another origin is refused", async (t) => {
  const server = createServer((_, response) => response.end("<!doctype html>"));
  t.after(() => server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const page = await newPage(trusting);
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  assert.equal(await fetchFrom(page, profile), "TypeError");
  // The request arrives: without CORS it gets an answer that the page cannot read.
  const opaque = await page.evaluate(async (address) => {
    const response = await fetch(address, { mode: "no-cors" });
    return [response.type, response.status, (await response.text()).length];
  }, profile);
  assert.deepEqual(opaque, ["opaque", 0, 0]);
});

test("looking at the address itself shows nothing", async () => {
  const page = await newPage(trusting);
  const response = page.waitForResponse(profile);
  await assert.rejects(page.goto(profile), /ERR_HTTP_RESPONSE_CODE_FAILURE/);
  assert.equal((await response).status(), 403);
});

test("a foreign name that points to this machine is refused", async () => {
  const page = await newPage(trusting);
  const rebound = profile.replace("127.0.0.1", REBOUND);
  // The attacker's own server answers first, so that a page of that origin exists.
  const attack = new URL("/attack", rebound).href;
  await page.route(attack, (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html>" }));
  await page.goto(attack);
  const answered = page.waitForResponse(rebound);
  // For the browser this is the same origin, so only the server's own check refuses it.
  assert.equal(await fetchFrom(page, rebound), "SyntaxError");
  assert.equal((await answered).status(), 403);
});
