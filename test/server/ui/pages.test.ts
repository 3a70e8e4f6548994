// Pages of the web UI in a browser: all pages, keyboard-only use, accessibility in both themes, and how the page is served.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { brotliDecompressSync, gzipSync } from "node:zlib";
import type { Browser } from "playwright-core";
import { writePeftAdapter } from "../../fixtures/lora/lora.ts";
import { realModel, tinyModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";
import { assertAccessible, assertClean, hasBrowser, launch, openUi, send, settled, until } from "./browser.ts";

/** Maximum size in bytes of the scripts and style sheets of the first page load, compressed with gzip. */
const maxFirstBytes = 150 * 1024;

describe("pages of the web UI", { skip: !hasBrowser }, () => {
  let server: RunningServer;
  let browser: Browser;

  before(async () => {
    const { path } = await realModel();
    server = await startServer([
      "-m",
      path,
      "--max-seqs",
      "4",
      "--default-max-tokens",
      "32",
      "--max-model-len",
      "2048",
    ]);
    browser = await launch();
  });
  after(async () => {
    await browser.close();
    await server.stop();
  });

  it("unload and load a model", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await page.getByRole("link", { name: "Models" }).click();
    await page.getByRole("button", { name: "Unload" }).click();
    await page.getByRole("cell", { name: "not loaded" }).waitFor();
    await page.getByRole("button", { name: "Load", exact: true }).click();
    await page.getByRole("cell", { name: "loaded", exact: true }).waitFor();
    assertClean(ui);
    await page.context().close();
  });

  it("have charts that move while an answer is generated", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await page.getByRole("link", { name: "Activity" }).click();
    const generated = page.locator(".chart").first().locator("output").first();
    await until(async () => (await generated.innerText()) === "0");
    const body = { messages: [{ role: "user", content: "Tell a story." }], max_tokens: 300 };
    const headers = { "content-type": "application/json" };
    const answer = fetch(`${server.url}/v1/chat/completions`, { method: "POST", headers, body: JSON.stringify(body) });
    await until(async () => Number(await generated.innerText()) > 1);
    assert.equal((await answer).status, 200);
    assertClean(ui);
    await page.context().close();
  });

  it("show requests in progress and cancel them, stored responses, and the settings in force", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await send(page, "Say something to keep.");
    await settled(page);
    await page.getByRole("link", { name: "Activity" }).click();
    const body = { messages: [{ role: "user", content: "Tell a long story." }], max_tokens: 1500 };
    const headers = { "content-type": "application/json" };
    const answer = fetch(`${server.url}/v1/chat/completions`, { method: "POST", headers, body: JSON.stringify(body) });
    await page.getByRole("cell", { name: "/v1/chat/completions" }).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Cancel: really?" }).click();
    assert.notEqual((await answer).status, 200);
    await page.getByText("No request is in progress.").waitFor();
    await page.getByRole("link", { name: "Storage" }).click();
    await page.getByRole("cell", { name: "Say something to keep." }).first().waitFor();
    await page.getByRole("link", { name: "System" }).click();
    await page.getByLabel("Filter").fill("max_seqs");
    await page.getByRole("row", { name: /max_seqs.*4.*flag: --max-seqs/ }).waitFor();
    assertClean(ui);
    await page.context().close();
  });

  it("show the machine, its checks, and the files", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await page.getByRole("link", { name: "System" }).click();
    await page.getByText("Node.js", { exact: false }).first().waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Check this machine" }).click();
    await page.getByRole("cell", { name: "node", exact: true }).waitFor({ timeout: 60_000 });
    await page.getByRole("link", { name: "Storage" }).click();
    await page.getByRole("heading", { name: "Files" }).waitFor();
    assertClean(ui);
    await page.context().close();
  });

  it("have shortcuts, which a list shows", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    const focused = () => page.evaluate("document.activeElement.getAttribute('aria-label')");
    await page.keyboard.press("Control+/");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).getByText("Ctrl+K", { exact: true }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("Control+k");
    await until(async () => (await focused()) === "Search");
    await page.keyboard.press("Shift+Escape");
    await until(async () => (await focused()) === "Message");
    await send(page, "Hello.");
    await settled(page);
    await page.keyboard.press("Control+Shift+Enter");
    await page.getByText("2 of 2").waitFor();
    await settled(page);
    await page.keyboard.press("Control+Shift+y");
    await page.getByText("Copied").waitFor();
    await page.keyboard.press("Control+,");
    await page.getByLabel("System prompt").waitFor();
    await page.keyboard.press("Control+Shift+o");
    await until(async () => (await page.locator("article").count()) === 0);
    assertClean(ui);
    await page.context().close();
  });

  it("are usable with only the keyboard", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await page.getByLabel("Message", { exact: true }).waitFor();
    await page.keyboard.type("Say hi.");
    await page.keyboard.press("Enter");
    await page.locator("article.assistant").waitFor();
    await settled(page);
    const wanted = [
      "Copy",
      "Edit",
      "Regenerate",
      "Delete",
      "Settings",
      "Tools",
      "Attach files",
      "New conversation",
      "Models",
    ];
    const reached = new Set<string>();
    for (let i = 0; i < 80 && reached.size < wanted.length; i++) {
      await page.keyboard.press("Tab");
      const name = await page.evaluate(
        "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText",
      );
      if (wanted.includes(String(name).trim())) reached.add(String(name).trim());
    }
    assert.deepEqual([...reached].sort(), [...wanted].sort());
    await page.getByRole("button", { name: "Tools" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.context().close();
  });

  for (const theme of ["light", "dark"] as const) {
    it(`have no serious accessibility violation in the ${theme} theme`, async () => {
      const ui = await openUi(browser, server.url);
      const { page } = ui;
      await page.emulateMedia({ colorScheme: theme });
      await send(page, "Write a list and `code`.");
      await settled(page);
      await page.getByRole("button", { name: "Settings" }).click();
      await assertAccessible(page, "chat");
      await page.getByRole("button", { name: "Tools" }).click();
      await assertAccessible(page, "tools");
      await page.keyboard.press("Escape");
      for (const name of ["Models", "This browser", "Activity", "Storage", "System"]) {
        await page.getByRole("link", { name }).click();
        await page.getByRole("heading", { name, level: 1 }).waitFor();
        await page.waitForTimeout(300);
        await assertAccessible(page, name);
      }
      await page.context().close();
    });
  }

  it("fit on a phone", async () => {
    const ui = await openUi(browser, server.url, { width: 380, height: 740 });
    const { page } = ui;
    await send(page, "Say hello.");
    await settled(page);
    for (const name of ["Models", "This browser", "Activity", "Storage", "System"]) {
      await page.getByRole("button", { name: "Open the side bar" }).click();
      await page.getByRole("link", { name }).click();
      await page.getByRole("heading", { name, level: 1 }).waitFor();
      const width = await page.evaluate("document.documentElement.scrollWidth");
      assert.ok(Number(width) <= 380, `${name} is ${width} wide`);
    }
    await page.context().close();
  });
});

describe("the web UI over plain HTTP from another machine", { skip: !hasBrowser }, () => {
  it("answers, copies, and says why no model can run in the browser", async () => {
    const { path } = await realModel();
    // A browser treats only loopback addresses as secure without HTTPS. This host name stands for another machine.
    const own = await startServer(["-m", path, "--max-model-len", "1024"]);
    const browser = await launch(["--host-resolver-rules=MAP troupe.test 127.0.0.1"]);
    const ui = await openUi(browser, own.url.replace("127.0.0.1", "troupe.test").replace("localhost", "troupe.test"));
    const { page } = ui;
    assert.equal(await page.evaluate("isSecureContext"), false);
    const answer = await send(page, "Say hello.");
    await settled(page);
    assert.match(await answer.innerText(), /\d+ tokens/);
    await answer.getByRole("button", { name: "Copy" }).first().click();
    await page.getByText("Copied").waitFor();
    await page.reload();
    await page.locator("article.assistant").waitFor();
    await page.getByRole("link", { name: "This browser" }).click();
    await page.getByRole("alert").getByText("open it over HTTPS").waitFor();
    assertClean(ui);
    await browser.close();
    await own.stop();
  });
});

describe("adapters in the web UI", { skip: !hasBrowser }, () => {
  it("are loaded, swapped, chosen for a conversation, and unloaded", async () => {
    const model = await tinyModel();
    const root = mkdtempSync(join(tmpdir(), "troupe-ui-lora-"));
    await writePeftAdapter(join(root, "one"), { modelPath: model, seed: 1 });
    await writePeftAdapter(join(root, "two"), { modelPath: model, seed: 2 });
    const flags = ["--engine", "wasm", "-m", model, "--lora", `pirate=${join(root, "one")}`, "--max-model-len", "512"];
    const environment = { SERVICE_ALLOW_RUNTIME_LORA_UPDATING: "on", SERVICE_LORA_ADAPTER_ROOT: root };
    const own = await startServer([...flags, "--threads", "1", "--default-max-tokens", "8"], environment);
    const browser = await launch();
    const ui = await openUi(browser, own.url);
    const { page } = ui;
    await page.getByRole("link", { name: "Models" }).click();
    await page.getByRole("cell", { name: "pirate", exact: true }).waitFor();
    const row = (name: string) => page.getByRole("row").filter({ hasText: name });
    await page.getByLabel("Name", { exact: true }).fill("poet");
    await page.getByLabel("Path").fill("two");
    await page.getByRole("button", { name: "Load", exact: true }).click();
    await row("poet").getByText("two", { exact: true }).waitFor();
    await page.getByLabel("Name", { exact: true }).fill("poet");
    await page.getByLabel("Path").fill("one");
    await page.getByRole("button", { name: "Swap" }).click();
    await row("poet").getByText("one", { exact: true }).waitFor();
    await page.getByRole("button", { name: "New conversation" }).click();
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Adapter (LoRA)").fill("poet");
    await page.getByLabel("Adapter (LoRA)").blur();
    const answer = await send(page, "Hello.");
    await settled(page);
    assert.match(await answer.innerText(), /\d+ tokens/);
    await page.getByRole("link", { name: "Models" }).click();
    await row("poet").getByRole("button", { name: "Unload" }).click();
    await until(async () => (await row("poet").count()) === 0);
    assertClean(ui);
    await browser.close();
    await own.stop();
    rmSync(root, { recursive: true });
  });
});

describe("the web UI", () => {
  let server: RunningServer;
  before(async () => {
    const { path } = await realModel();
    server = await startServer(["-m", path, "--max-seqs", "1", "--max-model-len", "512"]);
  });
  after(() => server.stop());

  it("is served to browsers at /, which returns the health check to other clients", async () => {
    const browser = await fetch(server.url, { headers: { accept: "text/html" }, redirect: "manual" });
    assert.deepEqual([browser.status, browser.headers.get("location")], [302, "ui/"]);
    const other = await fetch(server.url);
    assert.deepEqual([other.status, await other.text()], [200, "OK"]);
    const short = await fetch(`${server.url}/ui`, { redirect: "manual" });
    assert.deepEqual([short.status, short.headers.get("location")], [308, "ui/"]);
  });

  it("is served compressed, with ETags, a strict content security policy, and a small first bundle", async () => {
    const page = await fetch(`${server.url}/ui/`);
    const html = await page.text();
    const policy = page.headers.get("content-security-policy") ?? "";
    assert.match(policy, /default-src 'none'; script-src 'self' 'wasm-unsafe-eval';/);
    assert.doesNotMatch(policy, /script-src[^;]*unsafe-inline/);
    assert.equal(page.headers.get("cross-origin-embedder-policy"), "require-corp");
    const names = [...html.matchAll(/(?:src|href)="\.\/([^"]+\.(?:js|css))"/g)].map(([, name]) => name as string);
    assert.ok(names.length >= 2, html);
    let first = 0;
    for (const name of names) {
      const file = await fetch(`${server.url}/ui/${name}`);
      assert.match(file.headers.get("cache-control") ?? "", /immutable/);
      first += gzipSync(Buffer.from(await file.arrayBuffer())).length;
      const etag = file.headers.get("etag") ?? "";
      const again = await fetch(`${server.url}/ui/${name}`, { headers: { "if-none-match": etag } });
      assert.equal(again.status, 304);
    }
    assert.ok(first <= maxFirstBytes, `${first} bytes`);
  });

  it("is served with brotli only to clients that accept it", async () => {
    const name = /src="\.\/([^"]+)"/.exec((await bytesOf("/ui/", "identity")).body.toString())?.[1] ?? "";
    const plain = await bytesOf(`/ui/${name}`, "identity");
    const compressed = await bytesOf(`/ui/${name}`, "gzip, br");
    assert.deepEqual([plain.encoding, compressed.encoding], [undefined, "br"]);
    assert.deepEqual(brotliDecompressSync(compressed.body), plain.body);
    assert.equal((await bytesOf(`/ui/${name}`, "br;q=0, gzip")).encoding, undefined);
  });

  it("is not served for unknown files, nor with --no-ui", async () => {
    for (const name of ["nothing.js", "..%2fpackage.json", "index.html.br"]) {
      assert.equal((await fetch(`${server.url}/ui/${name}`)).status, 404, name);
    }
    const { path } = await realModel();
    const without = await startServer(["-m", path, "--no-ui", "--max-seqs", "1", "--max-model-len", "512"]);
    try {
      for (const name of ["/ui", "/ui/", "/ui/index.html"]) {
        assert.equal((await fetch(without.url + name, { redirect: "manual" })).status, 404, name);
      }
      const root = await fetch(without.url, { headers: { accept: "text/html" }, redirect: "manual" });
      assert.equal(root.status, 200);
    } finally {
      await without.stop();
    }
  });

  /** Returns the content encoding and the undecoded bytes of a response body. */
  async function bytesOf(
    path: string,
    encodings: string,
  ): Promise<{ readonly encoding: string | undefined; readonly body: Buffer }> {
    const sent = request(server.url + path, { headers: { "accept-encoding": encodings } });
    sent.end();
    const [response] = (await once(sent, "response")) as [IncomingMessage];
    const pieces: Buffer[] = [];
    for await (const piece of response) pieces.push(piece as Buffer);
    return { encoding: response.headers["content-encoding"], body: Buffer.concat(pieces) };
  }
});
