// Owns what this code knows of the bytes llama.cpp makes of a sequence's state: enough to refuse, before native code reads
// them, bytes that cannot be a state of this model. What follows the head is checked by llama.cpp, read by read.

/** First four bytes of a sequence state of the known release. */
const magic = 0xaf143cd8;
/** Magic, sequence id, number of streams. */
const headBytes = 12;
/** Position, number of sequences and sequence id of each cell. */
const cellBytes = 12;

export interface StateShape {
  /** Parts the memory is made of: one a sequence, or one for all. */
  readonly streams: number;
  readonly bytesPerToken: number;
  /** A model that keeps all its tokens has a cell for each; the states of others are made otherwise. */
  readonly keepsAll: boolean;
}

/** Whether bytes may be the state of a sequence that has `tokens` tokens. */
export function isState(bytes: Uint8Array, { streams, bytesPerToken, keepsAll }: StateShape, tokens: number): boolean {
  const cellsFrom = headBytes + 4 * streams;
  const leastBytes = cellsFrom + (keepsAll ? tokens * (cellBytes + bytesPerToken) : 0);
  if (tokens === 0 || bytes.length < leastBytes) return false;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (view.getUint32(0, true) !== magic) return false;
  return !keepsAll || (view.getUint32(8, true) === streams && cellCount(view, streams) === tokens);
}

/** A sequence lies in one stream: the others before it are empty, each a zero. */
function cellCount(view: DataView, streams: number): number {
  for (let stream = 0; stream < streams; stream++) {
    const count = view.getUint32(headBytes + 4 * stream, true);
    if (count > 0) return count;
  }
  return 0;
}
