// Opens a file in speedscope itself, in headless Chromium, and prints the page's title and errors.
// Usage: speedscope.mjs INDEX.HTML PROFILE
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

const [index, profile] = process.argv.slice(2);
const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find(existsSync);
// Milliseconds after which a call that hangs ends; long enough for a slow machine.
const LONG = 300_000;
const browser = await chromium.launch({
  executablePath,
  timeout: LONG,
  args: ['--no-sandbox', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--use-gl=angle', '--use-angle=swiftshader'],
});
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(LONG);
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('dialog', async (dialog) => {
    errors.push(dialog.message());
    await dialog.dismiss();
  });
  // What speedscope's own command does: a script beside the page hands the file over.
  const script = `${profile}.js`;
  const content = readFileSync(profile).toString('base64');
  writeFileSync(script, `speedscope.loadFileFromBase64('run.json', '${content}')`);
  await page.goto(`file://${index}#localProfilePath=${script}`);
  await page.waitForFunction(() => document.title !== 'speedscope')
    .catch(() => errors.push('the title never changed'));
  console.log(JSON.stringify({ title: await page.title(), errors }));
} finally {
  await browser.close();
}
