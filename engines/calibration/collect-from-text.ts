// Collection from a text: the inputs of a model's matrices while it reads a text, for an importance matrix. Runs in a place of its own:
// on the wasm engine if that can run the model, else on llama.cpp, whatever engine serves the model later.
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { computeThreads } from "../../runtime/host/cores.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import type { ModelSpec } from "../engine.ts";
import { wasmRefusal } from "../wasm/load/fit.ts";
import type { CalibrationRun, CollectedText } from "./calibration-place.ts";

/** Tokens of a chunk, as in llama-imatrix. */
export const chunkTokens = 512;

const calibrationModule = new URL("./calibration-place.js", import.meta.url);
const blockTokens = 32;
const limitMs = 24 * 60 * 60 * 1000;
const stopMs = 1000;

export interface TextOptions {
  readonly text: string;
  /** Number of compute threads. */
  readonly threads: number;
  readonly signal?: AbortSignal | undefined;
  /** Called with the fraction of the text that has been read. */
  readonly onProgress: (fraction: number) => void;
}

/** Returns the inputs of the matrices of the GGUF file at `path`. Throws `config_invalid` if no engine can run it. */
export async function collectFromText(
  path: string,
  { text, threads, signal, onProgress }: TextOptions,
): Promise<CollectedText> {
  const own = specOf(path, computeThreads(threads));
  const isOnWasm = (await wasmRefusal(own)) === null;
  const run = isOnWasm
    ? ({ engine: "wasm", spec: own } as const)
    : ({ engine: "llama", spec: { ...own, kvType: "f16", collectsInputs: true } } as const);
  try {
    const place = await spawnPlace<CalibrationRun, CollectedText>({
      name: "calibration",
      module: calibrationModule,
      init: { ...run, text, chunkTokens },
      // The libraries of llama.cpp are loaded only in processes of their own.
      kind: isOnWasm ? "thread" : "process",
      startTimeoutMs: limitMs,
      ...(signal === undefined ? {} : { signal }),
      onProgress: (fraction) => onProgress(fraction as number),
    });
    await place.stop(stopMs);
    return place.ready;
  } catch (cause) {
    const { code, message } = toErrorRecord(cause);
    if (code === "cancelled") throw cause;
    throw new ServerError(
      "config_invalid",
      `calibration_file: the ${run.engine} engine could not read the text with ${path}: ${message}`,
      { param: "calibration_file", cause },
    );
  }
}

function specOf(path: string, threads: number): ModelSpec {
  // The blocks of a sequence are distributed over the threads.
  const blocks = Math.ceil(chunkTokens / blockTokens / threads) * threads;
  return {
    path,
    maxSequences: 1,
    maxBatchTokens: chunkTokens,
    maxModelLength: chunkTokens,
    kvBudget: { tokens: blocks * blockTokens },
    kvType: "f32",
    blockTokens,
    pagedKv: null,
    extraLogitsRows: 0,
    threads,
    mmap: true,
    gpuLayers: 0,
    abortFlag: null,
    computeLock: null,
  };
}
