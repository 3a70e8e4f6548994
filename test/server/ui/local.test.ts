// Local models of the web UI: the wasm engine runs in web workers of the browser, with files in the browser's storage.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { Browser, Page } from "playwright-core";
import { realModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";
import { assertClean, hasBrowser, launch, makeGreedy, openTab, openUi, send, settled, until } from "./browser.ts";

/** Matches a complete response of a local model. */
const answered = /\(This browser\)\n+\S[\s\S]*\d+ tokens · [\d.,]+ tokens\/s/;

describe("models in the browser", { skip: !hasBrowser }, () => {
  let path: string;
  let server: RunningServer;
  let browser: Browser;

  before(async () => {
    ({ path } = await realModel());
    server = await startServer(["-m", path, "--engine", "wasm", "--max-model-len", "2048", "--share-model-files"]);
    browser = await launch();
  });
  after(async () => {
    await browser.close();
    await server.stop();
  });

  /** Adds a model file from disk on the page of local models. */
  async function addFromDisk(page: Page, file = path): Promise<void> {
    await page.getByRole("link", { name: "This browser" }).click();
    await page.locator('input[type="file"][accept=".gguf"]').setInputFiles(file);
  }

  async function choose(page: Page): Promise<void> {
    await page.getByRole("cell", { name: basename(path), exact: true }).waitFor();
    await page.getByRole("button", { name: "New conversation" }).click();
    await page.getByLabel("Model", { exact: true }).selectOption(`browser:${basename(path)}`);
  }

  it("answer with a file from the disk, are stopped, and go on after a reload", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await makeGreedy(page);
    await addFromDisk(page);
    await choose(page);
    const first = await send(page, "Say hello.");
    await settled(page);
    assert.match(await first.innerText(), answered);
    const long = await send(page, "Repeat the word tick a thousand times.");
    await until(async () => (await long.innerText()).length > 80);
    await page.getByRole("button", { name: "Stop" }).click();
    await settled(page);
    assert.match(await long.innerText(), /Stopped/);
    await page.reload();
    const again = await send(page, "Say hello again.");
    await settled(page);
    assert.match(await again.innerText(), answered);
    assertClean(ui);
    await page.context().close();
  });

  it("give the same text as on the server without randomness", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await makeGreedy(page);
    const text = async () => {
      const answer = await send(page, "List five animals and where they live.");
      await settled(page);
      return await answer.locator(".markdown").innerText();
    };
    const ofServer = await text();
    await addFromDisk(page);
    await choose(page);
    assert.equal(await text(), ofServer);
    assert.ok(ofServer.length > 100, ofServer);
    assertClean(ui);
    await page.context().close();
  });

  it("give logprobs and JSON of a schema, continue a text, and reject what only a server supports", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await addFromDisk(page);
    await choose(page);
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Collect logprobs").check();
    await page.getByRole("button", { name: "Add a property" }).click();
    await page.getByLabel("Name of the property").fill("colour");
    await page.getByLabel("Type of the property").selectOption("boolean");
    const answer = await send(page, "Is the sky blue?");
    await settled(page);
    assert.deepEqual(Object.keys(JSON.parse(await answer.locator(".markdown").innerText())), ["colour"]);
    await answer.getByRole("button", { name: "Show logprobs" }).click();
    await answer.locator(".logprobs").waitFor();
    await page.getByRole("button", { name: "Remove colour" }).click();
    await page.getByLabel("Maximum tokens").fill("8");
    await page.getByLabel("Maximum tokens").blur();
    const cut = await send(page, "Write a long story.");
    await settled(page);
    const before = await cut.locator(".markdown").innerText();
    await page.getByRole("button", { name: "Continue" }).click();
    await settled(page);
    assert.ok((await cut.locator(".markdown").innerText()).startsWith(before));
    await page.locator('.composer input[type="file"]').setInputFiles({
      name: "notes.txt",
      mimeType: "text/plain",
      buffer: Buffer.from("a note"),
    });
    await page.getByText("notes.txt (").waitFor();
    const refused = await send(page, "What does the file say?");
    await settled(page);
    await refused.getByRole("alert").waitFor();
    assertClean(ui);
    await page.context().close();
  });

  it("are copied from a server that shares its files", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await page.getByRole("link", { name: "This browser" }).click();
    await page.getByRole("button", { name: `Copy ${basename(path)} from the server` }).click();
    await page.getByRole("cell", { name: basename(path), exact: true }).waitFor();
    await page.getByRole("button", { name: "Load" }).click();
    await page.getByText(/relaxed SIMD/).waitFor();
    await addFromDisk(page);
    await page.getByText("is kept already: delete it first").waitFor();
    await page.getByRole("button", { name: "Unload" }).click();
    await page.getByRole("cell", { name: "not loaded" }).waitFor();
    await page.getByRole("button", { name: "Load" }).click();
    // A model can be deleted even while it is being loaded.
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("button", { name: "Delete: really?" }).click();
    await page.getByText("This browser keeps no models.").waitFor();
    await addFromDisk(page);
    await page.getByRole("button", { name: "Load" }).click();
    await page.getByText(/relaxed SIMD/).waitFor();
    assertClean(ui);
    await page.context().close();
  });

  it("respond side by side, one after another, and after their files are removed", async () => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-local-"));
    const other = join(folder, "other.gguf");
    copyFileSync(path, other);
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await addFromDisk(page);
    await page.getByRole("cell", { name: basename(path), exact: true }).waitFor();
    await addFromDisk(page, other);
    await page.getByRole("cell", { name: "other.gguf", exact: true }).waitFor();
    await choose(page);
    await page.getByRole("button", { name: "Add a model beside" }).click();
    await page.getByLabel("Model 2").selectOption("browser:other.gguf");
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Maximum tokens").fill("16");
    await page.getByLabel("Maximum tokens").blur();
    await send(page, "Tell me about lighthouses.");
    await settled(page);
    const answers = page.locator("article.assistant");
    assert.equal(await answers.count(), 2);
    for (const text of await answers.allInnerTexts()) assert.match(text, answered);
    // A grammar needs the vocabulary, but the file must not be read a second time for it.
    const tab = await openTab(page.context(), server.url);
    await tab.page.getByRole("link", { name: "This browser" }).click();
    await tab.page.getByRole("button", { name: "Delete other.gguf" }).click();
    await tab.page.getByRole("button", { name: "Delete: really? other.gguf" }).click();
    await tab.page.getByRole("cell", { name: "other.gguf", exact: true }).waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Remove this model" }).click();
    await page.getByLabel("Model", { exact: true }).selectOption("browser:other.gguf");
    await page.getByRole("button", { name: "Add a property" }).click();
    await page.getByLabel("Name of the property").fill("isTall");
    await page.getByLabel("Type of the property").selectOption("boolean");
    const constrained = await send(page, "Is a lighthouse tall?");
    await settled(page);
    assert.deepEqual(Object.keys(JSON.parse(await constrained.locator(".markdown").innerText())), ["isTall"]);
    assertClean(ui);
    await page.context().close();
    rmSync(folder, { recursive: true });
  });

  it("can be stopped while they load", async () => {
    const { page } = await openUi(browser, server.url);
    await makeGreedy(page);
    await addFromDisk(page);
    await choose(page);
    const answer = await send(page, "Hello.");
    await page.getByRole("button", { name: "Stop" }).click();
    await settled(page);
    assert.match(await answer.innerText(), /Stopped/);
    const next = await send(page, "Hello again.");
    await settled(page);
    assert.match(await next.innerText(), answered);
    await page.context().close();
  });

  it("cannot contact other servers from their workers", async () => {
    let visits = 0;
    const elsewhere = createServer((_request, response) => {
      visits++;
      response.setHeader("access-control-allow-origin", "*").end("caught");
    });
    await new Promise<void>((resolve) => elsewhere.listen(0, "127.0.0.1", resolve));
    const { port } = elsewhere.address() as AddressInfo;
    const { page } = await openUi(browser, server.url);
    const [worker] = await Promise.all([
      page.waitForEvent("worker"),
      page.evaluate("void new Worker(new URL('page-worker.js', document.baseURI), { type: 'module', name: 'page' })"),
    ]);
    const outcome = await worker.evaluate(`fetch("http://127.0.0.1:${port}/").then(() => "sent", () => "blocked")`);
    assert.deepEqual([outcome, visits], ["blocked", 0]);
    await page.context().close();
    elsewhere.close();
  });

  it("respond while the server is down", async () => {
    const own = await startServer(["-m", path, "--max-model-len", "2048"]);
    const { page } = await openUi(browser, own.url);
    await makeGreedy(page);
    await addFromDisk(page);
    await page.getByRole("button", { name: "Load" }).click();
    await page.getByText(/relaxed SIMD/).waitFor();
    await choose(page);
    await own.stop();
    const answer = await send(page, "Say hello.");
    await settled(page);
    assert.match(await answer.innerText(), answered);
    await page.context().close();
  });

  it("are rejected if the file is not a model", async () => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-local-"));
    const file = join(folder, "poem.gguf");
    writeFileSync(file, "roses are red");
    const { page } = await openUi(browser, server.url);
    await addFromDisk(page, file);
    await page.getByText("the file is no GGUF model").waitFor();
    await page.getByText("This browser keeps no models.").waitFor();
    await page.context().close();
    rmSync(folder, { recursive: true });
  });
});
