// Engine trial: a short-lived process times both engines on an excerpt of the model. The result is recorded under a key
// computed from machine, settings and tensor shapes. A model with a recorded key needs no trial.
import { randomUUID } from "node:crypto";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { computeThreads } from "../../runtime/host/cores.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import type { ModelSpec } from "../engine.ts";
import type { TrialFigures } from "./figures.ts";
import { findRecord, keepRecord, type TrialOutcome, trialKey } from "./record.ts";
import type { Trial } from "./trial-place.ts";
import { trialBatchTokens, trialContext, trialSequences } from "./workloads.ts";

const trialModule = new URL("./trial-place.js", import.meta.url);
/**
 * Maximum number of weights of the excerpt. A limit in weights, not in bytes, makes the trial equally long for all
 * number types. As F16, the excerpt (40 MB) is larger than the third-level cache of most machines.
 */
const excerptWeights = 20_000_000;
/**
 * Durations of the measurement in milliseconds: for engines that differ clearly, and for engines that are about equally
 * fast.
 */
const limits = { clearMs: 300, closeMs: 800 } as const;
/**
 * Time limit of the trial process. It is long because an excerpt has at least one layer, and a layer of a large model
 * can exceed `excerptWeights`.
 */
const trialLimitMs = 20_000;
const stopMs = 1000;

export interface TrialRecordOptions {
  /** Path of the record file; null = this user has no cache folder for the file. */
  readonly path: string | null;
  /** Version of this program. */
  readonly version: string;
}

export interface TrialFindings {
  readonly figures: TrialFigures;
  /** true: measured now; false: taken from a record. */
  readonly isNew: boolean;
}

/**
 * Returns the recorded speeds, or runs a new trial. Rejects in the same cases as tryEngines(), and for one day after a
 * trial that timed out.
 */
export async function findTrial(spec: ModelSpec, { path, version }: TrialRecordOptions): Promise<TrialFindings> {
  const key = await trialKey(spec, version);
  const known = path === null ? null : await findRecord(path, key);
  if (known !== null && "figures" in known) return { figures: known.figures, isNew: false };
  if (known !== null) {
    const message = `${known.failure} (the last trial was less than a day ago; the next is a day after it)`;
    throw new ServerError("timeout", message);
  }
  // A write error is ignored, because the next start can measure again.
  const keep = async (found: TrialOutcome): Promise<void> => {
    if (path !== null) await keepRecord(path, key, found).catch(() => undefined);
  };
  try {
    const figures = await tryEngines(spec);
    await keep({ figures });
    return { figures, isNew: true };
  } catch (error) {
    const { code, message } = toErrorRecord(error);
    // Failures other than a timeout are not recorded, because repeating the trial is cheap and the next start may
    // succeed.
    if (code === "timeout") await keep({ failure: message });
    throw error;
  }
}

/** Measures both engines. Rejects if one of them cannot run the excerpt, or if the disk has no room for it. */
async function tryEngines(spec: ModelSpec): Promise<TrialFigures> {
  // The trial process creates and removes the folder, so that nothing remains if this process is killed. This process
  // removes the folder if the trial process was killed, or if the system cannot remove open files.
  const folder = join(tmpdir(), `troupe-trial-${randomUUID()}`);
  const removeFolder = () => rm(folder, { recursive: true, force: true }).catch(() => undefined);
  try {
    const init = { spec: trialSpec(spec, join(folder, "excerpt.gguf")), modelPath: spec.path, excerptWeights, limits };
    const place = await spawnPlace<Trial, TrialFigures>({
      name: "trial of the engines",
      module: trialModule,
      init,
      kind: "process",
      startTimeoutMs: trialLimitMs,
      onOutput: () => {},
    });
    void place.stop(stopMs).then(removeFolder);
    return place.ready;
  } catch (error) {
    await removeFolder();
    throw error;
  }
}

/** Returns the spec for the trial. Settings that affect speed are kept; all other values are fixed. */
function trialSpec({ kvType, blockTokens, pagedKv, threads, mmap }: ModelSpec, path: string): ModelSpec {
  // The wasm engine distributes a sequence's blocks over its threads and always puts the first block on the first
  // thread. The number of blocks is therefore rounded up to a multiple of the number of threads.
  const blocks = roundUp(Math.ceil(trialContext / blockTokens), computeThreads(threads));
  return {
    path,
    maxSequences: trialSequences,
    maxBatchTokens: trialBatchTokens,
    maxModelLength: trialContext,
    kvBudget: { tokens: trialSequences * blocks * blockTokens },
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

function roundUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}
