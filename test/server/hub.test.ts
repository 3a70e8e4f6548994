// A model by its name on the hub, as the command meets it: fetched, served, and served again when the hub is gone.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { type FakeHub, startFakeHub } from "../fixtures/fake-hub.ts";
import { tinyModel } from "../fixtures/models.ts";
import { runCommand, startServer } from "../fixtures/serve.ts";

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

/** Serves the model, has it answer once, and stops. Returns what was printed. */
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

  it("is refused in a line where there is no such model", async () => {
    const previous = { ...process.env };
    Object.assign(process.env, { HF_ENDPOINT: hub.url, HF_HOME: home });
    try {
      const { code, stderr } = await runCommand(["serve", "-m", "acme/tinny-GGUF"]);
      assert.equal(code, 1);
      assert.match(stderr, /^troupe: "acme\/tinny-GGUF" is no model on the hub.*did you mean "acme\/tiny-GGUF"\?\n$/);
    } finally {
      for (const name of ["HF_ENDPOINT", "HF_HOME"]) delete process.env[name];
      Object.assign(process.env, previous);
    }
  });
});
