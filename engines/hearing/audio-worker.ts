// Audio worker: entry point of the thread that computes the embeddings of audio. Like the thread that encodes images, it and its compute
// threads have a lower priority than the model's. It answers one message at a time.
import { once } from "node:events";
import { parentPort, workerData } from "node:worker_threads";
import { toErrorRecord } from "../../runtime/errors.ts";
import { lowerPriority, threadNumber } from "../../runtime/thread/system-thread.ts";
import type { EncoderReport, EncoderStart } from "../vision/encoder-worker.ts";
import { AudioEncoder } from "../wasm/audio/audio-encoder.ts";

/**
 * Message to the worker: samples (mono, 16,000 a second), answered by the spectrograms of their windows one after the other, or the
 * spectrogram of a window, answered by its embeddings.
 */
export type AudioMessage = { readonly samples: Float32Array } | { readonly spectrogram: Float32Array };

async function run(port: NonNullable<typeof parentPort>): Promise<void> {
  const { path, threads } = workerData as EncoderStart;
  const thread = threadNumber();
  if (thread !== null) lowerPriority(thread);
  const encoder = await AudioEncoder.load(path, threads);
  port.postMessage({ embeddings: null } satisfies EncoderReport);
  for (;;) {
    const [message] = (await once(port, "message")) as [AudioMessage];
    const embeddings =
      "samples" in message ? joined(encoder.windows(message.samples)) : encoder.encode(message.spectrogram);
    port.postMessage({ embeddings } satisfies EncoderReport, [embeddings.buffer as ArrayBuffer]);
  }
}

function joined(windows: readonly Float32Array[]): Float32Array {
  const all = new Float32Array(windows.reduce((sum, { length }) => sum + length, 0));
  let end = 0;
  for (const window of windows) {
    all.set(window, end);
    end += window.length;
  }
  return all;
}

if (parentPort) {
  const port = parentPort;
  run(port).catch((error: unknown) => port.postMessage({ error: toErrorRecord(error) } satisfies EncoderReport));
}
