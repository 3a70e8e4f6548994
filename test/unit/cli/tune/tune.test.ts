import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import type { TuneCandidate, TuneRequest, TuneResult } from "../../../../actors/api/tuning.ts";
import { parseArguments } from "../../../../cli/arguments.ts";
import { type ModelConfig, resolveConfig } from "../../../../cli/config/config.ts";
import { parseToml } from "../../../../cli/config/toml.ts";
import { fitOf } from "../../../../cli/tune/fit.ts";
import { mixedSpeed, scoreOf } from "../../../../cli/tune/measure/score.ts";
import { modelSizes } from "../../../../cli/tune/model-sizes.ts";
import { type CommandFlags, commandOf, keptSettings, settingsFile } from "../../../../cli/tune/recommendation.ts";
import { requestedTuning } from "../../../../cli/tune/tuner.ts";
import { threadCounts } from "../../../../cli/tune/tuning.ts";
import { qualityOf, variantsOf } from "../../../../cli/tune/variants.ts";
import type { ModelSource } from "../../../../engines/quantization/conversion/model-source.ts";
import type { ServerError } from "../../../../runtime/errors.ts";
import { createLogger } from "../../../../runtime/log/log.ts";

const gib = 2 ** 30;
const sizes = {
  ...{ trainedContext: 8192, layers: 30, width: 576, feedForward: 1536, vocabSize: 49_152 },
  ...{ kvElements: 30 * 3 * 128, isEncoder: false },
};
const question = {
  ...{ engine: "llama" as const, threads: 2, weightBytes: gib, sizes, maxSequences: null, maxModelLength: null },
  ...{ maxBatchTokens: 4096, bytesPerKvElement: 2 },
  memory: { totalBytes: 16 * gib, freeBytes: 16 * gib, mainFreeBytes: null },
};

/** Returns a model source of one layer, whose matrices have rows of `columns` values. */
function sourceOf(columns: number, type: number): ModelSource {
  const tensor = (name: string, shape: number[], of = type) => {
    return {
      name,
      shape,
      type: of,
      isMatrix: shape.length > 1,
      values: { kind: "blocks" as const, file: 0, offset: 0, type, rows: shape[1] ?? 1, columns: shape[0] ?? 1 },
    };
  };
  return {
    files: [],
    pairs: new Map([["general.architecture", { type: "string", value: "llama" }]]),
    tensors: [
      tensor("token_embd.weight", [columns, 100]),
      tensor("blk.0.ffn_up.weight", [columns, 4 * columns]),
      tensor("blk.0.attn_norm.weight", [columns], 0),
    ],
  };
}

describe("variants of a model", () => {
  const names = (source: ModelSource, isCheckpoint = false, level: string | null = null) =>
    variantsOf(source, { isCheckpoint, level, floatType: null }).map(
      ({ typeName, quality }) => `${typeName} ${quality}`,
    );

  it("are the unchanged weights, then the levels from many bits to few", () => {
    const levels = ["Q8_0 near-lossless", "Q6_K good", "Q5_K good", "Q4_K acceptable"];
    assert.deepEqual(names(sourceOf(512, 1)), ["F16 baseline", ...levels]);
    assert.deepEqual(names(sourceOf(512, 0), true), ["F32 baseline", "F16 baseline", ...levels]);
    assert.deepEqual(names(sourceOf(512, 1), false, "4"), ["Q4_K acceptable"]);
  });

  it("are fewer if levels give the same types", () => {
    // Rows of 96 values do not fit blocks of 256, so Q6_K is written as Q8_0 and would be the same variant as Q8_0.
    assert.deepEqual(names(sourceOf(96, 1)), ["F16 baseline", "Q8_0 near-lossless", "Q5_1 good", "Q5_0 good"]);
    assert.deepEqual(names(sourceOf(96, 8)), ["Q8_0 baseline", "Q5_1 good", "Q5_0 good"]);
  });

  it("have a quality by their bits", () => {
    const classes = [32, 16, 8.5, 6.5625, 5.5, 4.5, 3.4375].map(qualityOf);
    const expected = ["baseline", "baseline", "near-lossless", "good", "good", "acceptable", "degraded"];
    assert.deepEqual(classes, expected);
  });
});

describe("the score of a candidate", () => {
  const speeds = (factor: number) => ({ prompt: 300 * factor, decode: 30 * factor, batchedDecode: 150 * factor });

  it("is a mixed speed, weighted as the profile says", () => {
    assert.ok(Math.abs(mixedSpeed(speeds(1)) - 1 / (2 / 300 + (1 / 30 + 1 / 150) / 2)) < 1e-9);
    assert.equal(mixedSpeed({ prompt: 300, decode: null, batchedDecode: null }), 300);
    const whole = { quality: "baseline", speeds: speeds(1) } as const;
    const small = (factor: number) => ({ quality: "acceptable", speeds: speeds(factor) }) as const;
    const prefersSmall = (profile: "quality" | "balanced" | "fast", factor: number) =>
      scoreOf(small(factor), profile) > scoreOf(whole, profile);
    assert.deepEqual([prefersSmall("fast", 1.05), prefersSmall("fast", 0.95)], [true, false]);
    assert.deepEqual([prefersSmall("balanced", 1.4), prefersSmall("balanced", 1.2)], [true, false]);
    assert.equal(prefersSmall("quality", 100), false);
    assert.ok(scoreOf({ ...whole, speeds: speeds(2) }, "quality") > scoreOf(whole, "quality"));
  });
});

describe("the fit of a candidate", () => {
  it("gives all sequences the trained context if there is room", () => {
    const fit = fitOf({ ...question, memory: { totalBytes: 64 * gib, freeBytes: 64 * gib, mainFreeBytes: null } });
    assert.deepEqual([fit.status, fit.maxSequences, fit.contextTokens], ["fits", 32, 8192]);
    assert.equal(fit.kvTokens, 32 * 8192);
    const kvBytes = fit.kvTokens * sizes.kvElements * 2;
    assert.ok(fit.memoryBytes > gib + kvBytes && fit.memoryBytes < gib + kvBytes + 0.1 * gib);
  });

  it("takes fewer sequences before a context below 4096 tokens, and keeps to the settings of the user", () => {
    const small = { ...question, memory: { totalBytes: 4 * gib, freeBytes: 4 * gib, mainFreeBytes: null } };
    const fit = fitOf(small);
    assert.equal(fit.status, "fits");
    assert.ok(fit.maxSequences < 32 && fit.contextTokens >= 4096, JSON.stringify(fit));
    const given = fitOf({ ...small, maxSequences: 32, maxModelLength: 512 });
    assert.deepEqual([given.maxSequences, given.contextTokens], [32, 512]);
    // At most a quarter of the memory is for the KV cache.
    assert.ok(fit.kvTokens * sizes.kvElements * 2 <= gib);
  });

  it("shares one pool between sequences on wasm, within the memories of its threads", () => {
    const fit = fitOf({ ...question, engine: "wasm" });
    assert.deepEqual([fit.maxSequences, fit.contextTokens], [32, 8192]);
    const full = fitOf({ ...question, engine: "wasm", threads: 1, weightBytes: 4 * gib });
    assert.equal(full.status, "too-large");
  });

  it("reports models that do not fit, or only together with main memory", () => {
    const large = { ...question, weightBytes: 20 * gib };
    assert.equal(fitOf(large).status, "too-large");
    const gpu = { totalBytes: 16 * gib, freeBytes: 16 * gib, mainFreeBytes: 32 * gib };
    assert.equal(fitOf({ ...large, memory: gpu }).status, "hybrid");
    assert.equal(fitOf({ ...large, weightBytes: 60 * gib, memory: gpu }).status, "too-large");
  });

  it("has no KV cache for an encoder", () => {
    const fit = fitOf({ ...question, sizes: { ...sizes, kvElements: 0, isEncoder: true } });
    assert.deepEqual([fit.status, fit.kvTokens, fit.contextTokens], ["fits", 0, 4096]);
  });

  it("is computed from the sizes in the file", () => {
    const { pairs, ...others } = sourceOf(512, 1);
    const u32 = (value: number) => ({ type: "u32", value }) as const;
    const of = (more: readonly (readonly [string, { type: "u32"; value: number } | object])[]) =>
      modelSizes({ ...others, pairs: new Map([...pairs, ...more]) as ModelSource["pairs"] });
    const common = [
      ["llama.embedding_length", u32(512)],
      ["llama.block_count", u32(4)],
      ["llama.attention.head_count", u32(8)],
      ["llama.context_length", u32(2048)],
    ] as const;
    const found = of([...common, ["llama.attention.head_count_kv", u32(2)]]);
    assert.deepEqual([found.kvElements, found.vocabSize, found.trainedContext], [4 * 2 * 128, 100, 2048]);
    const uneven = of([
      ...common,
      ["llama.attention.head_count_kv", { type: "array", of: "i32", value: [0, 2, 0, 2] }],
    ]);
    assert.equal(uneven.kvElements, 4 * 128);
  });
});

describe("numbers of threads", () => {
  it("are up to four fractions of the cores", () => {
    assert.deepEqual([1, 2, 4, 8, 64].map(threadCounts), [[1], [2, 1], [4, 3, 2, 1], [8, 6, 4, 2], [64, 48, 32, 16]]);
  });
});

describe("the recommendation", () => {
  const candidate: TuneCandidate = {
    ...{ isq: "Q4K", isqName: "Q4_K", engine: "wasm", threads: 3, maxSequences: 8, maxBatchTokens: 2048 },
    ...{ weightBytes: 1, memoryBytes: 1, memoryPercent: 1, contextTokens: 4096, isModelContext: false },
    ...{ kvTokens: 65_536, quality: "acceptable", fit: "fits", gpuLayers: null, speeds: null, isRecommended: true },
  };
  const kept = [
    { section: "models.device", name: "cpu", flag: "--cpu", value: true },
    { section: "models.format", name: "quantized_file", flag: "--quantized-file", value: "it's.gguf" },
    { section: "", name: "seed", flag: "--seed", value: 7 },
  ];
  const flags = { modelId: "owner/name", kept };
  const result: TuneResult = {
    ...{ model: "name\n[troupe]", profile: "fast", backend: "cpu", candidates: [candidate], recommendedCommand: "" },
    ...{ totalBytes: 1, seconds: 1, warnings: [], notes: [] },
  };
  const settled = (config: ReturnType<typeof resolveConfig>) => {
    const [model] = config.models;
    const { maxSeqs, maxNumBatchedTokens, troupe, pagedAttn, seed } = config;
    return {
      ...{ maxSeqs, maxNumBatchedTokens, seed, kvCache: pagedAttn.kvCache },
      ...{ engine: troupe.engine, threads: troupe.threads, modelId: model?.modelId, length: model?.maxModelLen },
      ...{
        isq: model?.quantization.isq,
        cpu: model?.device.cpu,
        file: model?.format.quantizedFile,
        dtype: model?.dtype,
      },
    };
  };
  const request = { command: "serve", environment: {}, defaultModel: "other" } as const;
  const expected = {
    ...{ maxSeqs: 8, maxNumBatchedTokens: 2048, seed: 7, kvCache: { tokens: 65_536 }, engine: "wasm", threads: 3 },
    ...{ modelId: "owner/name", length: 4096, isq: "Q4K", cpu: true, file: "it's.gguf", dtype: "auto" },
  };

  it("is a settings file with the same settings as the command line", () => {
    const file = parseToml(settingsFile(result, flags), "t.toml");
    assert.deepEqual(settled(resolveConfig({ ...request, flags: {}, file })), expected);
    const line = commandOf(candidate, flags);
    assert.match(line, /^troupe serve -m owner\/name --cpu --quantized-file 'it'\\''s\.gguf' --seed 7 --isq Q4K /);
    const words = line.replace("'it'\\''s.gguf'", "it's.gguf").split(" ");
    assert.deepEqual(settled(resolveConfig({ ...request, flags: parseArguments(words.slice(1)).flags })), expected);
  });

  it("keeps the user's settings, and starts with them", () => {
    const kept = (...words: string[]) => {
      const { flags: given } = parseArguments(["tune", "-m", "m", ...words]);
      const config = resolveConfig({ command: "tune", flags: given, environment: {}, defaultModel: "other" });
      const notes: string[] = [];
      return { notes, flags: { modelId: "m", kept: keptSettings(config, config.models[0] as ModelConfig, notes) } };
    };
    const started = (one: TuneCandidate, flags: CommandFlags) => {
      const file = parseToml(settingsFile({ ...result, candidates: [one] }, flags), "t.toml");
      const words = commandOf(one, flags).split(" ").slice(1);
      const given = [{ file, flags: {} }, { flags: parseArguments(words).flags }];
      const configs = given.map((each) => resolveConfig({ ...request, ...each }));
      assert.deepEqual({ ...configs[0], origins: [] }, { ...configs[1], origins: [] });
      return configs[0] as ReturnType<typeof resolveConfig>;
    };
    const all = kept(...["--mmap", "false", "--pooling", "tokens", "--max-num-images", "2", "--enable-lora"]);
    const { models, troupe } = started(candidate, all.flags);
    assert.deepEqual(
      [troupe.mmap, models[0]?.embedding.pooling, models[0]?.multimodal.maxNumImages, models[0]?.adapter.enableLora],
      [false, "tokens", 2, true],
    );
    assert.deepEqual(all.notes, []);
    assert.deepEqual(kept("--lora", "a=b").notes, ["lora is not repeated in the recommended settings: add it"]);

    const quant = started(candidate, kept("--quant", "q4k").flags).models[0]?.quantization;
    assert.deepEqual([quant?.quant, quant?.isq], ["q4k", null]);
    const weighed = kept("--imatrix", "i.gguf", "--isq", "4", "--isq-organization", "moqe").flags;
    assert.equal(started(candidate, weighed).models[0]?.quantization.imatrix, "i.gguf");
    assert.equal(started({ ...candidate, isq: null }, weighed).models[0]?.quantization.imatrix, null);
  });

  it("omits what is not set", () => {
    const plain = { ...candidate, isq: null, engine: "llama" as const, kvTokens: null };
    const text = settingsFile({ ...result, candidates: [plain] }, { modelId: "m.gguf", kept: [] });
    assert.doesNotMatch(text, /isq|kv_cache|paged_attn|quantization|format|device/);
    const config = resolveConfig({ ...request, flags: {}, file: parseToml(text, "t.toml") });
    assert.deepEqual([config.models[0]?.quantization.isq, config.troupe.engine], [null, "llama"]);
    assert.doesNotMatch(commandOf(plain, { modelId: "m.gguf", kept: [] }), /--isq|--kv-cache/);
    assert.match(commandOf({ ...plain, isq: "F16" }, { modelId: "m", kept: [] }), / --dtype f16 /);
  });
});

describe("a tuning that a client requests", () => {
  const home = mkdtempSync(join(tmpdir(), "tune-"));
  after(() => rmSync(home, { recursive: true, force: true }));
  const [served, elsewhere] = ["served", "elsewhere"].map((name) => join(home, name)) as [string, string];
  for (const folder of [served, elsewhere]) {
    mkdirSync(folder);
    for (const name of ["m-Q4_K_M.gguf", "m-Q8_0.gguf"]) writeFileSync(join(folder, name), "GGUF");
  }
  const requested = (words: readonly string[], fields: Partial<TuneRequest> = {}) => {
    const config = resolveConfig({
      ...{ command: "serve", environment: {}, defaultModel: "other" },
      flags: parseArguments(["serve", ...words, "--max-seqs", "3"]).flags,
    });
    const free = { profile: "fast", level: null, cpu: null, dtype: null, revision: null, tokenSource: null } as const;
    return requestedTuning(
      config,
      { model: "default", ...free, ...fields },
      createLogger({ level: "silent", format: "text" }),
    );
  };
  const flagsOf = ({ flags }: { readonly flags: CommandFlags }) =>
    flags.kept.flatMap(({ flag, value }) => (value === true ? [flag] : [flag, String(value)]));

  it("measures the file that the settings of a configured model choose, and repeats these settings", async () => {
    const tuning = await requested(["-m", served, "--quant", "8", "--dtype", "f16", "--cpu", "--mmproj", "p.gguf"]);
    assert.equal(tuning.path, join(served, "m-Q8_0.gguf"));
    assert.deepEqual([tuning.level, tuning.dtype, tuning.cpu], ["8", "f16", true]);
    assert.deepEqual(flagsOf(tuning).sort(), ["--cpu", "--dtype", "--mmproj", "--quant", "8", "f16", "p.gguf"]);
  });

  it("lets the request decide before the settings", async () => {
    const words = ["-m", served, "--quant", "8", "--dtype", "f16", "--cpu"];
    const tuning = await requested(words, { level: "Q4_K", dtype: "auto", cpu: false });
    assert.equal(tuning.path, join(served, "m-Q4_K_M.gguf"));
    assert.deepEqual([tuning.level, tuning.dtype, tuning.cpu], ["Q4_K", "auto", false]);
    assert.deepEqual(flagsOf(tuning), ["--quant", "Q4_K"]);
  });

  it("chooses the level itself if the settings leave it open", async () => {
    const auto = await requested(["-m", served, "--quant", "auto"]);
    assert.deepEqual([auto.level, flagsOf(auto)], [null, []]);
    assert.deepEqual(auto.notes, ['quant = "auto" is not repeated: the tuning chooses the quantization']);
    assert.equal((await requested(["-m", join(served, "m-Q8_0.gguf"), "--isq", "4"])).level, null);
  });

  it("opens no file outside the folders of models", async () => {
    const words = ["-m", join(served, "m-Q8_0.gguf")];
    const beside = join(served, "m-Q4_K_M.gguf");
    assert.equal((await requested(words, { model: beside })).path, beside);
    const link = join(served, "link.gguf");
    symlinkSync(join(elsewhere, "m-Q8_0.gguf"), link);
    const messages: string[] = [];
    for (const model of [join(elsewhere, "m-Q8_0.gguf"), join(elsewhere, "none.gguf"), link, elsewhere, "../secret"]) {
      const error = await requested(words, { model }).then(
        () => assert.fail(model),
        (failure: ServerError) => failure,
      );
      assert.equal(error.code, "model_not_found");
      messages.push(error.message.replace(JSON.stringify(model), "it"));
    }
    assert.equal(new Set(messages).size, 1, messages.join("\n"));
    assert.match(
      messages[0] as string,
      /expected the path of a file beside a configured model or in a cache of models/,
    );
  });
});
