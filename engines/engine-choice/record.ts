// Trial record: a file in the cache with the results of earlier trials. An unreadable file counts as empty.
import { createHash } from "node:crypto";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { z } from "zod";
import { computeThreads } from "../../runtime/host/cores.ts";
import { cpuFlags, hostFacts } from "../../runtime/host/system.ts";
import type { ModelSpec } from "../engine.ts";
import { readTensorTable, tensorTypes } from "../files/gguf/tensors.ts";
import { bundledRelease } from "../llama/native/release.ts";
import type { TrialFigures } from "./figures.ts";

const positive = z.number().positive();
const figuresType = z.object({
  prompt: positive,
  oneRow: positive.nullable(),
  sixteenRows: positive.nullable(),
  weightBytes: positive,
});
const trialType = z.union([
  z.object({ figures: z.object({ wasm: figuresType, llama: figuresType }) }),
  z.object({ failure: z.string() }),
]);
const recordType = z.object({
  /** `at`: time of the trial in milliseconds since 1970. */
  trials: z.array(z.object({ key: z.string(), at: z.number() }).and(trialType)),
});

type TrialRecord = Readonly<z.infer<typeof recordType>>;

/** Speeds measured by a trial, or the failure of a trial that took too long. */
export type TrialOutcome = { readonly figures: TrialFigures } | { readonly failure: string };

const dayMs = 24 * 60 * 60 * 1000;
/**
 * Milliseconds after which results and failures expire. A failure expires sooner, because the machine may have been
 * busy.
 */
const keptMs = { figures: 30 * dayMs, failure: dayMs } as const;

/** Maximum number of trials kept. Above this number, the oldest trials are dropped. */
const maxTrials = 256;

/**
 * Returns a digest of everything that determines a model's speed: machine, programs, settings, tensor shapes and number
 * types.
 */
export async function trialKey(spec: ModelSpec, version: string): Promise<string> {
  const { tensors, fields } = await readTensorTable(spec.path);
  const { brand } = hostFacts().cpu;
  const machine = [brand, [...cpuFlags()].join(" "), computeThreads(spec.threads), spec.threads];
  const programs = [process.versions.node, process.env.TROUPE_WASM_KERNELS, version, bundledRelease()];
  const settings = [spec.kvType, spec.blockTokens, spec.pagedKv, spec.mmap];
  const shapes = [...tensors.values()].map(({ name, type, shape }) => [name, tensorTypes.get(type)?.name, shape]);
  const parts = [machine, programs, settings, fields.get("general.architecture"), shapes];
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
}

/** Returns the recorded outcome; null if there is no record, or it has expired. */
export async function findRecord(path: string, key: string): Promise<TrialOutcome | null> {
  const { trials } = await readRecord(path);
  const found = trials.find((trial) => trial.key === key);
  if (found === undefined) return null;
  const ageMs = Date.now() - found.at;
  return ageMs >= 0 && ageMs < ("figures" in found ? keptMs.figures : keptMs.failure) ? found : null;
}

/** Adds an outcome to the file. Rejects if the file cannot be written. */
export async function keepRecord(path: string, key: string, found: TrialOutcome): Promise<void> {
  const { trials } = await readRecord(path);
  const others = trials.filter((trial) => trial.key !== key);
  const record: TrialRecord = { trials: [...others, { key, at: Date.now(), ...found }].slice(-maxTrials) };
  await mkdir(dirname(path), { recursive: true });
  const scratch = `${path}.${process.pid}`;
  await writeFile(scratch, `${JSON.stringify(record, null, 2)}\n`);
  await rename(scratch, path);
}

async function readRecord(path: string): Promise<TrialRecord> {
  try {
    return recordType.parse(JSON.parse(await readFile(path, "utf8")));
  } catch {
    return { trials: [] };
  }
}
