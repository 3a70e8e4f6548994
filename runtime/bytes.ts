// Functions for byte arrays.

/** Joins all bytes in one array. If only one piece is not empty, returns that piece without copying it. */
export function joinBytes(pieces: readonly Uint8Array[]): Uint8Array {
  const [only, ...more] = pieces.filter(({ byteLength }) => byteLength > 0);
  if (only !== undefined && more.length === 0) return only;
  // The result has its own buffer, so that it may be transferred to another thread.
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.byteLength, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.byteLength;
  }
  return all;
}

/**
 * Returns bytes whose buffer contains nothing else; copies them if they are a view of a larger buffer. Needed for bytes that are
 * sent to another thread, which receives and keeps the whole buffer. Short Buffers are views of Node's pool.
 */
export function ownBytes(bytes: Uint8Array): Uint8Array {
  return bytes.byteLength < bytes.buffer.byteLength ? new Uint8Array(bytes) : bytes;
}
