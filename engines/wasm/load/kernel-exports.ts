// Owns what the kernels promise, as the host sees them. Every pointer is a byte offset into the memory of the thread that
// calls, aligned to 16 bytes; every stride is in floats. Kernels keep no state (but useWideDot's) and allocate nothing.
//
// A matrix is a slice: `rows` (a multiple of 16) rows of `k` (a multiple of a block's) columns, packed into an order of the
// kernels' own. Types are GGUF's numbers: F32 0, F16 1, BF16 30; with blocks of 32 columns Q4_0 2, Q4_1 3, Q5_0 6, Q5_1 7,
// Q8_0 8, IQ4_NL 20, MXFP4 39; of 256 Q2_K 10, Q3_K 11, Q4_K 12, Q5_K 13, Q6_K 14, IQ4_XS 23.

export interface KernelExports {
  /** Bytes of a packed matrix, a multiple of 16. */
  matrixBytes(type: number, rows: number, k: number): number;
  /**
   * Packs `count` rows, laid out as in a GGUF file at `source`, as rows firstRow.. of the matrix at `target`. firstRow is a
   * multiple of 16, and so is count, unless these are the last rows that exist: the rest up to the multiple of 16 become
   * zeros. Returns 0, or 1 + the index (in source) of the first row that holds a NaN or an infinity.
   */
  packRows(
    type: number,
    source: number,
    target: number,
    firstRow: number,
    count: number,
    rows: number,
    k: number,
  ): number;
  /** One row of a packed matrix as k floats. */
  readRow(type: number, matrix: number, row: number, rows: number, k: number, out: number): void;

  /** Bytes that prepare() writes for n activation rows, a multiple of 16. */
  activationBytes(type: number, n: number, k: number): number;
  /** A number for what prepare() writes: types of the same one share it. */
  activationForm(type: number): number;
  /** Turns n rows of k floats (row i at x + 4 * i * stride) into what multiply() wants beside matrices of this type. */
  prepare(type: number, x: number, stride: number, n: number, k: number, out: number): void;
  /** y[i * stride + r] = sum over c of matrix[r][c] * x[i][c], for each of the n prepared rows and all rows r. */
  multiply(
    type: number,
    matrix: number,
    rows: number,
    k: number,
    x: number,
    n: number,
    y: number,
    stride: number,
  ): void;
  /**
   * Whether the unsigned operand of the dot instruction may have 8 bits (1) or 7 (0, the default). To be called before
   * anything is packed or prepared: how matrices and activations lie in memory depends on it.
   */
  useWideDot(wide: number): void;

  /** out[i] = x[i] / sqrt(mean of x[i]^2 + epsilon) * weight, for n rows of k floats; out may be x. */
  rmsNorm(
    x: number,
    xStride: number,
    weight: number,
    out: number,
    outStride: number,
    n: number,
    k: number,
    epsilon: number,
  ): void;
  /** out[i] = (x[i] - mean) / sqrt(variance + epsilon) * weight + bias, alike; bias 0 = none. */
  layerNorm(
    x: number,
    xStride: number,
    weight: number,
    bias: number,
    out: number,
    outStride: number,
    n: number,
    k: number,
    epsilon: number,
  ): void;
  /** target[i][c] = source[i][c], or += for addRows, for n rows of `columns` floats. */
  copyRows(
    source: number,
    sourceStride: number,
    target: number,
    targetStride: number,
    n: number,
    columns: number,
  ): void;
  addRows(source: number, sourceStride: number, target: number, targetStride: number, n: number, columns: number): void;
  /** x[i][c] += vector[c] for n rows of `count` floats. */
  addVector(x: number, stride: number, n: number, vector: number, count: number): void;
  /** x[i][c] *= factor for n rows of `columns` floats. */
  scaleRows(x: number, stride: number, n: number, columns: number, factor: number): void;
  /** target[c] += factor * source[c] for `columns` floats. */
  addScaledRow(source: number, target: number, columns: number, factor: number): void;

  /** out[i] = a(x[i]) for `count` floats, a being silu (`activation` 0) or gelu by its tanh formula (1); out may be x. */
  activate(activation: number, x: number, out: number, count: number): void;
  /** out[i] = a(gate[i]) * up[i] alike; out may be gate or up. */
  gate(activation: number, gate: number, up: number, out: number, count: number): void;
  /** x[i] = cap * tanh(x[i] / cap) for `count` floats. */
  softcap(x: number, count: number, cap: number): void;
  /**
   * Rotates in place the first `rotated` floats of each of `heads` heads of n rows. `table` has for each row rotated / 2
   * pairs (cos, sin). Pair i is floats (2i, 2i + 1), or with `neox` = 1 floats (i, i + rotated / 2).
   */
  rope(
    x: number,
    stride: number,
    n: number,
    heads: number,
    headLength: number,
    rotated: number,
    table: number,
    neox: number,
  ): void;

  /** Bytes of a page: keys and values of `blockTokens` tokens of one layer; a multiple of 16. */
  kvPageBytes(kvType: number, kvHeads: number, headLength: number, blockTokens: number): number;
  /** Stores one token's keys and values (kvHeads * headLength floats each) as token `index` of a page. */
  kvWrite(
    kvType: number,
    page: number,
    index: number,
    blockTokens: number,
    key: number,
    value: number,
    kvHeads: number,
    headLength: number,
  ): void;
  /**
   * Attention of n consecutive tokens of one sequence, the first at position `firstPosition`, over some of its pages:
   * `pages` has for each a pair of i32 (address, position of its first token), ascending. Token p sees positions
   * p - behind .. p + ahead, of which there are none before 0 or after that of the last of the n; both at most 0x7fffffff,
   * which sees all. Pages that no token sees are not read. Scores are multiplied by `scale` (> 0), and where `softcap` > 0
   * become softcap * tanh(score / softcap). Head lengths are multiples of 4 up to 512.
   *
   * Query row i (heads * headLength floats) is at q + 4 * i * qStride. Writes for each row and head headLength floats (the
   * sum of weighted values, not divided), then the largest score, then the sum of weights, then two floats of padding.
   * A row that sees nothing gets a largest score of -1e30 and zeros.
   */
  attend(
    kvType: number,
    pages: number,
    pageCount: number,
    blockTokens: number,
    q: number,
    qStride: number,
    n: number,
    firstPosition: number,
    heads: number,
    kvHeads: number,
    headLength: number,
    scale: number,
    softcap: number,
    behind: number,
    ahead: number,
    out: number,
  ): void;
  /** Joins what `parts` calls of attend() wrote, `partBytes` apart, into rows of heads * headLength floats. */
  mergeAttention(
    partials: number,
    partBytes: number,
    parts: number,
    n: number,
    heads: number,
    headLength: number,
    out: number,
    stride: number,
  ): void;

  /**
   * A of each adapter of a pass times the inputs of its tokens: rows of `k` floats at x + 4 * stride * token. A group is an
   * adapter: the address of its table of places, where its tokens begin in the list `tokens`, their count (i32 each); `place`
   * is where in a table the place lies, and adapters/layout.ts has what it says. Writes this thread's ranks of token i of the
   * list at out + 4 * i * width. Returns that width, the same in all threads; 0 where no adapter adds anything at the place.
   */
  reduceAdapters(
    place: number,
    groups: number,
    groupCount: number,
    tokens: number,
    x: number,
    stride: number,
    k: number,
    out: number,
  ): number;
  /**
   * Adds B times what all threads have reduced (slabs `reducedBytes` apart) to this thread's `rows` rows, a multiple of 16, of
   * matrix number `matrix` of a place: y[token * stride + r] += sum over ranks. `scratch` has room for the ranks of two tokens.
   */
  addAdapters(
    place: number,
    matrix: number,
    groups: number,
    groupCount: number,
    tokens: number,
    reduced: number,
    reducedBytes: number,
    width: number,
    scratch: number,
    rows: number,
    y: number,
    stride: number,
  ): void;

  /** The dot instruction on `bytes` signed bytes at a and unsigned ones at b, added up: for the self-test. */
  probeAddDot(a: number, b: number, bytes: number): number;
  /** The same by the instruction that adds up pairs. */
  probePairDot(a: number, b: number, bytes: number): number;
  /** Adds up signed bytes of the table of 16 at `table`: those at the places that `bytes` bytes say, all below 16. */
  probeLookUp(table: number, places: number, bytes: number): number;
  /** As fast as the instruction goes, `count` times 16 bytes from registers; returns something that depends on it. */
  probeDot(count: number): number;
  /** Reads `bytes` bytes and does nothing with them; returns something that depends on them. */
  probeReadAll(from: number, bytes: number): number;
}
