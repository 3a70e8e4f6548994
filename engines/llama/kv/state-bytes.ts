// State bytes: checks, before native code reads them, whether bytes can be a sequence state that llama.cpp wrote for
// this model. llama.cpp itself checks each read after the header.

/** First four bytes of a sequence state of the supported release. */
const magic = 0xaf143cd8;
/** Size of the header in bytes: magic, sequence id and number of streams, 4 bytes each. */
const headBytes = 12;
/** Bytes per cell in a state: position, number of sequences and sequence id, 4 bytes each. */
const cellBytes = 12;
/** Additional bytes per cell in models with M-RoPE: row, column and token, 4 bytes each. */
const gridBytes = 12;

export interface StateShape {
  /** Number of streams in the KV memory: one per sequence, or one for all. */
  readonly streams: number;
  readonly bytesPerToken: number;
  /**
   * true: the model keeps all tokens of a sequence, so the state has a cell for each token. false: the model has
   * another state format, of which only the magic number and the minimum length are checked.
   */
  readonly keepsAll: boolean;
}

/** Whether `bytes` can be the state of a sequence of `tokens` tokens. */
export function isState(bytes: Uint8Array, { streams, bytesPerToken, keepsAll }: StateShape, tokens: number): boolean {
  const cellsFrom = headBytes + 4 * streams;
  const leastBytes = cellsFrom + (keepsAll ? tokens * (cellBytes + bytesPerToken) : 0);
  if (tokens === 0 || bytes.length < leastBytes) return false;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (view.getUint32(0, true) !== magic) return false;
  return !keepsAll || (view.getUint32(8, true) === streams && cellCount(view, streams) === tokens);
}

/**
 * Returns the positions of the tokens in a state of a model with M-RoPE. isState() must be true for `bytes`. The cells
 * of the state are in any order, so the positions are sorted: they never decrease from one token to the next.
 */
export function positionsOf(bytes: Uint8Array, tokens: number): Int32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let stream = 0;
  while (view.getUint32(headBytes + 4 * stream, true) === 0) stream++;
  const first = headBytes + 4 * (stream + 1);
  const step = cellBytes + gridBytes;
  return Int32Array.from({ length: tokens }, (_, i) => view.getInt32(first + i * step, true)).sort();
}

/**
 * Returns the number of cells in the sequence's stream. All streams before it are empty, so their numbers of cells are
 * 0.
 */
function cellCount(view: DataView, streams: number): number {
  for (let stream = 0; stream < streams; stream++) {
    const count = view.getUint32(headBytes + 4 * stream, true);
    if (count > 0) return count;
  }
  return 0;
}
