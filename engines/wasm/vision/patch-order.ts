// Patch order: the order in which the patches of a tile become tokens. Some projectors concatenate the patches of each square; for their
// encoders, the patches of a square must be adjacent tokens. If attention is limited to windows, the patches of a window must also be
// adjacent tokens.

export interface PatchOrder {
  /** For each token: row of its patch in the tile. `columns`: column of its patch. */
  readonly rows: Int32Array;
  readonly columns: Int32Array;
  /** Number of patches of each window; empty if there are no windows. */
  readonly windows: readonly number[];
  /** For each embedding, in token order: its index in the row-by-row order of the tile. Null: both orders are the same. */
  readonly cells: Int32Array | null;
}

/** Returns the order of patches row by row. */
export function rowOrder(rows: number, columns: number): PatchOrder {
  return {
    rows: Int32Array.from({ length: rows * columns }, (_, token) => Math.floor(token / columns)),
    columns: Int32Array.from({ length: rows * columns }, (_, token) => token % columns),
    windows: [],
    cells: null,
  };
}

/**
 * Returns the order of patches square by square, with squares of `side` x `side` patches. If `windowSide` is not null, squares are ordered
 * window by window, with windows of `windowSide` x `windowSide` squares.
 */
export function squareOrder(rows: number, columns: number, side: number, windowSide: number | null): PatchOrder {
  const [down, across] = [rows / side, columns / side];
  const step = windowSide ?? Math.max(down, across);
  const order = {
    rows: new Int32Array(rows * columns),
    columns: new Int32Array(rows * columns),
    windows: [] as number[],
    cells: new Int32Array(down * across),
  };
  let cell = 0;
  for (let top = 0; top < down; top += step) {
    for (let left = 0; left < across; left += step) {
      const first = cell;
      for (let y = top; y < Math.min(top + step, down); y++) {
        for (let x = left; x < Math.min(left + step, across); x++) {
          order.cells[cell] = y * across + x;
          for (let patch = 0; patch < side * side; patch++) {
            const token = cell * side * side + patch;
            order.rows[token] = y * side + Math.floor(patch / side);
            order.columns[token] = x * side + (patch % side);
          }
          cell++;
        }
      }
      order.windows.push((cell - first) * side * side);
    }
  }
  return windowSide === null ? { ...order, windows: [], cells: null } : order;
}
