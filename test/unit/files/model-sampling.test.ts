// Sampling settings in a model's files, and their precedence over other defaults.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { GGUFValueType } from "@huggingface/gguf";
import { generationDefaults } from "../../../cli/assembly/models/generation-defaults.ts";
import { readModelSampling } from "../../../engines/files/model-sampling.ts";
import { createLogger } from "../../../runtime/log/log.ts";
import { ggufHeader } from "../../fixtures/gguf/gguf-header.ts";
import { resolve } from "../cli/config/resolve.ts";

const root = mkdtempSync(join(tmpdir(), "troupe-sampling-"));
after(() => rmSync(root, { recursive: true, force: true }));

const float = (value: number) => ({ value, type: GGUFValueType.FLOAT32 });
const int = (value: number) => ({ value, type: GGUFValueType.INT32 });

/** Writes a model file with these keys, which get the prefix `general.sampling.`, and a generation_config.json if given. */
async function modelWith(keys: Record<string, object>, config?: string): Promise<string> {
  const folder = mkdtempSync(join(root, "model-"));
  const path = join(folder, "model.gguf");
  const pairs = Object.entries(keys).map(([key, value]) => [`general.sampling.${key}`, value]);
  writeFileSync(path, await ggufHeader(Object.fromEntries(pairs), []));
  if (config !== undefined) writeFileSync(join(folder, "generation_config.json"), config);
  return path;
}

async function read(path: string) {
  const notices: string[] = [];
  const own = await readModelSampling(path, (message) => notices.push(message));
  return { own, values: Object.fromEntries(Object.entries(own).map(([field, { value }]) => [field, value])), notices };
}

describe("a model's own sampling settings", () => {
  it("come from its file, as the intended numbers", async () => {
    const keys = { temp: float(0.7), top_k: int(20), top_p: float(0.8), min_p: float(0), penalty_repeat: float(1.05) };
    const { values, notices } = await read(await modelWith(keys));
    assert.deepEqual(values, { temperature: 0.7, topK: 20, topP: 0.8, minP: 0, repetitionPenalty: 1.05 });
    assert.deepEqual(notices, []);
  });

  it("come from a generation_config.json next to the file, if the file has none", async () => {
    const config = JSON.stringify({ eos_token_id: [1, 2], temperature: 0.6, top_k: 50, top_p: null });
    const { own } = await read(await modelWith({ temp: float(0.3), top_k: int(-1) }, config));
    assert.deepEqual(own.temperature, { value: 0.3, origin: "general.sampling.temp" });
    assert.equal(own.topK?.value, 0);
    const { own: beside } = await read(await modelWith({}, config));
    assert.deepEqual(beside.temperature, { value: 0.6, origin: "generation_config.json temperature" });
    assert.deepEqual(Object.keys(beside), ["temperature", "topK"]);
  });

  it("are left out with a notice if they cannot be used", async () => {
    const keys = { temp: float(-3), mirostat: int(2) };
    const { own, notices } = await read(await modelWith(keys, '{"top_p": "high", "top_k": 5}'));
    assert.deepEqual(Object.keys(own), ["topK"]);
    assert.match(notices.join("\n"), /general\.sampling\.temp of the model is not used: its value -3 is out of range/);
    assert.match(notices.join("\n"), /generation_config\.json top_p of the model is not used/);
    assert.match(notices.join("\n"), /general\.sampling\.mirostat of the model is not supported/);
    const broken = await read(await modelWith({}, "{"));
    assert.deepEqual(broken.own, {});
    assert.match(broken.notices.join("\n"), /generation_config\.json" is not used/);
  });
});

describe("the defaults of a model", () => {
  const defaultsOf = async (path: string, flags: Record<string, string> = {}) => {
    const [model] = resolve({ flags }).models;
    assert.ok(model);
    return generationDefaults(model, path, createLogger({ level: "silent", format: "json" }));
  };

  it("are the settings, then the model's own, then the built-in ones", async () => {
    const path = await modelWith({ temp: float(0.3), top_p: float(0.5) }, '{"min_p": 0.2}');
    const { sampling, origins, maxTokens } = await defaultsOf(path, {
      "--temperature": "0",
      "--presence-penalty": "-1",
    });
    assert.deepEqual(sampling, {
      temperature: 0,
      topK: 40,
      topP: 0.5,
      minP: 0.2,
      repetitionPenalty: 1,
      presencePenalty: -1,
      frequencyPenalty: 0,
    });
    assert.deepEqual(
      [origins.temperature, origins.topK, origins.topP, origins.minP],
      ["settings", "built in", "general.sampling.top_p", "generation_config.json min_p"],
    );
    assert.equal(maxTokens, null);
    assert.equal((await defaultsOf(path, { "--default-max-tokens": "99" })).maxTokens, 99);
  });

  it("without anything are temperature 0.8, top_k 40, top_p 0.95, min_p 0.05 and no penalties", async () => {
    const { sampling } = await defaultsOf(await modelWith({}));
    assert.deepEqual(Object.values(sampling), [0.8, 40, 0.95, 0.05, 1, 0, 0]);
  });
});
