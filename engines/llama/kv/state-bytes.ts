// State bytes: checks on the bytes of a sequence state by llama.cpp, enough to refuse, before native code reads them,
// bytes that cannot be a state of this model. llama.cpp itself checks each read after the header.

/** First four bytes of a sequence state of the supported release. */
const magic = 0xaf143cd8;
/** Magic, sequence id, number of streams: 4 bytes each. */
const headBytes = 12;
/** Position, number of sequences and sequence id of each cell: 4 bytes each. */
const cellBytes = 12;

export interface StateShape {
  /** Streams of the memory: one per sequence, or one for all. */
  readonly streams: number;
  readonly bytesPerToken: number;
  /** The model keeps all its tokens, so it has a cell for each. Other models have another state format. */
  readonly keepsAll: boolean;
}

/** Whether bytes may be the state of a sequence of `tokens` tokens. */
export function isState(bytes: Uint8Array, { streams, bytesPerToken, keepsAll }: StateShape, tokens: number): boolean {
  const cellsFrom = headBytes + 4 * streams;
  const leastBytes = cellsFrom + (keepsAll ? tokens * (cellBytes + bytesPerToken) : 0);
  if (tokens === 0 || bytes.length < leastBytes) return false;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (view.getUint32(0, true) !== magic) return false;
  return !keepsAll || (view.getUint32(8, true) === streams && cellCount(view, streams) === tokens);
}

/** Cells of the sequence's one stream: the streams before it are empty, each written as a zero. */
function cellCount(view: DataView, streams: number): number {
  for (let stream = 0; stream < streams; stream++) {
    const count = view.getUint32(headBytes + 4 * stream, true);
    if (count > 0) return count;
  }
  return 0;
}
