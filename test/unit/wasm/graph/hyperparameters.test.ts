import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { GgufValue } from "../../../../engines/files/gguf/cursor.ts";
import { readTensorTable, type TensorInfo } from "../../../../engines/files/gguf/tensors.ts";
import { findArchitecture } from "../../../../engines/wasm/graph/architectures/registry.ts";
import { readHyperparameters, shapeForContext } from "../../../../engines/wasm/graph/hyperparameters.ts";
import type { FrequencyFactors, Rope } from "../../../../engines/wasm/graph/ropes.ts";
import type { Hyperparameters } from "../../../../engines/wasm/graph/shape.ts";
import { type ErrorCode, ServerError } from "../../../../runtime/errors.ts";
import { type TinyModelOptions, writeTinyModel } from "../../../fixtures/models/tiny-gguf.ts";
import { inTemporaryFolder } from "../../files/gguf/gguf-bytes.ts";

const least: Readonly<Record<string, GgufValue>> = {
  block_count: 2,
  context_length: 4096,
  embedding_length: 256,
  feed_forward_length: 512,
  "attention.head_count": 4,
  "attention.layer_norm_rms_epsilon": 1e-5,
};
const noFactors: FrequencyFactors = { always: null, short: null, long: null };

const embedding: TensorInfo = { name: "token_embd.weight", type: 0, shape: [256, 500], file: 0, offset: 0, bytes: 0 };
const tensors = new Map([[embedding.name, embedding]]);
const llama = findArchitecture("llama");

/** Changed metadata keys, without the architecture prefix; undefined removes a key. */
type Changes = Readonly<Record<string, GgufValue | undefined>>;

function readAs(architecture: string, changes: Changes, factors: Partial<FrequencyFactors> = {}): Hyperparameters {
  const fields = new Map<string, GgufValue>([["general.architecture", architecture]]);
  for (const [key, value] of Object.entries({ ...least, ...changes })) {
    if (value !== undefined) fields.set(`${architecture}.${key}`, value);
  }
  return readHyperparameters(findArchitecture(architecture), { fields, tensors }, { ...noFactors, ...factors });
}

function read(changes: Changes = {}, factors: Partial<FrequencyFactors> = {}): Hyperparameters {
  return readAs("llama", changes, factors);
}

function ropeOf({ ropes }: Hyperparameters): Rope {
  assert.equal(ropes.length, 1);
  return ropes[0] as Rope;
}

function readRope(changes: Changes, factors: Partial<FrequencyFactors> = {}): Rope {
  return ropeOf(read(changes, factors));
}

function refuses(changes: Changes, code: ErrorCode, words: RegExp, architecture = "llama"): void {
  assert.throws(
    () => readAs(architecture, changes),
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
      const table = await readTensorTable(path);
      const { ropes, epsilon, attentionScale, ...rest } = readHyperparameters(llama, table, noFactors);
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
        experts: null,
        embeddingScale: 1,
        residualScale: 1,
        logitScale: 1,
        logitSoftcap: 0,
        attentionSoftcap: 0,
        window: 0,
        slides: [],
        activation: "silu",
        alibi: 0,
        expertInterval: 0,
        stackedInputs: 0,
        queryRope: null,
        longRope: null,
      });
      assert.equal(epsilon, Math.fround(1e-5));
      assert.equal(attentionScale, 1 / 8);
      assert.deepEqual(
        ropes.map(({ frequencies, magnitude }) => [frequencies.length, magnitude]),
        [[32, 1]],
      );
    }));

  it("have default values if the file omits them", () => {
    const { kvHeads, headLength, rotated } = read();
    assert.deepEqual([kvHeads, headLength, rotated], [4, 64, 64]);
    const { frequencies, magnitude } = readRope({});
    assert.deepEqual([frequencies[0], magnitude], [1, 1]);
    assertClose(frequencies.subarray(16, 17), [0.01]);
  });

  it("take the vocabulary's size from the embedding, because the key may be out of date", () => {
    assert.equal(read({ vocab_size: 499 }).vocabSize, 500);
    const fields = new Map([["general.architecture", "llama"]]);
    const nothing = { fields, tensors: new Map() };
    assert.throws(() => readHyperparameters(llama, nothing, noFactors), /no matrix token_embd/);
  });

  it("are rejected by name if missing, of the wrong type or out of range", () => {
    for (const name of Object.keys(least)) {
      for (const value of [undefined, 0, -1, Number.NaN, Number.POSITIVE_INFINITY, "4", true, 2 ** 40]) {
        refuses({ [name]: value }, "model_file_invalid", new RegExp(`the model's llama.${name} is`));
      }
    }
    for (const value of [1.5, 1001])
      refuses({ block_count: value }, "model_file_invalid", /block_count is .* 1 to 1000/);
    const nameless = { fields: new Map(), tensors };
    assert.throws(() => readHyperparameters(llama, nameless, noFactors), /general.architecture is missing/);
  });

  it("are rejected if they contradict each other", () => {
    refuses(
      { "attention.head_count_kv": 3 },
      "model_file_invalid",
      /head_count_kv is 3; expected a divisor of the 4 heads/,
    );
    refuses({ "attention.head_count_kv": 8 }, "model_file_invalid", /head_count_kv/);
    refuses({ "rope.dimension_count": 65 }, "model_file_invalid", /from 1 to 64/);
    refuses({ "rope.dimension_count": 63 }, "model_file_invalid", /even/);
    refuses({ "attention.head_count": 512 }, "model_file_invalid", /key_length is missing/);
  });

  it("have the sections of a rope in three dimensions, one after another or interleaved", () => {
    const shape = { "attention.key_length": 128, "attention.value_length": 128 };
    const axesOf = (architecture: string, sections: number[], changes: Changes = {}) =>
      ropeOf(readAs(architecture, { ...shape, "rope.dimension_sections": sections, ...changes })).axes ?? [];
    assert.deepEqual([...axesOf("qwen2vl", [16, 24, 24])].join(""), "0".repeat(16) + "1".repeat(24) + "2".repeat(24));
    // 24 pairs of time and 20 of rows and columns each. After 60 pairs, rows and columns are used up.
    assert.deepEqual([...axesOf("qwen3vl", [24, 20, 20])].join(""), `${"012".repeat(20)}0000`);
    assert.equal(readAs("qwen3vl", { ...shape, "rope.dimension_sections": [24, 20, 20] }).stackedInputs, 0);
    for (const architecture of ["qwen2vl", "qwen3vl"]) {
      const wrong = { ...shape, "rope.dimension_sections": [24, 20, 19, 0] };
      refuses(wrong, "unsupported", /dimension_sections/, architecture);
    }
    const stacked = { ...shape, "rope.dimension_sections": [24, 20, 20, 0], n_deepstack_layers: 2 };
    refuses(stacked, "model_file_invalid", /n_deepstack_layers/, "qwen3vl");
    assert.equal(readAs("qwen3vl", { ...stacked, n_deepstack_layers: 1 }).stackedInputs, 1);
  });

  it("may be listed per layer if all are equal", () => {
    const lists = { "attention.head_count_kv": [2, 2], feed_forward_length: [512, 512] };
    const { kvHeads, feedForward } = read(lists);
    assert.deepEqual([kvHeads, feedForward], [2, 512]);
    refuses({ "attention.head_count_kv": [0, 0] }, "model_file_invalid", /head_count_kv/);
  });

  it("are rejected as unsupported if another engine runs the model", () => {
    refuses({ "attention.head_count": [4, 2] }, "unsupported", /head_count is a list of 2; .* --engine llama/);
    refuses({ feed_forward_length: [512, 256] }, "unsupported", /feed_forward_length/);
    refuses({ feed_forward_length: [512, 512, 512] }, "unsupported", /feed_forward_length/);
    refuses({ "attention.value_length": 32 }, "unsupported", /value_length is 32; the wasm engine runs 64/);
    for (const length of [66, 1024]) {
      const heads = { "attention.key_length": length, "attention.value_length": length };
      refuses(heads, "unsupported", /a multiple of 4 floats up to 512/);
    }
    refuses({ expert_count: 8 }, "unsupported", /expert_count is 8/, "qwen2");
    refuses(
      { "rope.scaling.type": "dynamic" },
      "unsupported",
      /"dynamic"; the wasm engine runs none, linear, longrope or yarn/,
    );
  });
});

describe("rotary frequencies", () => {
  const short = { "attention.key_length": 16, "rope.freq_base": 10_000 };
  const unscaled = [1, 0.3162278, 0.1, 0.03162278, 0.01, 0.003162278, 0.001, 0.0003162278];

  it("fall from 1 to nearly 1 / base", () => {
    assertClose(readRope(short).frequencies, unscaled);
    assertClose(readRope({ ...short, "rope.freq_base": 256 }).frequencies.subarray(0, 4), [1, 0.5, 0.25, 0.125]);
    assert.equal(readRope({ ...short, "rope.dimension_count": 8 }).frequencies.length, 4);
  });

  it("are all divided by the factor of linear scaling, which is the default kind", () => {
    const expected = unscaled.map((frequency) => frequency / 4);
    assertClose(readRope({ ...short, "rope.scaling.factor": 4 }).frequencies, expected);
    assertClose(readRope({ ...short, "rope.scaling.type": "linear", "rope.scale_linear": 4 }).frequencies, expected);
    assertClose(readRope({ ...short, "rope.scaling.factor": 4, "rope.scale_linear": 2 }).frequencies, expected);
  });

  it("stay unscaled if the file says so", () => {
    assertClose(readRope({ ...short, "rope.scaling.type": "none", "rope.scaling.factor": 4 }).frequencies, unscaled);
    assertClose(readRope({ ...short, "rope.scaling.factor": 0 }).frequencies, unscaled);
  });

  // The expected numbers were computed separately in 32-bit floats with llama.cpp's formulas.
  it("are kept, scaled or interpolated by YaRN", () => {
    const { frequencies, magnitude } = readRope({
      "attention.key_length": 32,
      "rope.scaling.type": "yarn",
      "rope.scaling.factor": 4,
      "rope.scaling.original_context_length": 128,
      "rope.scaling.attn_factor": 0.5,
      "rope.scaling.yarn_beta_fast": 32,
    });
    assertClose(
      frequencies,
      [
        1, 0.4920487, 0.2371708, 0.1111425, 0.05, 0.0210878, 0.007905694, 0.004445699, 0.0025, 0.001405853,
        0.0007905694, 0.0004445699, 0.00025, 0.0001405853, 7.905694e-5, 4.445699e-5,
      ],
    );
    assertClose([magnitude], [0.5693147]);
  });

  it("use YaRN's usual parameters whatever the file states, as in llama.cpp", () => {
    const yarn = { ...short, "rope.scaling.type": "yarn", "rope.scaling.factor": 8 };
    const usual = readRope(yarn);
    for (const key of ["beta_fast", "beta_slow", "ext_factor", "attn_factor", "log_multiplier"]) {
      assert.deepEqual(readRope({ ...yarn, [`rope.scaling.yarn_${key}`]: 1.2079 }), usual, key);
    }
  });

  it("are scaled by YaRN over the trained context if the file names no other", () => {
    const yarn = { ...short, "rope.scaling.type": "yarn", "rope.scaling.factor": 0.5 };
    const expected = [1, 0.3162278, 0.1, 0.03952847, 0.015, 0.005533986, 0.002, 0.0006324555];
    for (const original of [undefined, 0, 4096]) {
      const { frequencies, magnitude } = readRope({ ...yarn, "rope.scaling.original_context_length": original });
      assertClose(frequencies, expected);
      assert.equal(magnitude, 1);
    }
  });

  it("are divided by the file's own factors, one for each", () => {
    const factors = Float32Array.of(1, 1, 1, 1, 2, 4, 8, 8);
    const { frequencies } = readRope(short, { always: factors });
    assertClose(
      frequencies,
      unscaled.map((frequency, pair) => frequency / (factors[pair] as number)),
    );
    for (const wrong of [
      [1, 1],
      [1, 1, 1, 1, 1, 1, 1, 0],
      [1, 1, 1, 1, 1, 1, 1, Number.NaN],
    ]) {
      assert.throws(
        () => read(short, { always: Float32Array.from(wrong) }),
        /rope_freqs.weight holds .* 8 numbers above 0/,
      );
    }
  });

  it("are rejected if base, factor or magnitude is out of range", () => {
    for (const value of [0, 1, -5, Number.NaN, Number.POSITIVE_INFINITY, "x"]) {
      refuses({ "rope.freq_base": value }, "model_file_invalid", /rope.freq_base/);
    }
    for (const value of [-1, Number.NaN, 1e9])
      refuses({ "rope.scaling.factor": value }, "model_file_invalid", /factor/);
    for (const value of [0, Number.NaN]) refuses({ "rope.scaling.attn_factor": value }, "model_file_invalid", /attn/);
  });
});

describe("the factors of long contexts", () => {
  const short = { "attention.key_length": 16, "rope.scaling.original_context_length": 512 };
  const factors = { short: new Float32Array(8).fill(2), long: new Float32Array(8).fill(4) };

  it("replace the short ones if a sequence may be longer than the original context", () => {
    for (const type of [undefined, "longrope"]) {
      const shape = readAs("phi3", { ...short, "rope.scaling.type": type, "rope.scaling.attn_factor": 1.19 }, factors);
      for (const [tokens, expected] of [
        [512, 0.5],
        [513, 0.25],
      ] as const) {
        const { frequencies, magnitude } = ropeOf(shapeForContext(shape, tokens));
        assertClose(frequencies.subarray(0, 2), [expected, expected * Math.sqrt(0.1)]);
        assert.equal(magnitude, 1.19);
      }
    }
  });

  it("do not affect short contexts if only they exist, nor any context if none exist", () => {
    const shape = readAs("phi3", short, { long: factors.long });
    assert.equal(ropeOf(shape).frequencies[0], 1);
    assert.equal(ropeOf(shapeForContext(shape, 513)).frequencies[0], 0.25);
    const plain = readAs("phi3", short);
    assert.equal(shapeForContext(plain, 100_000), plain);
  });

  it("are rejected unless there is one per pair", () => {
    for (const [name, list] of Object.entries(factors)) {
      const cut = { [name]: list.subarray(1) };
      assert.throws(() => readAs("phi3", short, cut), new RegExp(`rope_factors_${name}.weight holds 7 .* 8`));
    }
  });
});

describe("the keys of single architectures", () => {
  const pattern = "attention.sliding_window_pattern";

  it("give Gemma's embedding scale, and the soft caps of its scores and logits", () => {
    assert.equal(readAs("gemma", {}).embeddingScale, 16);
    const usual = readAs("gemma2", {});
    assert.deepEqual([usual.embeddingScale, usual.attentionSoftcap, usual.logitSoftcap], [16, 50, 30]);
    const own = readAs("gemma2", { attn_logit_softcapping: 20, final_logit_softcapping: 10 });
    assert.deepEqual([own.attentionSoftcap, own.logitSoftcap], [20, 10]);
    const third = readAs("gemma3", {});
    assert.deepEqual([third.embeddingScale, third.attentionSoftcap, third.logitSoftcap], [16, 0, 0]);
    assert.equal(readAs("gemma3", { final_logit_softcapping: 10 }).logitSoftcap, 10);
  });

  it("give another scale of scores in the largest Gemma models, recognised by their number of layers", () => {
    const longHeads = { "attention.key_length": 16, "attention.value_length": 16 };
    for (const [name, layers] of [
      ["gemma2", 46],
      ["gemma3", 62],
    ] as const) {
      assert.equal(readAs(name, { ...longHeads, block_count: layers }).attentionScale, 1 / 8);
      assert.equal(readAs(name, { ...longHeads, block_count: layers - 1 }).attentionScale, 1 / 4);
    }
  });

  it("give the sliding layers, by a period or a list", () => {
    const layers = (changes: Changes, name = "gemma3") =>
      readAs(name, { block_count: 8, "attention.sliding_window": 100, ...changes })
        .slides.map(Number)
        .join("");
    assert.equal(layers({}), "11111011");
    assert.equal(layers({ [pattern]: 3 }), "11011011");
    assert.equal(layers({ [pattern]: 1 }), "00000000");
    assert.equal(layers({ [pattern]: 0 }), "11111111");
    assert.equal(layers({ [pattern]: [0, 1, 1, 0, 0, 0, 0, 1] }), "01100001");
    assert.equal(layers({ [pattern]: Array(8).fill(true) }), "11111111");
    assert.equal(layers({}, "gemma2"), "10101010");
    assert.equal(layers({}, "olmo2"), "11101110");
    assert.equal(layers({}, "phi3"), "");
    for (const name of ["gemma3", "olmo2"]) assert.equal(layers({ "attention.sliding_window": 0 }, name), "");
    for (const wrong of [Array(7).fill(true), Array(8).fill(2), Array(8).fill("yes")]) {
      refuses(
        { block_count: 8, "attention.sliding_window": 100, [pattern]: wrong },
        "model_file_invalid",
        /a list of 8 truths/,
        "gemma3",
      );
    }
    assert.equal(readAs("gemma2", {}).window, 4096);
    assert.equal(readAs("gemma3", { "attention.sliding_window": 100 }).window, 100);
  });

  it("give a separate RoPE of the sliding layers, which is never scaled", () => {
    const scaled = { "attention.key_length": 16, "rope.freq_base": 1e6, "rope.scaling.factor": 8 };
    const sliding = { ...scaled, "attention.sliding_window": 100 };
    const [all, own] = readAs("gemma3", { ...sliding, "rope.scaling.attn_factor": 1.5 }).ropes as [Rope, Rope];
    assertClose(all.frequencies.subarray(0, 5), [1 / 8, 10 ** -0.75 / 8, 10 ** -1.5 / 8, 10 ** -2.25 / 8, 1e-3 / 8]);
    assertClose(own.frequencies.subarray(0, 5), [1, 10 ** -0.5, 0.1, 10 ** -1.5, 0.01]);
    assert.deepEqual([all.magnitude, own.magnitude], [1.5, 1.5]);
    const [, based] = readAs("gemma3", { ...sliding, "rope.freq_base_swa": 256 }).ropes as [Rope, Rope];
    assertClose(based.frequencies.subarray(0, 2), [1, 0.5]);
    const yarn = { ...sliding, "rope.scaling.type": "yarn", "rope.scaling.attn_factor": 1.5 };
    const [slowed, plain] = readAs("olmo2", yarn).ropes as [Rope, Rope];
    assertClose(plain.frequencies.subarray(4, 5), [1e-3]);
    assert.equal(plain.magnitude, 1);
    assertClose([slowed.magnitude], [1.5 * (1 + 0.1 * Math.log(8))]);
    for (const name of ["gemma3", "olmo2"]) assert.equal(readAs(name, scaled).ropes.length, 1);
    refuses({ "rope.freq_base_swa": 1e4 }, "unsupported", /freq_base_swa/, "gemma2");
  });

  it("give mistral3 the YaRN constants of the file, and its queries an attention temperature with steps of the original context length", () => {
    const yarn = { "attention.key_length": 16, "rope.scaling.type": "yarn", "rope.scaling.factor": 16 };
    const own = { ...yarn, "rope.scaling.original_context_length": 1024, "attention.temperature_scale": 0.1 };
    const { ropes, queryRope } = readAs("mistral3", { ...own, "rope.scaling.yarn_log_multiplier": 1 });
    assert.equal(queryRope, 1);
    const [keys, queries] = ropes as [Rope, Rope];
    assert.deepEqual(queries, { ...keys, temperature: { scale: 0.1, length: 1024 } });
    assert.equal(keys.magnitude, 1, "the multiplier cancels the usual magnitude");
    assertClose([readAs("mistral3", yarn).ropes[0]!.magnitude], [1 + 0.1 * Math.log(16)]);
    assert.equal(readAs("mistral3", yarn).queryRope, null);
    const turns = { ...own, "rope.scaling.yarn_beta_fast": 2 };
    assert.notDeepEqual(readAs("mistral3", turns).ropes[0]!.frequencies, keys.frequencies);
    refuses({ "rope.dimension_count": 4 }, "unsupported", /dimension_count is 4/, "mistral3");
  });

  it("give the four scales of granite, the last stored as a divisor", () => {
    const own = { embedding_scale: 12, residual_scale: 0.22, "attention.scale": 0.015625, logit_scale: 16 };
    const scales = ({ embeddingScale, residualScale, attentionScale, logitScale }: Hyperparameters) => [
      embeddingScale,
      residualScale,
      attentionScale,
      logitScale,
    ];
    assert.deepEqual(scales(readAs("granite", own)), [12, 0.22, 1 / 64, 1 / 16]);
    assert.deepEqual(scales(readAs("granite", { logit_scale: 1, residual_scale: 0 })), [1, 1, 1 / 8, 1]);
    refuses({}, "model_file_invalid", /logit_scale is missing/, "granite");
    refuses({ logit_scale: 1, "rope.scaling.finetuned": false }, "unsupported", /finetuned is false/, "granite");
  });

  it("give the epsilon of the architecture's kind of norm", () => {
    refuses({}, "model_file_invalid", /layer_norm_epsilon is missing/, "stablelm");
    assert.equal(readAs("stablelm", { "attention.layer_norm_epsilon": 1e-4 }).epsilon, 1e-4);
  });
});
