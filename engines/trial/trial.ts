// Owns the trial of both engines at a model: an excerpt of its file, and a process of its own that measures and ends. The
// choice of the engine asks for its findings, which are kept: a model like one that was tried is not tried again.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { spawnPlace } from "../../runtime/thread/place.ts";
import type { ModelSpec } from "../engine.ts";
import type { TrialFigures } from "./figures.ts";
import { recordedFigures, recordFigures, trialKey } from "./record.ts";
import { type Trial, trialContext, trialSequences } from "./trial-place.ts";

const trialModule = new URL("./trial-place.js", import.meta.url);
/** Weights enough to be beyond the caches of a core, few enough to be read in no time. */
const excerptBytes = 12 * 2 ** 20;
const budgetMs = 300;
/** One layer of a large model is larger than an excerpt should be. */
const trialLimitMs = 20_000;
const stopMs = 1000;

/** Where findings are kept, and what they hold for. */
export interface TrialRecordOptions {
  /** null where this user has no folder for it. */
  readonly path: string | null;
  /** Of this program. */
  readonly version: string;
}

export interface TrialFindings {
  readonly figures: TrialFigures;
  /** Measured now, not remembered. */
  readonly isNew: boolean;
}

/** What an earlier trial found; without one, what a new one finds. Rejects like tryEngines. */
export async function findTrial(spec: ModelSpec, record: TrialRecordOptions): Promise<TrialFindings> {
  const key = await trialKey(spec, record.version);
  const known = record.path === null ? null : await recordedFigures(record.path, key);
  if (known !== null) return { figures: known, isNew: false };
  const figures = await tryEngines(spec);
  // Where they cannot be kept the next start measures again.
  if (record.path !== null) await recordFigures(record.path, key, figures).catch(() => undefined);
  return { figures, isNew: true };
}

/** Measures both engines. Rejects where one of them cannot run the excerpt, or the file system has no room for it. */
async function tryEngines(spec: ModelSpec): Promise<TrialFigures> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-trial-"));
  try {
    const init = { spec: trialSpec(spec, join(folder, "excerpt.gguf")), modelPath: spec.path, excerptBytes, budgetMs };
    const place = await spawnPlace<Trial, TrialFigures>({
      name: "trial of the engines",
      module: trialModule,
      init,
      carrier: "process",
      startTimeoutMs: trialLimitMs,
      onOutput: () => {},
    });
    void place.stop(stopMs);
    return place.ready;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** What bears on speed stays as it is set; the rest is what the trial needs. */
function trialSpec({ kvType, blockTokens, pagedKv, threads, mmap }: ModelSpec, path: string): ModelSpec {
  return {
    path,
    maxSequences: trialSequences,
    maxBatchTokens: trialContext,
    maxModelLength: null,
    kvBudget: { tokens: trialSequences * trialContext },
    kvType,
    blockTokens,
    pagedKv,
    extraLogitsRows: 0,
    threads,
    mmap,
    gpuLayers: 0,
    abortFlag: null,
    computeLock: null,
  };
}
