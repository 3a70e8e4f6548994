import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { GgufValue } from "../../../engines/gguf/cursor.ts";
import { readTensorTable, type TensorInfo } from "../../../engines/gguf/tensors.ts";
import { type Hyperparameters, readHyperparameters } from "../../../engines/wasm/hyperparameters.ts";
import { type ErrorCode, ServerError } from "../../../runtime/errors.ts";
import { type TinyModelOptions, writeTinyModel } from "../../fixtures/tiny-gguf.ts";
import { inTemporaryFolder } from "../gguf/gguf-bytes.ts";

const least: Readonly<Record<string, GgufValue>> = {
  "general.architecture": "llama",
  "llama.block_count": 2,
  "llama.context_length": 4096,
  "llama.embedding_length": 256,
  "llama.feed_forward_length": 512,
  "llama.attention.head_count": 4,
  "llama.attention.layer_norm_rms_epsilon": 1e-5,
};

const embedding: TensorInfo = { name: "token_embd.weight", type: 0, shape: [256, 500], file: 0, offset: 0, bytes: 0 };
const tensors = new Map([[embedding.name, embedding]]);

/** Keys without "llama."; undefined takes one away. */
type Changes = Readonly<Record<string, GgufValue | undefined>>;

function read(changes: Changes = {}, factors: Float32Array | null = null): Hyperparameters {
  const fields = new Map(Object.entries(least));
  for (const [key, value] of Object.entries(changes)) {
    if (value === undefined) fields.delete(`llama.${key}`);
    else fields.set(`llama.${key}`, value);
  }
  return readHyperparameters(fields, tensors, factors);
}

function refuses(changes: Changes, code: ErrorCode, words: RegExp): void {
  assert.throws(
    () => read(changes),
    (error) => error instanceof ServerError && error.code === code && words.test(error.message),
    JSON.stringify(changes),
  );
}

function assertClose(found: ArrayLike<number>, expected: readonly number[]): void {
  assert.equal(found.length, expected.length);
  expected.forEach((value, i) => {
    assert.ok(Math.abs((found[i] as number) - value) <= 1e-6 * value, `${i}: ${found[i]} and ${value}`);
  });
}

describe("hyperparameters", () => {
  it("are those of the file", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "tiny.gguf");
      const options: TinyModelOptions = {
        seed: 1,
        layers: 1,
        width: 96,
        heads: 4,
        kvHeads: 2,
        headLength: 64,
        feedForward: 160,
        vocabularySize: 300,
        contextLength: 700,
        tied: true,
      };
      await writeTinyModel(path, options);
      const { fields, tensors: found } = await readTensorTable(path);
      const { ropeFrequencies, epsilon, ...rest } = readHyperparameters(fields, found, null);
      assert.deepEqual(rest, {
        architecture: "llama",
        layers: 1,
        width: 96,
        feedForward: 160,
        heads: 4,
        kvHeads: 2,
        headLength: 64,
        rotated: 64,
        trainedContext: 700,
        vocabSize: 300,
        ropeMagnitude: 1,
      });
      assert.equal(epsilon, Math.fround(1e-5));
      assert.equal(ropeFrequencies.length, 32);
    }));

  it("have the usual values where the file leaves them out", () => {
    const { kvHeads, headLength, rotated, ropeFrequencies, ropeMagnitude } = read();
    assert.deepEqual([kvHeads, headLength, rotated, ropeMagnitude], [4, 64, 64, 1]);
    assert.equal(ropeFrequencies[0], 1);
    assertClose(ropeFrequencies.subarray(16, 17), [0.01]);
  });

  it("take the vocabulary's size from the embedding, because the key may be out of date", () => {
    assert.equal(read({ vocab_size: 499 }).vocabSize, 500);
    assert.throws(() => readHyperparameters(new Map(Object.entries(least)), new Map(), null), /no matrix token_embd/);
  });

  it("are refused by name where they are missing, of the wrong kind or absurd", () => {
    for (const key of Object.keys(least).filter((name) => name.startsWith("llama."))) {
      const name = key.slice("llama.".length);
      for (const value of [undefined, 0, -1, Number.NaN, Number.POSITIVE_INFINITY, "4", true, 2 ** 40]) {
        refuses({ [name]: value }, "model_file_invalid", new RegExp(`the model's ${key} is`));
      }
    }
    for (const value of [1.5, 1001])
      refuses({ block_count: value }, "model_file_invalid", /block_count is .* 1 to 1000/);
    assert.throws(() => readHyperparameters(new Map(), tensors, null), /general.architecture is missing/);
  });

  it("are refused where they contradict each other", () => {
    refuses(
      { "attention.head_count_kv": 3 },
      "model_file_invalid",
      /head_count_kv is 3, where a divisor of the 4 heads/,
    );
    refuses({ "attention.head_count_kv": 8 }, "model_file_invalid", /head_count_kv/);
    refuses({ "rope.dimension_count": 65 }, "model_file_invalid", /from 1 to 64/);
    refuses({ "rope.dimension_count": 63 }, "model_file_invalid", /even/);
    refuses({ "attention.head_count": 512 }, "model_file_invalid", /key_length is missing/);
  });

  it("are refused as not supported where another engine runs the model", () => {
    refuses({ "attention.head_count": [4, 2] }, "unsupported", /head_count is a list of 2; .* --engine llama/);
    refuses({ feed_forward_length: [512, 512] }, "unsupported", /feed_forward_length/);
    refuses({ "attention.value_length": 32 }, "unsupported", /value_length is 32; the wasm engine runs 64/);
    for (const length of [66, 1024]) {
      const heads = { "attention.key_length": length, "attention.value_length": length };
      refuses(heads, "unsupported", /a multiple of 4 floats up to 512/);
    }
    refuses({ expert_count: 8 }, "unsupported", /expert_count is 8/);
    refuses(
      { "rope.scaling.type": "longrope" },
      "unsupported",
      /"longrope"; the wasm engine runs none, linear or yarn/,
    );
    for (const [key, value] of [
      ["beta_fast", 16],
      ["beta_slow", 2],
      ["ext_factor", 0.5],
      ["attn_factor", 2],
      ["log_multiplier", 0.1],
    ] as const) {
      refuses({ "rope.scaling.type": "yarn", [`rope.scaling.yarn_${key}`]: value }, "unsupported", new RegExp(key));
    }
  });
});

describe("rotary frequencies", () => {
  const short = { "attention.key_length": 16, "rope.freq_base": 10_000 };
  const unscaled = [1, 0.3162278, 0.1, 0.03162278, 0.01, 0.003162278, 0.001, 0.0003162278];

  it("fall from 1 to nearly 1 / base", () => {
    assertClose(read(short).ropeFrequencies, unscaled);
    assertClose(read({ ...short, "rope.freq_base": 256 }).ropeFrequencies.subarray(0, 4), [1, 0.5, 0.25, 0.125]);
    assert.equal(read({ ...short, "rope.dimension_count": 8 }).ropeFrequencies.length, 4);
  });

  it("are all divided by the factor of linear scaling, which is the default kind", () => {
    const expected = unscaled.map((frequency) => frequency / 4);
    assertClose(read({ ...short, "rope.scaling.factor": 4 }).ropeFrequencies, expected);
    assertClose(read({ ...short, "rope.scaling.type": "linear", "rope.scale_linear": 4 }).ropeFrequencies, expected);
    assertClose(read({ ...short, "rope.scaling.factor": 4, "rope.scale_linear": 2 }).ropeFrequencies, expected);
  });

  it("stay as they are where the file says not to scale", () => {
    assertClose(read({ ...short, "rope.scaling.type": "none", "rope.scaling.factor": 4 }).ropeFrequencies, unscaled);
    assertClose(read({ ...short, "rope.scaling.factor": 0 }).ropeFrequencies, unscaled);
  });

  // The numbers of these two were computed apart, in 32-bit floats, by the formulas llama.cpp uses.
  it("are kept, slowed down or something between by YaRN", () => {
    const { ropeFrequencies, ropeMagnitude } = read({
      "attention.key_length": 32,
      "rope.scaling.type": "yarn",
      "rope.scaling.factor": 4,
      "rope.scaling.original_context_length": 128,
      "rope.scaling.attn_factor": 0.5,
      "rope.scaling.yarn_beta_fast": 32,
    });
    assertClose(
      ropeFrequencies,
      [
        1, 0.4920487, 0.2371708, 0.1111425, 0.05, 0.0210878, 0.007905694, 0.004445699, 0.0025, 0.001405853,
        0.0007905694, 0.0004445699, 0.00025, 0.0001405853, 7.905694e-5, 4.445699e-5,
      ],
    );
    assertClose([ropeMagnitude], [0.5693147]);
  });

  it("are stretched by YaRN over the trained context where the file names no other", () => {
    const yarn = { ...short, "rope.scaling.type": "yarn", "rope.scaling.factor": 0.5 };
    const expected = [1, 0.3162278, 0.1, 0.03952847, 0.015, 0.005533986, 0.002, 0.0006324555];
    for (const original of [undefined, 0, 4096]) {
      const { ropeFrequencies, ropeMagnitude } = read({ ...yarn, "rope.scaling.original_context_length": original });
      assertClose(ropeFrequencies, expected);
      assert.equal(ropeMagnitude, 1);
    }
  });

  it("are divided by the file's own factors, one for each", () => {
    const factors = Float32Array.of(1, 1, 1, 1, 2, 4, 8, 8);
    const { ropeFrequencies } = read(short, factors);
    assertClose(
      ropeFrequencies,
      unscaled.map((frequency, pair) => frequency / (factors[pair] as number)),
    );
    for (const wrong of [
      [1, 1],
      [1, 1, 1, 1, 1, 1, 1, 0],
      [1, 1, 1, 1, 1, 1, 1, Number.NaN],
    ]) {
      assert.throws(() => read(short, Float32Array.from(wrong)), /rope_freqs.weight holds .* 8, all above 0/);
    }
  });

  it("are refused where base, factor or magnitude is absurd", () => {
    for (const value of [0, 1, -5, Number.NaN, Number.POSITIVE_INFINITY, "x"]) {
      refuses({ "rope.freq_base": value }, "model_file_invalid", /rope.freq_base/);
    }
    for (const value of [-1, Number.NaN, 1e9])
      refuses({ "rope.scaling.factor": value }, "model_file_invalid", /factor/);
    for (const value of [0, Number.NaN]) refuses({ "rope.scaling.attn_factor": value }, "model_file_invalid", /attn/);
  });
});
