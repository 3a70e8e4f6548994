import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { resolve as absolute, join } from "node:path";
import { describe, it } from "node:test";
import { modelSpec, schedulerLimits } from "../../../../cli/assembly/models/model-specs.ts";
import { frontOptions } from "../../../../cli/assembly/service-options.ts";
import type { Flags } from "../../../../cli/config/given.ts";
import type { Progress } from "../../../../cli/progress.ts";
import { createLogger } from "../../../../runtime/log/log.ts";
import { tinyModel } from "../../../fixtures/models/models.ts";
import { resolve } from "../config/resolve.ts";

const progress: Progress = { update: () => {}, stop: () => {} };

async function configOf(flags: Flags) {
  return resolve({ flags: { "--model-id": [await tinyModel()], ...flags } });
}

async function specOf(flags: Flags = {}) {
  const config = await configOf(flags);
  const [model] = config.models;
  assert.ok(model);
  return modelSpec(config, model, createLogger({ level: "silent", format: "json" }), progress);
}

async function optionsOf(flags: Flags = {}) {
  const lines: string[] = [];
  const log = createLogger({ level: "info", format: "text" }, { write: (line) => lines.push(line) });
  return { options: await frontOptions(await configOf({ "--engine": "wasm", ...flags }), log, progress), lines };
}

describe("the KV cache settings that an engine gets", () => {
  it("are one pool if the settings say so or limit the memory, and else the engine's choice", async () => {
    const pagedKv = async (flags: Flags) => (await specOf(flags)).pagedKv;
    assert.equal(await pagedKv({}), null);
    assert.equal(await pagedKv({ "--paged-attn": "on" }), true);
    assert.equal(await pagedKv({ "--paged-attn": "off" }), false);
    assert.equal(await pagedKv({ "--kv-cache": "1GiB" }), true);
    assert.equal(await pagedKv({ "--gpu-memory-utilization": "0.5" }), true);
  });

  it("have the configured amount of memory, or none", async () => {
    const budget = async (flags: Flags) => (await specOf(flags)).kvBudget;
    assert.equal(await budget({}), null);
    assert.deepEqual(await budget({ "--kv-cache": "1GiB" }), { bytes: 2 ** 30 });
    assert.deepEqual(await budget({ "--kv-cache": "4096tokens" }), { tokens: 4096 });
    assert.deepEqual(await budget({ "--gpu-memory-utilization": "0.5" }), { fraction: 0.5 });
  });

  it("have the configured blocks and number type", async () => {
    const { blockTokens, kvType } = await specOf({ "--pa-block-size": "64", "--pa-cache-type": "q8_0" });
    assert.deepEqual([blockTokens, kvType], [64, "q8_0"]);
  });
});

describe("the kind a model must have", () => {
  it("is the configured one; auto requires none", async () => {
    const kind = async (flags: Flags) => (await specOf(flags)).kind;
    assert.equal(await kind({}), null);
    assert.equal(await kind({ "--kind": "text" }), "text");
    assert.equal(await kind({ "--kind": "embedding" }), "embedding");
  });
});

describe("the room for logits", () => {
  it("is enough for the longest draft, and for the logprobs of prompts without any", async () => {
    assert.equal((await specOf({ "--max-draft-tokens": "2" })).extraLogitsRows, 16);
    assert.equal((await specOf({ "--max-draft-tokens": "40" })).extraLogitsRows, 40);
  });
});

describe("the scheduler's limits", () => {
  it("have the main memory for preempted sequences", async () => {
    assert.equal(schedulerLimits(await configOf({})).swapBytes, 2 ** 30);
    assert.equal(schedulerLimits(await configOf({ "--kv-swap": "0" })).swapBytes, 0);
  });
});

describe("the share of slots", () => {
  it("is set in seconds, two by default, and 0 means never", async () => {
    const shareMs = async (flags: Parameters<typeof configOf>[0]) => schedulerLimits(await configOf(flags)).slotShareMs;
    assert.deepEqual([await shareMs({}), await shareMs({ "--slot-share-secs": "5" })], [2000, 5000]);
    assert.equal(await shareMs({ "--slot-share-secs": "0" }), 0);
  });
});

describe("the store of prefixes", () => {
  it("is where the settings say, and disabled by default", async () => {
    assert.equal((await optionsOf()).options.prefixStore, null);
    const { options } = await optionsOf({ "--prefix-cache-dir": join("some", "kv"), "--prefix-cache-disk": "2GiB" });
    assert.deepEqual(options.prefixStore, { folder: absolute("some", "kv"), maxBytes: 2 ** 31 });
  });
});

describe("gpu_memory_utilization on a host without a GPU", () => {
  it("applies to main memory, as the log says", async () => {
    const { lines } = await optionsOf({ "--gpu-memory-utilization": "0.5" });
    assert.match(lines.join(""), /no GPU is used: gpu_memory_utilization is a fraction of the free main memory/);
    assert.doesNotMatch((await optionsOf({ "--kv-cache": "1GiB" })).lines.join(""), /gpu_memory_utilization/);
  });
});

describe("kv_cache on a CPU", () => {
  it("causes a warning that the llama engine becomes slow, unless one pool is requested", async () => {
    const said = async (flags: Flags) => (await optionsOf({ "--cpu": true, ...flags })).lines.join("");
    const size = { "--kv-cache": "4096tokens" };
    const isSlower = /WARN.*paged KV cache.*1\.6 to 3 times slower.*set max_model_len instead/;
    assert.match(await said({ ...size, "--engine": "llama" }), isSlower);
    const share = { "--gpu-memory-utilization": "0.1", "--engine": "llama" };
    assert.match(await said(share), /WARN.*gpu_memory_utilization implies a paged KV cache/);
    assert.doesNotMatch(await said({ ...size, "--engine": "wasm" }), isSlower);
    assert.doesNotMatch(await said({ "--engine": "llama" }), isSlower);
    assert.doesNotMatch(await said({ ...size, "--engine": "llama", "--paged-attn": "on" }), isSlower);
  });
});

describe("models in the server's own process", () => {
  it("are one at most on the llama engine, whose log calls into whichever thread loads one", async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-specs-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const second = join(folder, "second.gguf");
    copyFileSync(await tinyModel(), second);
    const two = { "--model-id": [await tinyModel(), second] };
    const kinds = async (flags: Flags) => (await optionsOf(flags)).options.models.map(({ kind }) => kind);
    const isRefused =
      /^isolate = false expects one model on the llama engine: .* got a second one, ".*second\.gguf": remove/;
    await assert.rejects(kinds({ ...two, "--engine": "llama", "--isolate": "false" }), {
      code: "config_invalid",
      message: isRefused,
    });
    assert.deepEqual(await kinds({ ...two, "--engine": "llama" }), ["process", "process"]);
    assert.deepEqual(await kinds({ ...two, "--engine": "wasm", "--isolate": "false" }), ["thread", "thread"]);
    assert.deepEqual(await kinds({ "--engine": "llama", "--isolate": "false" }), ["thread"]);
  });
});
