// Engine choice for a model. The setting `engine` decides first. If it is `auto`, the host and the model file decide; if both
// engines are possible, a trial picks the faster one. model-specs.ts supplies the facts as functions, because some are slow to
// determine.
import type { EngineName } from "../../../engines/engine.ts";
import {
  describeFigures,
  fasterNode,
  gainByFasterNode,
  quickerEngine,
  type TrialFigures,
} from "../../../engines/engine-choice/figures.ts";
import type { TrialFindings } from "../../../engines/engine-choice/trial.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { EngineReport } from "../../../runtime/host/system.ts";

export interface EngineQuestions {
  readonly configured: "auto" | EngineName;
  /** Path of the model, used in messages. */
  readonly path: string;
  /** Name of a setting that only the wasm engine supports; null if none is set. */
  readonly wasmOnly: string | null;
  /** Why the llama engine rejects the settings; null if it accepts them. */
  readonly llamaRefusal: string | null;
  /** Version of the running Node.js, for example 20.11.0. */
  readonly nodeVersion: string;
  /** Returns the kind of GPU that the model may use; null if there is none. */
  gpu(): Promise<string | null>;
  /** Returns why the native libraries of the llama engine do not load on this machine; null if they load. */
  nativeProblem(): Promise<string | null>;
  /** Returns why the wasm engine cannot run the model; null if it can. */
  wasmRefusal(): Promise<string | null>;
  /**
   * Returns the speeds of both engines on the CPU, or why they are unknown. Called only if the wasm engine can run the model.
   */
  trial(): Promise<TrialFindings | string>;
}

export interface EngineChoice {
  readonly report: Omit<EngineReport, "model"> & { readonly engine: EngineName; readonly figures: TrialFigures | null };
  /** Whether the speeds were measured now; if false, they come from an earlier trial. */
  readonly isNew: boolean;
}

/** Chooses the engine. Throws `config_invalid` if the configured engine cannot run the model, or if no engine can. */
export async function chooseEngine(questions: EngineQuestions): Promise<EngineChoice> {
  const { configured, path, wasmOnly } = questions;
  if (wasmOnly !== null && configured !== "wasm") return onlyWasm(questions, wasmOnly);
  if (configured === "llama") return untried("llama", "it is set");
  if (configured === "wasm") {
    const refusal = await questions.wasmRefusal();
    if (refusal === null) return untried("wasm", "it is set");
    const message = `engine expects one that can run "${path}"; got wasm, which cannot: ${refusal}; use llama or auto`;
    throw new ServerError("config_invalid", message, { param: "engine" });
  }
  const gpu = await questions.gpu();
  if (gpu !== null) return untried("llama", `there is a GPU (${gpu})`);
  return chooseOnCpu(questions);
}

async function chooseOnCpu({
  path,
  llamaRefusal,
  nodeVersion,
  wasmRefusal,
  nativeProblem,
  trial,
}: EngineQuestions): Promise<EngineChoice> {
  const refusal = await wasmRefusal();
  if (refusal !== null) {
    const problem = await nativeProblem();
    const obstacle = `wasm cannot: ${refusal}`;
    if (problem === null) return untried("llama", `no GPU to use; ${obstacle}`);
    throw new ServerError("config_invalid", `no engine can run "${path}" here: llama cannot: ${problem}; ${obstacle}`);
  }
  if (llamaRefusal !== null) return untried("wasm", `no GPU to use; llama cannot: ${llamaRefusal}`);
  const found = await trial();
  if (typeof found !== "string") {
    const { figures, isNew } = found;
    const engine = quickerEngine(figures);
    const each = `wasm ${describeFigures(figures.wasm)}; llama ${describeFigures(figures.llama)}`;
    const reason = `no GPU to use; quicker in a trial (tokens/s, estimated): ${each}`;
    return { report: { engine, reason, figures, advice: nodeAdvice(figures, nodeVersion) }, isNew };
  }
  const problem = await nativeProblem();
  if (problem !== null) return untried("wasm", `no GPU to use; llama cannot: ${problem}`);
  return untried("wasm", `no GPU to use; the engines could not be compared: ${found}`);
}

function untried(engine: EngineName, reason: string): EngineChoice {
  return { report: { engine, reason, figures: null, advice: null }, isNew: false };
}

/** Minimum estimated speedup for which a newer Node version is advised. */
const worthwhileGain = 1.2;

function nodeAdvice(figures: TrialFigures, nodeVersion: string): string | null {
  const { major } = fasterNode;
  const gain = gainByFasterNode(figures);
  if (Number.parseInt(nodeVersion, 10) >= major || gain < worthwhileGain) return null;
  return (
    `this is Node ${nodeVersion}; on Node ${major} the wasm engine would be about ${gain.toFixed(1)} times as fast as the ` +
    `engine chosen (estimated). In this program's folder: npx --yes --package node@${major} node cli/troupe.mjs serve`
  );
}

async function onlyWasm({ configured, path, wasmRefusal }: EngineQuestions, setting: string): Promise<EngineChoice> {
  if (configured === "llama") {
    const message = `engine expects wasm, the only one with ${setting}; got llama: remove one of the two`;
    throw new ServerError("config_invalid", message, { param: "engine" });
  }
  const refusal = await wasmRefusal();
  if (refusal === null) return untried("wasm", `the only one with ${setting}`);
  const message = `${setting} expects a model that the wasm engine can run; it cannot run "${path}": ${refusal}`;
  throw new ServerError("config_invalid", message, { param: setting });
}
