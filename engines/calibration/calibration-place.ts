// Calibration place: code of a thread (wasm engine) or a process (llama.cpp) that runs a text through a model and collects the inputs of
// the model's matrices. Started by collect-from-text.ts.

import { ServerError } from "../../runtime/errors.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { Batch } from "../batch.ts";
import type { EngineName, InputSums, LoadedModel, ModelSpec } from "../engine.ts";
import { readModelMetadata } from "../files/gguf/metadata.ts";
import { openEngine } from "../open-engine.ts";
import { createVocabulary } from "../text/tokenizer/vocabulary.ts";

export interface CalibrationRun {
  readonly engine: EngineName;
  readonly spec: ModelSpec;
  readonly text: string;
  /** Length of a chunk in tokens. Chunks are computed one after another, each as a separate sequence. */
  readonly chunkTokens: number;
}

export interface CollectedText {
  readonly sums: readonly InputSums[];
  readonly chunks: number;
}

/** Maximum number of logits of a chunk. They take 64 MiB of memory. */
const maxLogits = 2 ** 24;

export async function start({ init, progress }: PlaceContext<CalibrationRun>): Promise<CollectedText> {
  const { engine, text, chunkTokens } = init;
  const { tokenizer } = await readModelMetadata(init.spec.path);
  // llama.cpp computes the end of the last layer only for tokens whose output is requested. So as many outputs are requested as
  // `maxLogits` allows.
  const outputs = engine === "llama" ? Math.floor(maxLogits / tokenizer.tokens.length) : 1;
  const wanted = Math.max(1, Math.min(chunkTokens, outputs));
  const spec = { ...init.spec, extraLogitsRows: wanted };
  const vocabulary = createVocabulary(tokenizer);
  const tokens = vocabulary.encodeCompletion(text);
  const [first] = tokens;
  // Every chunk begins with the BOS token if the model requires it, as in llama-imatrix.
  const opening = first !== undefined && first === vocabulary.bosToken ? first : null;
  const chunks = chunksOf(tokens, chunkTokens, opening);
  const [firstChunk] = chunks;
  if (firstChunk === undefined) throw new ServerError("config_invalid", "the text has no tokens");
  const model: LoadedModel = await (await openEngine(engine)).load(spec, () => {});
  try {
    const { calibration } = model;
    if (!calibration) throw new ServerError("unsupported", "llama.cpp does not collect the inputs of encoders");
    calibration.start();
    for (const [i, chunk] of chunks.entries()) {
      feed(model, chunk, wanted);
      progress((i + 1) / chunks.length);
    }
    return { sums: calibration.sums(), chunks: chunks.length };
  } finally {
    model.dispose();
  }
}

/** Splits the tokens into chunks. A shorter rest at the end is left out, unless it is the only chunk. */
function chunksOf(tokens: Int32Array, length: number, opening: number | null): Int32Array[] {
  if (tokens.length < length) return tokens.length === 0 ? [] : [tokens];
  return Array.from({ length: Math.floor(tokens.length / length) }, (_, i) => {
    const chunk = tokens.slice(i * length, (i + 1) * length);
    if (opening !== null) chunk[0] = opening;
    return chunk;
  });
}

/** Computes the tokens as one sequence. `wanted`: number of tokens at the end whose output is computed. */
function feed(model: LoadedModel, tokens: Int32Array, wanted: number): void {
  const { generates } = model.capabilities;
  const batch = new Batch(1, tokens.length);
  if (!model.kv.reserve(0, tokens.length))
    throw new ServerError("config_invalid", "the KV cache has no room for a chunk");
  const row = batch.addRow(0, tokens, 0, tokens.length, generates ? Math.min(wanted, tokens.length) : 0, 0);
  if (!generates) batch.wantPooled[row] = 1;
  model.step(batch);
  model.kv.release(0);
}
