// Calibration thread: runs a text through a model on the wasm engine and collects the inputs of the matrices. Started by
// collect-from-text.ts.

import { ServerError } from "../../runtime/errors.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { Batch } from "../batch.ts";
import type { InputSums, LoadedModel, ModelSpec } from "../engine.ts";
import { readModelMetadata } from "../files/gguf/metadata.ts";
import { createVocabulary } from "../text/tokenizer/vocabulary.ts";
import { wasmEngine } from "../wasm/engine.ts";

export interface CalibrationRun {
  readonly spec: ModelSpec;
  readonly text: string;
  /** Tokens of a chunk. Chunks are computed one after another, each as a sequence of its own. */
  readonly chunkTokens: number;
}

export interface CollectedText {
  readonly sums: readonly InputSums[];
  readonly chunks: number;
}

export async function start({ init, progress }: PlaceContext<CalibrationRun>): Promise<CollectedText> {
  const { spec, text, chunkTokens } = init;
  const { tokenizer } = await readModelMetadata(spec.path);
  const vocabulary = createVocabulary(tokenizer);
  const tokens = vocabulary.encodeCompletion(text);
  const [first] = tokens;
  // Every chunk begins with the BOS token if the model requires it, as in llama-imatrix.
  const opening = first !== undefined && first === vocabulary.bosToken ? first : null;
  const chunks = chunksOf(tokens, chunkTokens, opening);
  const [firstChunk] = chunks;
  if (firstChunk === undefined) throw new ServerError("config_invalid", "the text has no tokens");
  const model = await wasmEngine.load(spec, () => {});
  try {
    const { calibration } = model;
    if (!calibration) throw new ServerError("internal", "expected an engine that collects inputs");
    calibration.start();
    for (const [i, chunk] of chunks.entries()) {
      feed(model, chunk);
      progress((i + 1) / chunks.length);
    }
    return { sums: calibration.sums(), chunks: chunks.length };
  } finally {
    model.dispose();
  }
}

/** Cuts the tokens into chunks. A last part that is shorter than a chunk is left out, unless it is the only one. */
function chunksOf(tokens: Int32Array, length: number, opening: number | null): Int32Array[] {
  if (tokens.length < length) return tokens.length === 0 ? [] : [tokens];
  return Array.from({ length: Math.floor(tokens.length / length) }, (_, i) => {
    const chunk = tokens.slice(i * length, (i + 1) * length);
    if (opening !== null) chunk[0] = opening;
    return chunk;
  });
}

function feed(model: LoadedModel, tokens: Int32Array): void {
  const { generates } = model.capabilities;
  const batch = new Batch(1, tokens.length);
  if (!model.kv.reserve(0, tokens.length))
    throw new ServerError("config_invalid", "the KV cache has no room for a chunk");
  const row = batch.addRow(0, tokens, 0, tokens.length, generates ? 1 : 0, 0);
  if (!generates) batch.wantPooled[row] = 1;
  model.step(batch);
  model.kv.release(0);
}
