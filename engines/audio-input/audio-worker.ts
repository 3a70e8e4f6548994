// Audio worker: entry point of the thread that computes the embeddings of audio.
import { runEncoderLoop } from "../media/encoder-loop.ts";
import { AudioEncoder } from "../wasm/audio/audio-encoder.ts";

/**
 * Message to the worker: either samples (mono, 16,000 per second), for which it returns the inputs of all windows one after another, or the
 * input of one window, for which it returns the embeddings.
 */
export type AudioMessage = { readonly samples: Float32Array } | { readonly window: Float32Array };

await runEncoderLoop<AudioMessage>(async ({ path, threads }) => {
  const encoder = await AudioEncoder.load(path, threads);
  return (message) =>
    "samples" in message ? joined(encoder.windows(message.samples)) : encoder.encode(message.window);
});

function joined(windows: readonly Float32Array[]): Float32Array {
  const all = new Float32Array(windows.reduce((sum, { length }) => sum + length, 0));
  let end = 0;
  for (const window of windows) {
    all.set(window, end);
    end += window.length;
  }
  return all;
}
