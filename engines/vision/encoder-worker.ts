// Encoder worker: entry point of the thread that computes the embeddings of tiles. Its priority is lower than that of the
// model's thread, and so is that of its compute threads: while text is generated, an image gets about a quarter of the
// cores. It computes one tile at a time.
import { once } from "node:events";
import { parentPort, workerData } from "node:worker_threads";
import { type ErrorRecord, toErrorRecord } from "../../runtime/errors.ts";
import { lowerPriority, threadNumber } from "../../runtime/thread/system-thread.ts";
import { ImageEncoder, type Tile } from "../wasm/vision/image-encoder.ts";

/** Start parameters of the worker. */
export interface EncoderStart {
  /** Path of the projector file. */
  readonly path: string;
  readonly threads: number;
}

/** Message from the worker: first that it is ready, then the result of each tile in order. */
export type EncoderReport = { readonly embeddings: Float32Array | null } | { readonly error: ErrorRecord };

async function run(port: NonNullable<typeof parentPort>): Promise<void> {
  const { path, threads } = workerData as EncoderStart;
  const thread = threadNumber();
  if (thread !== null) lowerPriority(thread);
  const encoder = await ImageEncoder.load(path, threads);
  port.postMessage({ embeddings: null } satisfies EncoderReport);
  for (;;) {
    const [tile] = (await once(port, "message")) as [Tile];
    const embeddings = encoder.encode(tile);
    port.postMessage({ embeddings } satisfies EncoderReport, [embeddings.buffer as ArrayBuffer]);
  }
}

if (parentPort) {
  const port = parentPort;
  run(port).catch((error: unknown) => port.postMessage({ error: toErrorRecord(error) } satisfies EncoderReport));
}
