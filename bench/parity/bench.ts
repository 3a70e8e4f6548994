// Owns `bench parity`: whether the wasm engine says what llama.cpp says, on the real model in each number type.
import { availableParallelism } from "node:os";
import arg from "arg";
import type { EngineName, LoadedModel, ModelSpec } from "../../engines/engine.ts";
import { openEngine } from "../../engines/open-engine.ts";
import { specOf } from "../../test/fixtures/models.ts";
import { type QuantizedType, quantizedModel } from "../../test/fixtures/quantize.ts";
import { engineName } from "../command.ts";
import { table } from "../engine/report.ts";
import { report } from "../results.ts";
import type { Divergence } from "./divergence.ts";
import { chunkBatchTokens, chunkTokens, compareForced, type Form } from "./teacher-forcing.ts";
import { textTokens } from "./text.ts";

const windowTokens = 512;
const forms: readonly Form[] = ["chunks", "decode"];

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--types": String,
      "--forms": String,
      "--tokens": Number,
      "--engine": String,
      "--cache-type": String,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const types = (flags["--types"] ?? "F16,Q8_0,Q4_0,Q4_1").split(",") as QuantizedType[];
  const chosen = (flags["--forms"] ?? forms.join(",")).split(",") as Form[];
  const tokenCount = flags["--tokens"] ?? 4096;
  const kvType = (flags["--cache-type"] ?? "auto") as ModelSpec["kvType"];
  const engine = engineName(flags["--engine"] ?? "wasm");
  const rows: string[][] = [];
  for (const type of types) {
    const path = await quantizedModel(type);
    const reference = await load("llama", path, "f16");
    const subject = await load(engine, path, kvType);
    const tokens = textTokens(reference, tokenCount + 1);
    for (const form of chosen) {
      process.stderr.write(`${type}, ${form} ...\n`);
      const forced = { reference, subject, tokens, windowTokens: Math.min(windowTokens, tokenCount) };
      rows.push([type, form, process.versions.node, ...cells(compareForced(forced, form))]);
    }
    reference.dispose();
    subject.dispose();
  }
  report(
    {
      name: `${engine}-parity`,
      title: `What the ${engine} engine says over what llama.cpp says`,
      method:
        `${tokenCount} tokens of a README, teacher-forced in windows of ${windowTokens}, logits after every token; KV of ` +
        `the subject asked for as ${kvType}, of llama.cpp as f16. Chunks: as prompts, in chunks of ${chunkTokens} tokens. ` +
        "Decode: one token a step, all windows at once. KL in nats, of the subject's distribution from llama.cpp's.",
      body: table(
        ["type", "form", "node", "positions", "llama ppl", "ppl", "ppl over llama's", "same top", "mean KL"],
        rows,
      ),
    },
    flags["--save"] ?? false,
  );
}

async function load(engine: EngineName, path: string, kvType: ModelSpec["kvType"]): Promise<LoadedModel> {
  const changes = {
    maxSequences: chunkTokens,
    maxBatchTokens: chunkBatchTokens,
    maxModelLength: windowTokens,
    threads: Math.min(2, availableParallelism()),
    kvType,
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
