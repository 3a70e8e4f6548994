// `bench parity`: compares the wasm engine's output with llama.cpp's, on the real test model in each data type.
import { availableParallelism } from "node:os";
import { basename } from "node:path";
import arg from "arg";
import { table } from "../../cli/bench/report.ts";
import type { EngineName, LoadedModel, ModelSpec } from "../../engines/engine.ts";
import { openEngine } from "../../engines/open-engine.ts";
import {
  type QuantizedModel,
  type QuantizedType,
  quantizedTypes,
  withQuantizedModel,
} from "../../test/fixtures/gguf/quantize.ts";
import { specOf } from "../../test/fixtures/models/models.ts";
import { engineName } from "../command.ts";
import { report } from "../results.ts";
import type { Divergence } from "./divergence.ts";
import { chunkBatchTokens, chunkTokens, compareForced, type Form } from "./teacher-forcing.ts";
import { textTokens } from "./text.ts";

const forms: readonly Form[] = ["chunks", "decode"];
/** Float types that are not measured, because F16 already shows every difference that they would show. */
const unmeasured: readonly string[] = ["F32", "BF16"];
/**
 * KV cache type for the comparison of llama.cpp with itself. Its two runs differ only in the rounding of the KV cache, so the
 * comparison shows the effect of rounding.
 */
const floorCacheType = "bf16";
/** llama.cpp allocates room for at least this number of tokens in each sequence. */
const leastContext = 256;

interface Lengths {
  readonly tokenCount: number;
  readonly windowTokens: number;
}

export const usage = `npm run bench -- parity [FLAGS]: whether the wasm engine's output equals llama.cpp's, in each number type

  --types A[,B]         number types; default: all
  --forms A[,B]         how the tested model gets its tokens: chunks or decode; default: both
  --engines wasm,llama  engines to compare with the reference
  --tokens 4096 --window 4096
  --cache-type auto     number type of the KV cache
  --model FILE          test this file only, instead of the number types
  --gpu                 test llama.cpp on the GPU, with the wasm engine as the reference
  --save
`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--types": String,
      "--forms": String,
      "--tokens": Number,
      "--window": Number,
      "--engines": String,
      "--cache-type": String,
      "--model": String,
      "--gpu": Boolean,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const types = (flags["--types"]?.split(",") ??
    quantizedTypes.filter((type) => !unmeasured.includes(type))) as QuantizedType[];
  const chosen = (flags["--forms"] ?? forms.join(",")).split(",") as Form[];
  const gpu = flags["--gpu"] ?? false;
  const engines = (flags["--engines"] ?? (gpu ? "llama" : "wasm,llama")).split(",").map(engineName);
  const tokenCount = flags["--tokens"] ?? 4096;
  const windowTokens = flags["--window"] ?? tokenCount;
  const lengths = { tokenCount, windowTokens };
  const kvType = (flags["--cache-type"] ?? "auto") as ModelSpec["kvType"];
  const rows: string[][] = [];
  const measured = async (type: string, { path, referencePath }: QuantizedModel) => {
    const reference = await load(gpu ? "wasm" : "llama", referencePath, lengths, "f16");
    for (const engine of engines) {
      const isFloor = !gpu && engine === "llama" && referencePath === path;
      const subjectCache = isFloor ? floorCacheType : engine === "llama" ? "f16" : kvType;
      const subject = await load(engine, path, lengths, subjectCache, gpu);
      // Only the llama engine has a tokenizer of its own. On the GPU, llama is the tested model, otherwise the reference.
      const tokens = textTokens(gpu ? subject : reference, tokenCount + 1);
      // llama.cpp gets its tokens only in the form `decode` (one token per step). The form `chunks` copies the KV between sequences,
      // and the copy of a long KV exceeds the llama engine's size limit. Chunks would not change llama.cpp's results anyway.
      for (const form of engine === "llama" ? (["decode"] as const) : chosen) {
        process.stderr.write(`${type}, ${engine}, ${form} ...\n`);
        const divergence = compareForced({ reference, subject, tokens, windowTokens }, form);
        rows.push([type, `${engine}, KV ${subjectCache}`, form, process.versions.node, ...cells(divergence)]);
      }
      subject.dispose();
    }
    reference.dispose();
  };
  const file = flags["--model"];
  if (file) await measured(basename(file), { path: file, referencePath: file });
  else for (const type of types) await withQuantizedModel(type, (model) => measured(type, model));
  report(
    {
      name: gpu ? "gpu" : "wasm-parity",
      title: gpu
        ? "What llama.cpp on the GPU says over what the wasm engine says"
        : "What the wasm engine says over what llama.cpp says",
      method:
        `${tokenCount} tokens of a README, teacher-forced in windows of ${windowTokens}, logits after every token, beside ` +
        `llama.cpp with KV as f16. Chunks: as a prompt, in chunks of ${chunkTokens} tokens. Decode: one token a step. KL in ` +
        "nats, of the subject's distribution from llama.cpp's. Of types in blocks of 256 llama.cpp is given the same weights as " +
        "F16. The rows of llama.cpp itself say what rounding alone does: of KV as another type, or, with F16 beside it, of the " +
        "activations it multiplies such blocks with.",
      body: table(
        [
          "type",
          "subject",
          "form",
          "node",
          "positions",
          "reference ppl",
          "ppl",
          "over the reference",
          "same top",
          "mean KL",
        ],
        rows,
      ),
    },
    flags["--save"] ?? false,
  );
}

async function load(
  engine: EngineName,
  path: string,
  { tokenCount, windowTokens }: Lengths,
  kvType: ModelSpec["kvType"],
  gpu = false,
): Promise<LoadedModel> {
  // Only the wasm engine is fed in chunks, which need `chunkTokens` sequences. llama.cpp allocates the memory of all sequences
  // at once, so its number of sequences is as small as possible.
  const maxSequences = engine === "llama" ? Math.min(Math.ceil(tokenCount / windowTokens), chunkTokens) : chunkTokens;
  const changes = {
    maxSequences,
    maxBatchTokens: chunkBatchTokens,
    maxModelLength: windowTokens,
    kvBudget: { tokens: maxSequences * Math.max(windowTokens, leastContext) },
    // The two models run in turn. With several threads, llama.cpp's idle threads would spin and slow down the other model.
    threads: engine === "llama" ? 1 : Math.min(2, availableParallelism()),
    kvType,
    gpuLayers: gpu ? -1 : 0,
  };
  return await (await openEngine(engine)).load(specOf(path, changes), () => {});
}

function cells({ positions, referencePerplexity, perplexity, sameTopShare, meanKl }: Divergence): string[] {
  return [
    String(positions),
    referencePerplexity.toFixed(4),
    perplexity.toFixed(4),
    `${((perplexity / referencePerplexity - 1) * 100).toFixed(3)} %`,
    `${(sameTopShare * 100).toFixed(2)} %`,
    meanKl.toFixed(5),
  ];
}
