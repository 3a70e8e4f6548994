// Encoder loop: the code of a thread that computes the embeddings of images or audio. This thread and its compute threads have a lower
// priority than the model's thread: while text is generated, an encoder gets about a quarter of the cores. It processes one message at a
// time.
import { once } from "node:events";
import { parentPort, workerData } from "node:worker_threads";
import { type ErrorRecord, toErrorRecord } from "../../runtime/errors.ts";
import { lowerPriority, threadNumber } from "../../runtime/thread/system-thread.ts";

/** Start parameters of the thread. */
export interface EncoderStart {
  /** Path of the projector file. */
  readonly path: string;
  readonly threads: number;
}

/** Message from the thread. The first one has no embeddings and says that the thread is ready; then comes the result of each input. */
export type EncoderReport = { readonly embeddings: Float32Array | null } | { readonly error: ErrorRecord };

/**
 * Runs the loop on the calling worker thread. `open` loads the encoder and returns the function that computes the result of a message. The
 * buffer of a result is transferred to the other thread. An error is reported and ends the loop.
 */
export async function runEncoderLoop<Input>(
  open: (start: EncoderStart) => Promise<(input: Input) => Float32Array>,
): Promise<void> {
  const port = parentPort;
  if (port === null) throw new Error("the encoder loop expects a worker thread; it was called on the main thread");
  const report = (message: EncoderReport, moved: ArrayBuffer[] = []) => port.postMessage(message, moved);
  try {
    const thread = threadNumber();
    if (thread !== null) lowerPriority(thread);
    const encode = await open(workerData as EncoderStart);
    report({ embeddings: null });
    for (;;) {
      const [input] = (await once(port, "message")) as [Input];
      const embeddings = encode(input);
      report({ embeddings }, [embeddings.buffer as ArrayBuffer]);
    }
  } catch (error) {
    report({ error: toErrorRecord(error) });
  }
}
