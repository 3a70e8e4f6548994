// Models for the browser's GPU in the web UI, without running the engine: copying, checking and choosing models, and the page's
// message if there is no GPU. The models' libraries (.wasm) are empty, because no package contains a real one; gpu-engine.test.ts
// runs one by hand.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { Browser, Page } from "playwright-core";
import { emptyLibrary, writeMlcFolder } from "../../fixtures/mlc/mlc-folder.ts";
import { realModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";
import { assertAccessible, assertClean, hasBrowser, launch, openUi, softwareGpu } from "./browser.ts";

const key = "secret-key";
const model = "tiny-q4f32_1";

describe("models for the GPU of the browser", { skip: !hasBrowser }, () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-gpu-"));
  const folders = [model, "damaged-q4f32_1", "half-q4f16_1"].map((name) => join(folder, name));
  let server: RunningServer;
  let browser: Browser;

  before(async () => {
    const tokenizer = join(folder, "tokenizer.json");
    writeFileSync(tokenizer, "{}");
    for (const path of folders) {
      writeMlcFolder(path, {
        library: emptyLibrary,
        tokenizer,
        tensors: [{ name: "embedding.q_weight", shape: [1024, 64], dtype: "uint32" }],
        quantization: path.slice(path.lastIndexOf("-") + 1),
        vocabSize: 1024,
      });
    }
    const { path } = await realModel();
    const flags = folders.flatMap((one) => ["--web-models", one]);
    server = await startServer(["-m", path, "--max-model-len", "512", "--api-key", key, ...flags]);
    // Different bytes of the same length.
    writeFileSync(join(folder, "damaged-q4f32_1/params_shard_0.bin"), Buffer.alloc(1024 * 64 * 4));
    browser = await launch(softwareGpu);
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
    rmSync(folder, { recursive: true });
  });

  async function openPage(on = browser) {
    const ui = await openUi(on, server.url);
    await ui.page.evaluate(`localStorage.setItem("troupe.apiKey", ${JSON.stringify(JSON.stringify(key))})`);
    await ui.page.reload();
    await ui.page.getByRole("link", { name: "This browser" }).click();
    return ui;
  }

  const copyFrom = async (page: Page, name: string) =>
    await page.getByRole("button", { name: `Copy ${name} from the server` }).click();

  it("are copied from the server, chosen, refused with the reason, and deleted", async () => {
    const ui = await openPage();
    const { page } = ui;
    const scripts: string[] = [];
    page.on("request", (request) => scripts.push(request.url()));
    await copyFrom(page, model);
    await page.getByRole("cell", { name: model, exact: true }).waitFor();
    await page.reload();
    await page.getByRole("cell", { name: model, exact: true }).waitFor();
    const group = page.locator("optgroup[label='This browser (GPU)'] option");
    await page.getByRole("button", { name: "New conversation" }).click();
    await page.getByLabel("Model", { exact: true }).selectOption(`gpu:${model}`);
    assert.deepEqual(await group.allInnerTexts(), [`${model} – This browser (GPU)`]);
    assert.ok(!scripts.some((url) => url.includes("gpu-worker")), "web-llm was loaded before it was used");
    await page.getByRole("link", { name: "This browser" }).click();
    await page.getByRole("button", { name: `Load ${model}` }).click();
    await page
      .getByText(/web-llm cannot load the model: .* It needs a library \(\.wasm\) of version v0_2_/)
      .first()
      .waitFor();
    assert.ok(scripts.some((url) => url.includes("gpu-worker")));
    await assertAccessible(page, "a model for the GPU that has failed");
    await page.getByRole("button", { name: "Add a folder from disk" }).focus();
    await page.keyboard.press("Shift+Tab");
    await page
      .getByRole("button", { name: `Delete ${model}` })
      .and(page.locator(":focus"))
      .waitFor();
    await page.getByRole("button", { name: `Delete ${model}` }).click();
    await page.getByRole("button", { name: `Delete: really? ${model}` }).click();
    await page.getByText("No model for the GPU is kept.").waitFor();
    assert.deepEqual(await storedNames(page), []);
    assertClean(ui);
    await page.context().close();
  });

  it("are not kept if a file is damaged, or if the GPU cannot run them", async () => {
    const ui = await openPage();
    const { page } = ui;
    const files: string[] = [];
    page.on("request", (request) => files.push(request.url()));
    await copyFrom(page, "damaged-q4f32_1");
    await page.getByText(/params_shard_0\.bin is damaged \(MD5 sum/).waitFor();
    files.length = 0;
    await copyFrom(page, "half-q4f16_1");
    await page.getByText(/16-bit floats \(shader-f16\), which q4f16_1 needs/).waitFor();
    assert.ok(!files.some((url) => url.endsWith(".bin")), "weights were copied for nothing");
    assert.deepEqual(await storedNames(page), []);
    assertClean(ui);
    await page.context().close();
  });

  it("are copied from a folder on disk, and can be chosen later without the server", async () => {
    const { page } = await openPage();
    const chooser = page.locator("input[webkitdirectory]");
    const incomplete = join(folder, "incomplete");
    writeMlcFolder(incomplete, {
      library: emptyLibrary,
      tokenizer: join(folder, "tokenizer.json"),
      tensors: [{ name: "embedding.q_weight", shape: [16, 16], dtype: "uint32" }],
      quantization: "q4f32_1",
      vocabSize: 16,
    });
    rmSync(join(incomplete, "model-webgpu.wasm"));
    await chooser.setInputFiles(incomplete);
    await page.getByText(/expected one \.wasm file in the folder/).waitFor();
    await chooser.setInputFiles(join(folder, model));
    await page.getByRole("cell", { name: model, exact: true }).waitFor();
    await page.context().setOffline(true);
    await page.getByRole("button", { name: "New conversation" }).click();
    await page.getByLabel("Model", { exact: true }).selectOption(`gpu:${model}`);
    await page.context().close();
  });

  it("need WebGPU and a GPU, as the page explains", async () => {
    const plain = await launch(["--disable-gpu"]);
    const { page } = await openPage(plain);
    await page.getByText(/knows WebGPU but offers no GPU: update the graphics driver/).waitFor();
    await page.addInitScript("Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined })");
    await page.reload();
    await page.getByText(/offers no WebGPU to this page: use a newer browser/).waitFor();
    await plain.close();
  });
});

/** Returns the names of the model folders in the browser's private storage. */
async function storedNames(page: Page): Promise<unknown> {
  return await page.evaluate(
    "navigator.storage.getDirectory().then((root) => root.getDirectoryHandle('gpu-models'))" +
      ".then((models) => Array.fromAsync(models.keys()))",
  );
}
