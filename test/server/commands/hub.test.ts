// Models by hub name: the command fetches a model, serves it, and serves it again while the hub is unreachable.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { type FakeHub, startFakeHub } from "../../fixtures/fakes/fake-hub.ts";
import { writePeftAdapter } from "../../fixtures/lora/lora.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { type Ended, runCommand, startServer } from "../../fixtures/serve.ts";

const repo = "acme/tiny-GGUF";
const flags = ["-m", `${repo}:f16`, "--threads", "1", "--max-seqs", "2", "--max-model-len", "256"];

let hub: FakeHub;
let home = "";
before(async () => {
  hub = await startFakeHub();
  home = mkdtempSync(join(tmpdir(), "troupe-hub-"));
  hub.repos.set(repo, new Map([["tiny-F16.gguf", readFileSync(await tinyModel())]]));
});
after(async () => {
  await hub.stop();
  rmSync(home, { recursive: true, force: true });
});

describe("an adapter by its name on the hub", () => {
  const lora = "acme/tiny-lora";
  const adapted = ["--lora", `code=${lora}`];
  // These tests have a separate cache folder, so that other tests do not find the downloaded files.
  const ownHome = () => join(home, "adapters");
  const environment = () => ({ HF_HOME: ownHome(), HF_TOKEN: "", HF_ENDPOINT: hub.url });
  before(async () => {
    const folder = join(home, "lora");
    await writePeftAdapter(folder, { modelPath: await tinyModel(), seed: 1 });
    const files = ["adapter_config.json", "adapter_model.safetensors"];
    hub.repos.set(lora, new Map(files.map((name) => [name, readFileSync(join(folder, name))])));
  });

  it("is fetched, and answers where it is chosen", async () => {
    const server = await startServer([...flags, ...adapted], environment());
    try {
      const response = await fetch(`${server.url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ model: "default", messages: "hi", adapter: "code", max_tokens: 2 }),
      });
      const body = (await response.json()) as { adapter_generation?: string };
      assert.equal(response.status, 200, JSON.stringify(body));
      assert.match(body.adapter_generation ?? "", /^[0-9a-f]{64}$/);
    } finally {
      await server.stop();
    }
  });

  it("is named in the error if the hub does not have it", async () => {
    const argv = ["serve", "--port", "0", ...flags, "--lora", "code=acme/tiny-lore"];
    const { code, stderr } = await runHere(argv, ownHome());
    assert.equal(code, 1);
    assert.match(
      stderr,
      /^troupe: lora "code" of model "acme\/tiny-GGUF:f16": "acme\/tiny-lore" is not a model on the hub/m,
    );
  });
});

/** Runs a command that exits by itself, with this test's hub. */
async function runHere(argv: readonly string[], hubHome = home): Promise<Ended> {
  const previous = { ...process.env };
  Object.assign(process.env, { HF_ENDPOINT: hub.url, HF_HOME: hubHome });
  try {
    return await runCommand(argv);
  } finally {
    for (const name of ["HF_ENDPOINT", "HF_HOME"]) delete process.env[name];
    Object.assign(process.env, previous);
  }
}

/** Serves the model, sends one request, and stops. Returns the output. */
async function serveOnce(environment: Record<string, string>): Promise<string> {
  const server = await startServer(flags, { HF_HOME: home, HF_TOKEN: "", ...environment });
  try {
    const response = await fetch(`${server.url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "default", prompt: "a", max_tokens: 2 }),
    });
    assert.equal(response.status, 200, await response.text());
  } finally {
    await server.stop();
  }
  return server.output();
}

describe("a model by its name on the hub", () => {
  it("is fetched once and served, with or without the hub", async () => {
    assert.match(await serveOnce({ HF_ENDPOINT: hub.url }), /download acme\/tiny-GGUF:f16: 100 %/);
    const fetched = hub.ranges().length;
    assert.ok(fetched > 0);
    const gone = await startFakeHub();
    await gone.stop();
    await serveOnce({ HF_ENDPOINT: gone.url });
    await serveOnce({ HF_ENDPOINT: hub.url, HF_HUB_OFFLINE: "1" });
    assert.equal(hub.ranges().length, fetched);
  });

  it("is rejected with one line if there is no such model", async () => {
    const { code, stderr } = await runHere(["serve", "-m", "acme/tinny-GGUF"]);
    assert.equal(code, 1);
    assert.match(stderr, /^troupe: "acme\/tinny-GGUF" is not a model on the hub.*did you mean "acme\/tiny-GGUF"\?\n$/);
  });
});
