// Vectors of embedding models: scales vectors to length 1, and compares texts that have a vector per token.
import { setImmediate } from "node:timers/promises";
import { ServerError } from "../../runtime/errors.ts";

/** Returns the scores unchanged. Throws `model_failed` if a score is NaN or infinite. */
export function finite(scores: Float32Array): Float32Array {
  if (scores.every(Number.isFinite)) return scores;
  throw new ServerError("model_failed", "the model's score of a document is no number");
}

/**
 * Returns the first `kept` elements of each row, scaled to length 1; a row of zeros stays zero. `rows` has the shape
 * [rows][length]. `takes`: returns whether a row is included; default: all rows are. Throws `model_failed` for NaN and infinity.
 */
export function unitVectors(
  rows: Float32Array,
  length: number,
  kept: number,
  takes: (row: number) => boolean = () => true,
): Float32Array {
  const taken = Array.from({ length: rows.length / length }, (_, row) => row).filter(takes);
  const vectors = new Float32Array(taken.length * kept);
  for (const [i, row] of taken.entries()) {
    const vector = vectors.subarray(i * kept, (i + 1) * kept);
    vector.set(rows.subarray(row * length, row * length + kept));
    scale(vector);
  }
  return vectors;
}

/** Scales a vector in place to length 1. */
function scale(vector: Float32Array): void {
  let squares = 0;
  for (const value of vector) squares += value * value;
  if (!Number.isFinite(squares)) throw new ServerError("model_failed", "the model's output for an input is no number");
  if (squares === 0) return;
  const factor = 1 / Math.sqrt(squares);
  for (let i = 0; i < vector.length; i++) vector[i] = (vector[i] as number) * factor;
}

/** Number of multiplications after which maxSim() yields to other work of the thread: 2 to 5 ms. */
const productsAtOnce = 2 ** 21;

/**
 * Returns the MaxSim score: for each vector of the query, the largest dot product with a vector of the document, summed (arXiv
 * 2004.12832). Both arrays have the shape [vectors][length]. Long inputs take seconds, so the function regularly yields to other
 * work of the thread. Rejects with the signal's reason when the signal is aborted.
 */
export async function maxSim(
  query: Float32Array,
  document: Float32Array,
  length: number,
  signal: AbortSignal,
): Promise<Float32Array> {
  const rows = Math.max(1, Math.floor(productsAtOnce / Math.max(1, document.length)));
  let sum = 0;
  for (let from = 0; from < query.length; from += rows * length) {
    sum += largestProducts(query.subarray(from, from + rows * length), document, length);
    await setImmediate();
    signal.throwIfAborted();
  }
  return Float32Array.of(sum);
}

function largestProducts(query: Float32Array, document: Float32Array, length: number): number {
  let sum = 0;
  for (let q = 0; q < query.length; q += length) {
    let best = Number.NEGATIVE_INFINITY;
    for (let d = 0; d < document.length; d += length) {
      let product = 0;
      for (let i = 0; i < length; i++) product += (query[q + i] as number) * (document[d + i] as number);
      if (product > best) best = product;
    }
    sum += best;
  }
  return sum;
}
