// `bench oversubscribe`: many long generations on a KV cache that holds only a part of them. All must end with the same output
// as with a KV cache that holds all of them.
import arg from "arg";
import { StepLoop } from "../../actors/model/step/step-loop.ts";
import type { SchedulerLimits } from "../../engines/decoding/scheduler/limits.ts";
import type { EngineName, LoadedModel } from "../../engines/engine.ts";
import { readModelMetadata } from "../../engines/files/gguf/metadata.ts";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { openEngine } from "../../engines/open-engine.ts";
import { createVocabulary } from "../../engines/text/tokenizer/vocabulary.ts";
import { specOf } from "../../test/fixtures/models/models.ts";
import { engineName } from "../command.ts";
import { atMost, exactly, type Finding, findingsTable, told } from "../overload/finding.ts";
import { report } from "../results.ts";
import { PromptSource } from "../serving/client/prompts.ts";
import { firstDifference, leadOfLikeliest } from "./first-difference.ts";
import { type Run, runAll } from "./run.ts";

/**
 * Maximum lead of the likeliest token over the second one, as a share of the logits' range, at which the first difference between
 * two outputs is attributed to rounding.
 */
const leadAtMost = 0.02;

const limits: SchedulerLimits = {
  maxBatchTokens: 4096,
  // With chunks of this length, the results of both engines do not depend on the other sequences of the batch.
  maxPrefillChunkTokens: 32,
  maxDecodeStepsBeforePrefill: 8,
  prefixCacheEntries: 16,
  maxQueue: 512,
  queueTimeoutMs: 1e9,
  slotShareMs: 0,
  decodeSlowdown: 3,
  maxStepMs: 250,
  swapBytes: 2 ** 30,
};

interface Shape {
  readonly engine: EngineName;
  readonly model: string;
  readonly threads: number;
  readonly sequences: number;
  readonly newTokens: number;
  /** Tokens of a sequence: prompt and response. */
  readonly length: number;
  /** Capacity of the cache as a share of the tokens of all sequences. */
  readonly share: number;
  /**
   * Whether to run every prompt again without other sequences. By default, only prompts whose responses differ are run again.
   */
  readonly allAlone: boolean;
}

export const usage = `npm run bench -- oversubscribe [FLAGS]: many long generations on a KV cache that holds only a part of them

  --engine wasm         wasm or llama
  --sequences 64        number of simultaneous generations
  --share 0.25          capacity of the KV cache, as a share of the tokens of all sequences
  --prompt-tokens 64 --new-tokens 448
  --all-alone           also run every prompt alone, not only the prompts whose outputs differ
  --model ID --threads 2 --save
`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...{ "--model": String, "--engine": String, "--threads": Number, "--sequences": Number, "--share": Number },
      ...{ "--prompt-tokens": Number, "--new-tokens": Number, "--all-alone": Boolean, "--save": Boolean },
    },
    { argv: [...argv] },
  );
  const { path } = await resolveModel(flags["--model"] ?? defaultPackage);
  const [promptTokens, newTokens] = [flags["--prompt-tokens"] ?? 64, flags["--new-tokens"] ?? 448];
  const shape: Shape = {
    engine: engineName(flags["--engine"] ?? "wasm"),
    model: path,
    threads: flags["--threads"] ?? 2,
    sequences: flags["--sequences"] ?? 64,
    newTokens,
    length: promptTokens + newTokens,
    share: flags["--share"] ?? 0.25,
    allAlone: flags["--all-alone"] ?? false,
  };
  const prompts = await promptsOf(shape, promptTokens);
  report(
    {
      name: "oversubscribe",
      title: "A KV cache that holds a part of what is generated",
      method:
        `${shape.sequences} greedy generations at once of ${promptTokens} tokens in and ${newTokens} out, engine ` +
        `${shape.engine}, ${shape.threads} threads, in one process through the step loop: with room for ` +
        `${cacheTokens(shape)} tokens of KV, then with room for all. ${shape.allAlone ? "All answers" : "Answers that differ from the second run's"} are run ` +
        "alone as well. Lead: of the likeliest token before the second, over the range of the logits, where an answer first " +
        "differs from the one alone.",
      body: findingsTable(`${shape.sequences} generations`, await compare(shape, prompts)),
    },
    flags["--save"] ?? false,
  );
}

async function compare(shape: Shape, prompts: readonly Int32Array[]): Promise<Finding[]> {
  const tight = await withLoop(shape, cacheTokens(shape), shape.sequences, (loop) =>
    runAll(loop, prompts, shape.newTokens),
  );
  const roomy = await withLoop(shape, shape.sequences * shape.length, shape.sequences, (loop) =>
    runAll(loop, prompts, shape.newTokens),
  );
  // Responses that never ended are already counted as unfinished, so they are not compared.
  const ended = prompts.flatMap((_, i) => (tight.answers[i]?.length === shape.newTokens ? [i] : []));
  const suspects = ended.filter((i) => partAt(tight, roomy, i) !== null);
  const alone = await runsAlone(shape, prompts, shape.allAlone ? ended : suspects);
  const leads = await leadsAtDifferences(shape, prompts, tight, alone);
  const leadsInRoom = await leadsAtDifferences(shape, prompts, roomy, alone);
  return [
    exactly("finished", tight.finishedCount, prompts.length),
    exactly("failed", tight.failures.length, 0),
    told("preemptions", String(tight.preemptions)),
    told("prompt tokens computed, with room for all", `${tight.promptTokens}, ${roomy.promptTokens}`),
    told("tokens/s", tight.tokensPerSecond.toFixed(1)),
    told("tokens/s with room for all", roomy.tokensPerSecond.toFixed(1)),
    told("over that", (tight.tokensPerSecond / roomy.tokensPerSecond).toFixed(3)),
    told("answers unlike those with room for all", String(suspects.length)),
    told("answers unlike the one alone", `${leads.length} of ${alone.size} run alone`),
    atMost("largest lead where one first differs", Math.max(0, ...leads), leadAtMost, "", 4),
    told(
      "with room for all, unlike the one alone",
      `${leadsInRoom.length}, lead ${Math.max(0, ...leadsInRoom).toFixed(4)}`,
    ),
  ];
}

/** Returns the responses of some prompts, each run without other sequences. */
async function runsAlone(
  shape: Shape,
  prompts: readonly Int32Array[],
  suspects: readonly number[],
): Promise<ReadonlyMap<number, readonly number[]>> {
  const alone = new Map<number, readonly number[]>();
  await withLoop(shape, 2 * shape.length, 1, (loop) => {
    for (const [done, i] of suspects.entries()) {
      process.stderr.write(`oversubscribe: ${done + 1} of ${suspects.length} alone\n`);
      alone.set(i, runAll(loop, [prompts[i] as Int32Array], shape.newTokens).answers[0] ?? []);
    }
  });
  return alone;
}

async function leadsAtDifferences(
  shape: Shape,
  prompts: readonly Int32Array[],
  run: Run,
  alone: ReadonlyMap<number, readonly number[]>,
): Promise<number[]> {
  return await withModel(shape, 2 * shape.length, 1, (model) => {
    const leads: number[] = [];
    for (const [i, answer] of alone) {
      const at = firstDifference(run.answers[i] ?? [], answer);
      if (at === null) continue;
      const before = Int32Array.from([...(prompts[i] as Int32Array), ...answer.slice(0, at)]);
      leads.push(leadOfLikeliest(model, before));
    }
    return leads;
  });
}

function partAt(a: Run, b: Run, i: number): number | null {
  return firstDifference(a.answers[i] ?? [], b.answers[i] ?? []);
}

function cacheTokens({ sequences, length, share }: Shape): number {
  return Math.ceil(sequences * length * share);
}

async function promptsOf({ model, sequences }: Shape, tokens: number): Promise<Int32Array[]> {
  const vocabulary = createVocabulary((await readModelMetadata(model)).tokenizer);
  const texts = new PromptSource(1).round(sequences, { wordCount: tokens, sharedCount: 0, spread: 0 });
  // A word is at least one token, so as many words as tokens are enough.
  return texts.map(({ text }) => vocabulary.encodeCompletion(text).slice(0, tokens));
}

function withLoop<T>(shape: Shape, tokens: number, sequences: number, work: (loop: StepLoop) => T): Promise<T> {
  return withModel(shape, tokens, sequences, (model) => work(new StepLoop(model, { limits, frameIntervalMs: 0 })));
}

async function withModel<T>(
  { engine, model: path, threads, length }: Shape,
  tokens: number,
  maxSequences: number,
  work: (model: LoadedModel) => T,
): Promise<T> {
  process.stderr.write(`oversubscribe: ${maxSequences} at once, room for ${tokens} tokens\n`);
  const spec = specOf(path, {
    maxSequences,
    maxBatchTokens: limits.maxBatchTokens,
    // The last sampled token is never fed, so it needs no room in the KV cache.
    maxModelLength: length,
    kvBudget: { tokens },
    pagedKv: true,
    threads,
  });
  const model = await (await openEngine(engine)).load(spec, () => {});
  try {
    return work(model);
  } finally {
    model.dispose();
  }
}
