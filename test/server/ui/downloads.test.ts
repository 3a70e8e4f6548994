// Download and removal of a model on the models page of the web UI, with a fake hub on loopback.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { startFakeHub } from "../../fixtures/fakes/fake-hub.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { startServer } from "../../fixtures/serve.ts";
import { assertClean, hasBrowser, launch, openUi, until } from "./browser.ts";

describe("models that a visitor downloads", { skip: !hasBrowser }, () => {
  it("are named in a field, listed when they are there, loaded, and removed", async () => {
    const model = await tinyModel();
    const hub = await startFakeHub();
    hub.repos.set("acme/tiny-GGUF", new Map([["tiny-F16.gguf", readFileSync(model)]]));
    const home = mkdtempSync(join(tmpdir(), "troupe-ui-downloads-"));
    const flags = ["-m", model, "--engine", "wasm", "--threads", "1", "--max-model-len", "256"];
    const environment = { HF_ENDPOINT: hub.url, HF_HOME: join(home, "hf"), HF_TOKEN: "", XDG_CACHE_HOME: home };
    const server = await startServer([...flags, "--max-model-downloads", "1"], environment);
    const browser = await launch();
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    const row = page.getByRole("row").filter({ hasText: "acme/tiny-GGUF" });
    await page.getByRole("link", { name: "Models" }).click();
    const name = page.getByLabel("Model to download");
    await name.fill("/etc/passwd");
    await name.press("Enter");
    await page.getByText("expected owner/name").waitFor();
    await page.getByRole("status").getByRole("button").click();
    await name.fill("acme/tiny-GGUF:f16");
    await page.getByRole("button", { name: "Download", exact: true }).click();
    await row.getByText("not loaded").waitFor();
    await row.getByRole("button", { name: "Load", exact: true }).click();
    await row.getByText("loaded", { exact: true }).waitFor();
    await row.getByRole("button", { name: "Delete" }).click();
    await row.getByRole("button", { name: /delete/i }).click();
    await until(async () => (await row.count()) === 0);
    assertClean(ui);
    await browser.close();
    await server.stop();
    await hub.stop();
    rmSync(home, { recursive: true });
  });
});
