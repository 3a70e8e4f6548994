// Collection from a text: collects the inputs of a model's matrices while the model reads a text, for an importance matrix. Runs in a
// separate thread on the wasm engine if that engine can run the model, else in a separate process on llama.cpp, whatever engine serves the
// model later.
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { computeThreads } from "../../runtime/host/cores.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import type { ModelSpec } from "../engine.ts";
import { wasmRefusal } from "../wasm/load/fit.ts";
import type { CalibrationRun, CollectedText } from "./calibration-place.ts";

/** Length of a chunk in tokens, as in llama-imatrix. */
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

/**
 * Returns, for each matrix of the GGUF file at `path`, sums of the squares of its inputs. Throws `config_invalid` if no engine can run the
 * model.
 */
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
      // llama.cpp's libraries are loaded only in separate processes.
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
  // The wasm engine distributes the KV blocks of a sequence over the threads. So the number of blocks is rounded up to a multiple of the
  // number of threads.
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
