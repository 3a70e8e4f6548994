// Perplexity of the default model in each number type: our files over those of llama.cpp's quantizer. Both files have the same
// type for each tensor, so the same size; llama.cpp runs both.
import { mkdtemp, rm } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { table } from "../../cli/bench/report.ts";
import type { LoadedModel } from "../../engines/engine.ts";
import { readTensorTable } from "../../engines/files/gguf/tensors.ts";
import { openEngine } from "../../engines/open-engine.ts";
import { convert, planConversion } from "../../engines/quantization/conversion/conversion.ts";
import { openGgufSource } from "../../engines/quantization/conversion/model-source.ts";
import {
  type QuantizedType,
  quantizedTypes,
  withQuantizationSource,
  withQuantizedModel,
} from "../../test/fixtures/gguf/quantize.ts";
import { specOf } from "../../test/fixtures/models/models.ts";
import { chunkBatchTokens, chunkTokens, compareForced } from "../parity/teacher-forcing.ts";
import { textTokens } from "../parity/text.ts";
import { report } from "../results.ts";

/** Types without blocks. Their encoding is exact up to rounding. */
const floats: readonly string[] = ["F32", "F16", "BF16"];
/** Length of a window. As many windows as sequences run at once. */
const windowTokens = 128;

export async function comparePerplexity(types: readonly string[] | null, save: boolean): Promise<void> {
  const chosen = quantizedTypes.filter((type) => (types === null ? !floats.includes(type) : types.includes(type)));
  const rows: string[][] = [];
  for (const type of chosen) {
    process.stderr.write(`${type} ...\n`);
    rows.push(await compare(type));
  }
  report(
    {
      name: "quantize-perplexity",
      title: "Perplexity of our quantized files over those of llama.cpp's quantizer",
      method:
        `${chunkTokens * windowTokens} tokens of a README in windows of ${windowTokens}, teacher-forced, on llama.cpp with KV as ` +
        "f16. Both files are made from the same file and have the same type for each tensor. Types in blocks of 256 use the " +
        "model with zeros around its matrices (test/fixtures/models/padded-model.ts).",
      body: table(["type", "llama.cpp's", "ours", "ours over llama.cpp's", "mean KL"], rows),
    },
    save,
  );
}

async function compare(type: QuantizedType): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-perplexity-"));
  const target = join(folder, "ours.gguf");
  try {
    return await withQuantizedModel(type, async ({ path }) => {
      const { tensors } = await readTensorTable(path);
      const types = new Map([...tensors].map(([name, tensor]) => [name, tensor.type]));
      await withQuantizationSource(type, async (from) => {
        const plan = { source: await openGgufSource(from), types, importance: new Map(), fileType: null };
        await convert(await planConversion(plan), { target, threads: availableParallelism() });
      });
      const [reference, subject] = [await load(path), await load(target)];
      const tokens = textTokens(reference, chunkTokens * windowTokens + 1);
      const { referencePerplexity, perplexity, meanKl } = compareForced(
        { reference, subject, tokens, windowTokens },
        "decode",
      );
      for (const model of [reference, subject]) model.dispose();
      const over = `${((perplexity / referencePerplexity - 1) * 100).toFixed(2)} %`;
      return [type, referencePerplexity.toFixed(3), perplexity.toFixed(3), over, meanKl.toFixed(5)];
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function load(path: string): Promise<LoadedModel> {
  const changes = {
    ...{ maxSequences: chunkTokens, maxBatchTokens: chunkBatchTokens, maxModelLength: 2 * windowTokens },
    ...{ kvBudget: { tokens: chunkTokens * 2 * windowTokens }, threads: 1, kvType: "f16" as const },
  };
  return await (await openEngine("llama")).load(specOf(path, changes), () => {});
}
