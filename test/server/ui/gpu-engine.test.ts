// Model on the browser's GPU, with a compiled library and random weights. Run by hand, because no package contains such a
// library: MLC_LIBRARY is the path of a library for a small Qwen2 (q4f32_1, version v0_2_48), MLC_TOKENIZER the path of its
// tokenizer.json. Chromium computes WebGPU on the CPU here.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { Browser } from "playwright-core";
import { writeFolderOf } from "../../fixtures/mlc/mlc-folder.ts";
import { realModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";
import { assertClean, launch, openUi, send, softwareGpu } from "./browser.ts";

const { MLC_LIBRARY: library = "", MLC_TOKENIZER: tokenizer = "" } = process.env;
const minutes = 60_000;
const name = "random-q4f32_1";

describe("a model on the GPU", { skip: library === "" && "set MLC_LIBRARY and MLC_TOKENIZER" }, () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-mlc-"));
  let server: RunningServer;
  let browser: Browser;

  before(async () => {
    writeFolderOf(join(folder, name), library, tokenizer);
    const { path } = await realModel();
    server = await startServer(["-m", path, "--web-models", join(folder, name)]);
    browser = await launch(softwareGpu);
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
    rmSync(folder, { recursive: true });
  });

  it("responds with logprobs and JSON, can be stopped, and responds while the server is down", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    // On the CPU, WebGPU takes seconds per token and minutes per prompt.
    page.setDefaultTimeout(30 * minutes);
    await page.getByRole("link", { name: "This browser" }).click();
    await page.getByRole("button", { name: `Copy ${name} from the server` }).click();
    await page.getByRole("cell", { name, exact: true }).waitFor();
    await page.getByRole("button", { name: `Load ${name}` }).click();
    await page.getByText(/loaded: qwen2 q4f32_1, web-llm, .* of weights/).waitFor();
    await page.getByRole("button", { name: "New conversation" }).click();
    await page.getByLabel("Model", { exact: true }).selectOption(`gpu:${name}`);
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Temperature").fill("0");
    await page.getByLabel("Collect logprobs").check();
    const limit = async (tokens: number) => {
      await page.getByLabel("Maximum tokens").fill(String(tokens));
      await page.getByLabel("Maximum tokens").blur();
    };
    const answer = async (text: string) => {
      const article = await send(page, text);
      await page.getByRole("button", { name: "Send" }).waitFor();
      return article;
    };
    await limit(4);
    const first = await answer("Say hello.");
    assert.match(await first.innerText(), /This browser \(GPU\)\s+\S[\s\S]*tokens\/s/);
    await first.getByRole("button", { name: "Show logprobs" }).click();
    await first.locator(".logprobs").waitFor();
    await page.getByLabel("Collect logprobs").uncheck();
    await page.getByRole("button", { name: "Add a property" }).click();
    await page.getByLabel("Name of the property").fill("ok");
    await page.getByLabel("Type of the property").selectOption("boolean");
    await limit(16);
    const constrained = await answer("Answer.");
    const { ok } = JSON.parse(await constrained.locator(".markdown").innerText());
    assert.equal(typeof ok, "boolean");
    await page.getByRole("button", { name: "Remove ok" }).click();
    await server.stop();
    const long = await send(page, "Tell a story.");
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("button", { name: "Send" }).waitFor();
    assert.match(await long.innerText(), /Stopped/);
    await limit(2);
    assert.match(await (await answer("Again.")).innerText(), /tokens\/s/);
    assertClean(ui);
  });
});
