// Calibration with live traffic: the real command with the real model.
import assert from "node:assert/strict";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { readImportance } from "../../../engines/quantization/importance/importance-file.ts";
import { realModel } from "../../fixtures/models/models.ts";
import { startServer } from "../../fixtures/serve.ts";
import { ask, expectWhole, openStream, post } from "../../fixtures/streams.ts";
import { changed, temporaryCache } from "./changes.ts";

const flags = ["--max-model-len", "512", "--max-seqs", "4"];
const cache = temporaryCache();
after(cache.remove);

interface Status {
  readonly collecting: boolean;
  readonly layers: number;
  readonly layers_tracking: number;
  readonly total_rows: number;
  readonly min_rows: number;
  readonly max_rows: number;
}

async function call(url: string, method: "GET" | "POST", path: string, body?: object) {
  const headers = { "content-type": "application/json" };
  const init = body === undefined ? { method } : { method, headers, body: JSON.stringify(body) };
  const response = await fetch(`${url}/calibration/${path}`, init);
  return {
    status: response.status,
    body: (await response.json()) as Status & { error: { code: string; message: string } },
  };
}

describe("calibration with a text", () => {
  it("runs the text through the model once; the importance matrix stays in the cache", async () => {
    const { path } = await realModel();
    const file = join(cache.folder, "text.txt");
    const sentences = Array.from({ length: 150 }, (_, i) => `Chapter ${i}: the river rose ${i * 7} feet in one night.`);
    writeFileSync(file, sentences.join("\n"));
    const start = () =>
      startServer(["-m", path, "--isq", "Q4_0", "--calibration-file", file, ...flags], cache.environment);
    for (const isFirst of [true, false]) {
      const server = await start();
      try {
        assert.equal(server.output().includes("the text is run through the model"), isFirst, server.output());
        assert.equal(await ask(server.url, "default"), 200);
      } finally {
        await server.stop();
      }
    }
    const folder = join(cache.folder, "troupe", "calibration");
    const [found = ""] = readdirSync(folder).filter((name) => name.startsWith("SmolLM2") || name.startsWith("tiny"));
    const importance = await readImportance(join(folder, found));
    assert.ok(importance.size > 0);
  });
});

describe("calibration on live traffic", () => {
  it("collects the inputs of all matrices, quantizes with them, and saves them", async () => {
    const { path } = await realModel();
    const saved = join(cache.folder, "troupe", "calibration", "traffic.gguf");
    const server = await startServer(["-m", path, "--isq", "Q5_0", ...flags], cache.environment);
    try {
      const { url } = server;
      assert.equal((await call(url, "GET", "status")).body.collecting, false);
      const early = await call(url, "POST", "apply");
      assert.deepEqual([early.status, early.body.error.code], [409, "model_state_conflict"]);
      const started = await call(url, "POST", "start");
      assert.deepEqual([started.body.collecting, started.body.total_rows], [true, 0]);
      const { layers } = started.body;
      assert.ok(layers > 0);
      assert.equal(await ask(url, "default"), 200);
      const { body: now } = await call(url, "GET", "status");
      assert.deepEqual(
        [now.layers_tracking, now.min_rows, now.total_rows],
        [layers, now.max_rows, layers * now.max_rows],
      );
      assert.ok(now.max_rows > 10);
      const before = await openStream(url, "default", 60);
      const applied = await call(url, "POST", "apply", { save_cimatrix: "traffic.gguf" });
      assert.deepEqual([applied.status, applied.body.collecting], [200, true]);
      const { requantization } = await changed(url);
      assert.equal(requantization?.status, "done", requantization?.error);
      await expectWhole(before, 60);
      assert.equal(await ask(url, "default"), 200);
      assert.equal((await call(url, "GET", "status")).body.collecting, false);
      const importance = await readImportance(saved);
      assert.equal(importance.size, layers);
      for (const means of importance.values()) assert.ok(means.every((mean) => mean >= 0 && Number.isFinite(mean)));
    } finally {
      await server.stop();
    }
    const again = await startServer(["-m", path, "--isq", "Q5_0", "--imatrix", saved, ...flags], cache.environment);
    try {
      assert.equal(await ask(again.url, "default"), 200);
    } finally {
      await again.stop();
    }
  });

  it("reloads a model of the llama engine, collects inputs, and is applied", async () => {
    const { path } = await realModel();
    const llama = await startServer(
      ["-m", path, "--engine", "llama", "--isq", "Q5_0", "--threads", "1", ...flags],
      cache.environment,
    );
    try {
      const [before] = llama.enginePids();
      const { status, body } = await call(llama.url, "POST", "start");
      assert.deepEqual([status, body.collecting], [200, true], JSON.stringify(body));
      assert.notEqual(llama.enginePids().at(-1), before);
      assert.equal(await ask(llama.url, "default"), 200);
      assert.ok((await call(llama.url, "GET", "status")).body.max_rows > 10);
      assert.equal((await call(llama.url, "POST", "apply")).status, 200);
      const { requantization } = await changed(llama.url);
      assert.equal(requantization?.status, "done", requantization?.error);
      assert.equal((await call(llama.url, "GET", "status")).body.collecting, false);
      assert.equal(await ask(llama.url, "default"), 200);
    } finally {
      await llama.stop();
    }
  });

  it("is refused without a quantization on load", async () => {
    const { path } = await realModel();
    const plain = await startServer(["-m", path, ...flags], cache.environment);
    try {
      const { status, body } = await call(plain.url, "POST", "start");
      assert.deepEqual([status, body.error.code], [409, "model_state_conflict"]);
      assert.match(body.error.message, /set isq/);
      assert.equal((await post(`${plain.url}/v1/models/unload`, { model_id: "default" })).status, 200);
      assert.equal((await call(plain.url, "GET", "status")).status, 409);
    } finally {
      await plain.stop();
    }
  });
});
