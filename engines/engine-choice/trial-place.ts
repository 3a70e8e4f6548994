// Trial process: times both engines on an excerpt of a model. Started by trial.ts.
import { mkdirSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { performance } from "node:perf_hooks";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { ModelSpec } from "../engine.ts";
import { writeExcerpt } from "../files/gguf/excerpt.ts";
import { openEngine } from "../open-engine.ts";
import type { EngineFigures, TrialFigures } from "./figures.ts";
import { type RoundLimits, timeInRounds } from "./rounds.ts";
import { TimedModel } from "./timed-model.ts";
import { type Speeds, workloadsFor } from "./workloads.ts";

export interface Trial {
  /** Model spec of the excerpt. This process creates the folder of the excerpt's file and removes the folder. */
  readonly spec: ModelSpec;
  /** Path of the whole model. */
  readonly modelPath: string;
  /** Maximum number of weights in the excerpt. */
  readonly excerptWeights: number;
  readonly limits: RoundLimits;
}

/** Runs the trial. Rejects with the engine's error if an engine cannot load the excerpt. */
export async function start({ init }: PlaceContext<Trial>): Promise<TrialFigures> {
  const { spec, modelPath, excerptWeights, limits } = init;
  // Removes the folder at exit. If the server ends during the trial, for example by ctrl-c, this process ends too.
  const folder = dirname(spec.path);
  const removeFolder = () => removeIfPossible(folder);
  process.on("exit", removeFolder);
  mkdirSync(folder, { mode: 0o700 });
  const excerpt = writeExcerpt(modelPath, spec.path, excerptWeights);
  // The engines' code loads while the excerpt is written.
  const engines = Promise.all([openEngine("wasm"), openEngine("llama")]);
  const [{ share, vocabSize }, [wasmEngine, llamaEngine]] = await Promise.all([excerpt, engines]);
  const loading = [wasmEngine, llamaEngine].map((engine) => engine.load(spec, () => {}));
  const loaded = await Promise.all(loading);
  // llama.cpp keeps the content of the file mapped, so the file can be removed now. No file remains if a process is
  // killed later.
  removeFolder();
  const [wasm, llama] = loaded.map((model) => new TimedModel(model, vocabSize)) as [TimedModel, TimedModel];
  const workloads = workloadsFor(Math.min(wasm.context, llama.context), wasm.generates && llama.generates);
  const speeds = timeInRounds({ wasm, llama }, workloads, limits, () => performance.now());
  return { wasm: figuresOf(speeds.wasm, wasm, share), llama: figuresOf(speeds.llama, llama, share) };
}

/** Scales the speeds and the memory of the excerpt to the whole model. */
function figuresOf({ prompt, oneRow, sixteenRows }: Speeds, { weightBytes }: TimedModel, share: number): EngineFigures {
  return {
    prompt: prompt * share,
    oneRow: oneRow === null ? null : oneRow * share,
    sixteenRows: sixteenRows === null ? null : sixteenRows * share,
    weightBytes: Math.round(weightBytes / share),
  };
}

/**
 * Errors are ignored, because some systems do not remove a mapped file. trial.ts removes the folder after this process
 * has ended.
 */
function removeIfPossible(folder: string): void {
  try {
    rmSync(folder, { recursive: true, force: true });
  } catch {}
}
