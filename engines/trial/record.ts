// Owns what trials of engines have found on this machine, in a file of the cache: a model like one that was tried is not tried
// again. A file that cannot be read counts as empty, one that cannot be written is not.
import { createHash } from "node:crypto";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { z } from "zod";
import { cpuFlags, hostFacts } from "../../runtime/system.ts";
import { computeThreads } from "../cores.ts";
import type { ModelSpec } from "../engine.ts";
import { readTensorTable, tensorTypes } from "../gguf/tensors.ts";
import { bundledRelease } from "../llama/release.ts";
import type { TrialFigures } from "./figures.ts";

const speed = z.number().positive();
const figuresType = z.object({ prompt: speed, oneRow: speed.nullable(), sixteenRows: speed.nullable() });
const recordType = z.object({
  trials: z.array(z.object({ key: z.string(), figures: z.object({ wasm: figuresType, llama: figuresType }) })),
});

type TrialRecord = Readonly<z.infer<typeof recordType>>;

/** The latest are kept. */
const maxTrials = 256;

/** What the speed of a model depends on, as a digest: machine, programs, settings, shapes and number types. */
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

export async function recordedFigures(path: string, key: string): Promise<TrialFigures | null> {
  const { trials } = await readRecord(path);
  return trials.find((trial) => trial.key === key)?.figures ?? null;
}

/** Rejects with what the file system says. */
export async function recordFigures(path: string, key: string, figures: TrialFigures): Promise<void> {
  const { trials } = await readRecord(path);
  const others = trials.filter((trial) => trial.key !== key);
  const record: TrialRecord = { trials: [...others, { key, figures }].slice(-maxTrials) };
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
