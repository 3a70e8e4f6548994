// Collection from a text: the inputs of a model's matrices while it reads a text, for an importance matrix. Runs in a thread of its
// own, on the wasm engine, whatever engine serves the model later.
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { computeThreads } from "../../runtime/host/cores.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import type { ModelSpec } from "../engine.ts";
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

/** Returns the inputs of the matrices of the GGUF file at `path`. Throws `config_invalid` if the wasm engine cannot run it. */
export async function collectFromText(
  path: string,
  { text, threads, signal, onProgress }: TextOptions,
): Promise<CollectedText> {
  try {
    const place = await spawnPlace<CalibrationRun, CollectedText>({
      name: "calibration",
      module: calibrationModule,
      init: { spec: specOf(path, computeThreads(threads)), text, chunkTokens },
      kind: "thread",
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
      `calibration_file: the wasm engine could not read the text with ${path}: ${message}`,
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
