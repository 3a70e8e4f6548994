// Fuzz test of checkpoints: damages the safetensors header, the index and the config in thousands of ways. Nothing may crash or
// hang, and each error names a file. CHECKPOINT_FUZZ_ROUNDS sets the number of rounds, CHECKPOINT_FUZZ_SEED the seed.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { openCheckpoint } from "../../../../engines/files/checkpoint/checkpoint.ts";
import { createRowReader } from "../../../../engines/quantization/rows/rows.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { inTemporaryFolder } from "../gguf/gguf-bytes.ts";
import { caseContent, safetensors } from "./stored-checkpoint.ts";

const rounds = Number(process.env.CHECKPOINT_FUZZ_ROUNDS ?? 600);
const seed = Number(process.env.CHECKPOINT_FUZZ_SEED ?? 1);
/** Maximum CPU time of a round in ms. */
const maxRoundMs = 400;
const names = [
  ...["llama", "gemma3", "qwen3moe", "phi3-long", "bert", "deepseek-v3", "qwen35", "falcon-h1", "gemma4", "gpt-oss"],
  ...["granite-hybrid", "lfm2", "gemma3n", "mistral3", "modern-bert-scores", "stablelm-parallel"],
];
const values = [
  ...[null, true, -1, 0, 1, 2.5, 7, 1e9, 2 ** 31, 1e308, "", "x", "../x", [], {}, [null], [1, 2], { a: 1 }],
  ...[
    "__proto__",
    "linear",
    "yarn",
    "longrope",
    "llama3",
    "gptq",
    "fp8",
    "mxfp4",
    "bitsandbytes",
    "compressed-tensors",
  ],
];

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

describe("damaged checkpoints", () => {
  it(`are read or rejected with a specific error: ${rounds} rounds`, async () => {
    const random = numbersFrom(seed);
    const contents = names.map((name) => ({ name, ...caseContent(name) }));
    await inTemporaryFolder(async (folder) => {
      let readable = 0;
      for (let round = 0; round < rounds; round++) {
        const { name, config, tensors } = contents[Math.floor(random() * contents.length)]!;
        const files = damaged(config as Json, safetensors(tensors), Object.keys(tensors), random);
        for (const [file, bytes] of Object.entries(files)) await writeFile(join(folder, file), bytes);
        const started = process.cpuUsage();
        if (await isReadable(folder, `${name}, round ${round} of seed ${seed}`)) readable++;
        const { user, system } = process.cpuUsage(started);
        assert.ok((user + system) / 1000 < maxRoundMs, `round ${round} took ${(user + system) / 1000} ms`);
      }
      assert.ok(readable > 0 && readable < rounds, `${readable} of ${rounds} could be read`);
    });
  });
});

/** Opens the checkpoint and reads a row of each tensor. Returns false if it is rejected with a specific error; fails on other errors. */
async function isReadable(folder: string, place: string): Promise<boolean> {
  try {
    const { files, tensors } = await openCheckpoint(folder);
    const reader = createRowReader(files);
    try {
      for (const { rows } of tensors) {
        if (rows.columns < 2 ** 20) reader.read(rows, rows.rows - 1, 1, new Float32Array(rows.columns));
      }
    } finally {
      reader.close();
    }
    return true;
  } catch (error) {
    assert.ok(error instanceof ServerError, `${place}: ${(error as Error).stack}`);
    assert.ok(["model_file_invalid", "unsupported"].includes(error.code), `${place}: ${error.code}`);
    assert.ok(error.message.includes(folder), `${place}: ${error.message}`);
    assert.ok(error.message.length < 4096, `${place}: ${error.message.length} characters`);
    return false;
  }
}

/** Returns the contents of config.json, the index and the safetensors file. One of them is damaged. */
function damaged(
  config: Json,
  model: Buffer,
  tensors: readonly string[],
  random: () => number,
): Record<string, Uint8Array> {
  const map = Object.fromEntries(tensors.map((name) => [name, "model.safetensors"]));
  const files = { "config.json": config, "model.safetensors.index.json": { metadata: {}, weight_map: map } as Json };
  const text = (json: Json) => Buffer.from(JSON.stringify(json));
  const whole: Record<string, Buffer> = {
    ...Object.fromEntries(Object.entries(files).map(([name, json]) => [name, text(json)])),
    "model.safetensors": model,
  };
  switch (Math.floor(random() * 4)) {
    case 0: {
      const file = random() < 0.7 ? "config.json" : "model.safetensors.index.json";
      return { ...whole, [file]: text(changed(files[file], random)) };
    }
    case 1:
      return {
        ...whole,
        "model.safetensors": withHead(model, (head) => text(changed(JSON.parse(head.toString()), random))),
      };
    case 2:
      return { ...whole, "model.safetensors": flipped(model, Math.min(model.length, 4096), random) };
    default: {
      const file = random() < 0.5 ? "config.json" : "model.safetensors.index.json";
      const bytes = whole[file] as Buffer;
      return {
        ...whole,
        [file]: random() < 0.5 ? bytes.subarray(0, random() * bytes.length) : flipped(bytes, bytes.length, random),
      };
    }
  }
}

/** Replaces, removes or adds a value somewhere in a JSON value. */
function changed(json: Json, random: () => number): Json {
  const copy = structuredClone(json);
  let place = copy;
  for (;;) {
    const keys = typeof place === "object" && place !== null ? Object.keys(place) : [];
    const key = keys[Math.floor(random() * keys.length)];
    if (key === undefined) return copy;
    const holder = place as Record<string, Json>;
    const next = holder[key] as Json;
    if (typeof next === "object" && next !== null && random() < 0.8) {
      place = next;
      continue;
    }
    const kind = random();
    if (kind < 0.15) delete holder[key];
    else if (kind < 0.25) holder[`${key}_x`] = next;
    else if (typeof next === "number" && kind < 0.6) holder[key] = Math.floor(next * random() * 4) - 1;
    else holder[key] = structuredClone(values[Math.floor(random() * values.length)]!) as Json;
    return copy;
  }
}

function withHead(model: Buffer, change: (head: Buffer) => Buffer): Buffer {
  const length = Number(model.readBigUInt64LE());
  const head = change(model.subarray(8, 8 + length));
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(BigInt(head.length));
  return Buffer.concat([prefix, head, model.subarray(8 + length)]);
}

function flipped(bytes: Buffer, below: number, random: () => number): Buffer {
  const copy = Buffer.from(bytes);
  for (let i = 0; i < 1 + random() * 4; i++) copy[Math.floor(random() * below)] = Math.floor(random() * 256);
  return copy;
}

function numbersFrom(start: number): () => number {
  let state = start * 7919 + 1;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}
