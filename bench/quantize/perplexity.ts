// Perplexity of the default model in each number type: our quantized files compared with the files of llama.cpp's quantizer. Both
// files have the same type for each tensor and so the same size. llama.cpp runs both.
import { mkdtemp, rm, stat } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { table } from "../../cli/bench/report.ts";
import type { LoadedModel } from "../../engines/engine.ts";
import { readTensorTable } from "../../engines/files/gguf/tensors.ts";
import { openEngine } from "../../engines/open-engine.ts";
import { convert, planConversion } from "../../engines/quantization/conversion/conversion.ts";
import { openGgufSource } from "../../engines/quantization/conversion/model-source.ts";
import type { Importance } from "../../engines/quantization/importance/importance-file.ts";
import {
  type QuantizedType,
  quantizedTypes,
  withQuantizationSource,
  withQuantizedModel,
} from "../../test/fixtures/gguf/quantize.ts";
import { specOf } from "../../test/fixtures/models/models.ts";
import { type Divergence, mean } from "../parity/divergence.ts";
import { chunkBatchTokens, chunkTokens, compareAll } from "../parity/teacher-forcing.ts";
import { textTokens } from "../parity/text.ts";
import { report } from "../results.ts";
import { calibrationText, collectImportance, writeWithImportance } from "./importance.ts";

/** Types without blocks. They are not compared, because their encoding is exact up to rounding. */
const floats: readonly string[] = ["F32", "F16", "BF16"];
/** Types whose encoding does not depend on an importance matrix. */
const withoutImportance: readonly string[] = ["Q8_0"];
const importanceMethod =
  ` Both files are encoded with the same importance matrix: that of the first 4,000 tokens of ${calibrationText}, read by the ` +
  "wasm engine (setting calibration_file). llama.cpp's bytes are those of ggml_quantize_chunk, which gives the bytes of its " +
  "quantizer without importance (checked for each tensor). Error: squared errors of the weights times the importance of their " +
  "columns, ours over llama.cpp's: geometric mean of the matrices, and the largest of a matrix.";
/** Length of a window in tokens. All windows run at once, each in one sequence. */
const windowTokens = 128;

/** Compares the types in `types`. null = all types, or with an importance matrix all types whose encoding uses it. */
export async function comparePerplexity(
  types: readonly string[] | null,
  hasImportance: boolean,
  texts: readonly string[],
  save: boolean,
): Promise<void> {
  const isMeant = (type: string) => !floats.includes(type) && !(hasImportance && withoutImportance.includes(type));
  const chosen = quantizedTypes.filter((type) => (types === null ? isMeant(type) : types.includes(type)));
  const rows: string[][] = [];
  for (const type of chosen) {
    process.stderr.write(`${type} ...\n`);
    const row = await compare(type, hasImportance, texts);
    process.stderr.write(`${row.join("  ")}\n`);
    rows.push(row);
  }
  const errors = hasImportance ? ["error", "largest"] : [];
  report(
    {
      name: hasImportance ? "quantize-perplexity-importance" : "quantize-perplexity",
      title: `Perplexity of our quantized files over those of llama.cpp's quantizer${hasImportance ? ", with importance" : ""}`,
      method:
        `${chunkTokens * windowTokens} tokens of the README of ${texts.join(", ")} each, in windows of ${windowTokens}, ` +
        "teacher-forced, on llama.cpp with KV as f16. Both files are made from the same file and have the same type for each " +
        "tensor. KL: mean Kullback-Leibler divergence from the model that both are made from, llama.cpp's and ours. After ±: " +
        "standard error of the mean difference. Types in " +
        "blocks of 256 use the model with zeros around its matrices (test/fixtures/models/padded-model.ts). The default model " +
        `is Q4_1 itself, so Q4_1 is exact.${hasImportance ? importanceMethod : ""}`,
      body: table(["type", "llama.cpp's", "ours", "over", "KL", "our KL", "more KL", ...errors], rows),
    },
    save,
  );
}

async function compare(type: QuantizedType, hasImportance: boolean, texts: readonly string[]): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-perplexity-"));
  const target = join(folder, "ours.gguf");
  try {
    return await withQuantizedModel(type, async ({ path }) => {
      const { tensors } = await readTensorTable(path);
      const types = new Map([...tensors].map(([name, tensor]) => [name, tensor.type]));
      let theirs = path;
      let row: string[] = [];
      await withQuantizationSource(type, async (from) => {
        let errors: string[] = [];
        if (hasImportance) {
          theirs = join(folder, "theirs.gguf");
          const files = { from, like: path, ours: target, theirs };
          const ratios = await writeWithImportance(files, await importanceFor(from));
          errors = ratios === null ? ["none", "none"] : [ratios.mean.toFixed(3), ratios.largest.toFixed(3)];
        } else {
          const plan = { source: await openGgufSource(from), types, importance: new Map(), fileType: null };
          await convert(await planConversion(plan), { target, threads: availableParallelism() });
        }
        row = [type, ...(await judge(texts, from, theirs, target)), ...errors];
      });
      return row;
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Runs the model at `from` and its two quantized files on the texts. Returns the table cells with perplexities and divergences. */
async function judge(texts: readonly string[], from: string, theirs: string, ours: string): Promise<string[]> {
  const reference = await load(from);
  const subjects = [await load(theirs), await load(ours)];
  const divergences = texts.map((text) => {
    const tokens = textTokens(reference, chunkTokens * windowTokens + 1, text);
    return compareAll({ reference, tokens, windowTokens }, subjects) as [Divergence, Divergence];
  });
  for (const model of [reference, ...subjects]) model.dispose();
  const losses = (model: 0 | 1) => divergences.flatMap((pair) => pair[model].losses);
  const kls = (model: 0 | 1) => divergences.flatMap((pair) => pair[model].kls);
  const [theirLosses, ourLosses, theirKls, ourKls] = [losses(0), losses(1), kls(0), kls(1)];
  const loss = difference(ourLosses, theirLosses);
  const kl = difference(ourKls, theirKls);
  const percent = (nats: number) => (Math.expm1(nats) * 100).toFixed(2);
  return [
    ...[Math.exp(mean(theirLosses)).toFixed(3), Math.exp(mean(ourLosses)).toFixed(3)],
    `${percent(loss.mean)} ± ${percent(loss.error)} %`,
    ...[mean(theirKls).toFixed(5), mean(ourKls).toFixed(5), `${kl.mean.toFixed(5)} ± ${kl.error.toFixed(5)}`],
  ];
}

/** Returns the mean of the differences a - b at each position, and the standard error of this mean. */
function difference(a: readonly number[], b: readonly number[]): { readonly mean: number; readonly error: number } {
  const differences = a.map((value, i) => value - (b[i] as number));
  const center = mean(differences);
  const variance = mean(differences.map((value) => (value - center) ** 2));
  return { mean: center, error: Math.sqrt(variance / differences.length) };
}

/**
 * Importance matrices that were already computed, by file size. There are two source files: the model, and the model with zeros
 * added around its matrices.
 */
const known = new Map<number, Importance>();

async function importanceFor(path: string): Promise<Importance> {
  const { size } = await stat(path);
  const importance = known.get(size) ?? (await collectImportance(path));
  known.set(size, importance);
  return importance;
}

async function load(path: string): Promise<LoadedModel> {
  const changes = {
    ...{ maxSequences: chunkTokens, maxBatchTokens: chunkBatchTokens, maxModelLength: 2 * windowTokens },
    ...{ kvBudget: { tokens: chunkTokens * 2 * windowTokens }, threads: 1, kvType: "f16" as const },
  };
  return await (await openEngine("llama")).load(specOf(path, changes), () => {});
}
