// Owns the choice of the engine that runs a model: what the settings say, else what the host has and what the file needs. It
// finds out nothing itself; it asks, and only what the choice still depends on. Called by model-specs.ts.
import type { EngineName } from "../engines/engine.ts";
import { ServerError } from "../runtime/errors.ts";

/** What `auto` takes on a host without a GPU where both engines could run the model: the quicker one, measured. */
const cpuOnlyEngine: EngineName = "wasm";

export interface EngineQuestions {
  readonly configured: "auto" | EngineName;
  /** Path of the model, for messages. */
  readonly path: string;
  /** The setting that only the wasm engine can do; null where there is none. */
  readonly wasmOnly: string | null;
  /** The kind of GPU the model may use; null for none. */
  gpu(): Promise<string | null>;
  /** Why the llama engine's native libraries do not load here; null where they do. */
  nativeProblem(): Promise<string | null>;
  /** Why the wasm engine cannot run the model; null where it can. */
  wasmRefusal(): Promise<string | null>;
}

export interface EngineChoice {
  readonly engine: EngineName;
  readonly reason: string;
}

/** Throws `config_invalid` where the engine that is set, or any, cannot run the model. */
export async function chooseEngine(
  questions: EngineQuestions,
  preferred: EngineName = cpuOnlyEngine,
): Promise<EngineChoice> {
  const { configured, path, wasmOnly } = questions;
  if (wasmOnly !== null && configured !== "wasm") return onlyWasm(questions, wasmOnly);
  if (configured === "llama") return { engine: "llama", reason: "it is set" };
  if (configured === "wasm") {
    const refusal = await questions.wasmRefusal();
    if (refusal === null) return { engine: "wasm", reason: "it is set" };
    const message = `engine expects one that can run "${path}"; got wasm, which cannot: ${refusal}; try llama or auto`;
    throw new ServerError("config_invalid", message, { param: "engine" });
  }
  const gpu = await questions.gpu();
  if (gpu !== null) return { engine: "llama", reason: `there is a GPU (${gpu})` };
  const obstacle = await obstacleOf(preferred, questions);
  if (obstacle === null) return { engine: preferred, reason: "no GPU to use; the quicker one on a CPU" };
  const other = preferred === "llama" ? "wasm" : "llama";
  const otherObstacle = await obstacleOf(other, questions);
  if (otherObstacle === null) return { engine: other, reason: `no GPU to use; ${obstacle}` };
  throw new ServerError("config_invalid", `no engine can run "${path}" here: ${obstacle}; ${otherObstacle}`);
}

async function onlyWasm({ configured, path, wasmRefusal }: EngineQuestions, setting: string): Promise<EngineChoice> {
  if (configured === "llama") {
    const message = `engine expects wasm, the only one with ${setting}; got llama: leave one of the two out`;
    throw new ServerError("config_invalid", message, { param: "engine" });
  }
  const refusal = await wasmRefusal();
  if (refusal === null) return { engine: "wasm", reason: `the only one with ${setting}` };
  const message = `${setting} expects a model that the wasm engine can run; it cannot run "${path}": ${refusal}`;
  throw new ServerError("config_invalid", message, { param: setting });
}

async function obstacleOf(engine: EngineName, questions: EngineQuestions): Promise<string | null> {
  const problem = engine === "llama" ? await questions.nativeProblem() : await questions.wasmRefusal();
  return problem === null ? null : `${engine} cannot: ${problem}`;
}
