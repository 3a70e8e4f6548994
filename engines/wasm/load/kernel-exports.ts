// Kernel interface as the host sees it. Every pointer is a byte offset into the calling thread's memory, aligned to
// 16 bytes; every stride is in floats. Kernels keep no state (except that of useWideDot) and allocate nothing.
//
// A matrix is a slice: `rows` (a multiple of 16) rows of `k` columns (a multiple of the block length), packed in the
// kernels' own layout. Types are GGUF's numbers: F32 0, F16 1, BF16 30; with blocks of 32 columns Q4_0 2, Q4_1 3,
// Q5_0 6, Q5_1 7, Q8_0 8, IQ4_NL 20, MXFP4 39; with super-blocks of 256 columns Q2_K 10, Q3_K 11, Q4_K 12, Q5_K 13,
// Q6_K 14, IQ4_XS 23.

export interface KernelExports {
  /** Bytes of a packed matrix, a multiple of 16. */
  matrixBytes(type: number, rows: number, k: number): number;
  /**
   * Packs `count` rows, laid out as in a GGUF file at `source`, as rows firstRow.. of the matrix at `target`. firstRow
   * is a multiple of 16. So is count, unless these are the last rows; then the rows up to the next multiple of 16
   * become zeros. Returns 0, or 1 + the index (in source) of the first row that holds a NaN or an infinity.
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
  /** Writes one row of a packed matrix as k floats. */
  readRow(type: number, matrix: number, row: number, rows: number, k: number, out: number): void;

  /** Bytes that prepare() writes for n activation rows, a multiple of 16. */
  activationBytes(type: number, n: number, k: number): number;
  /** Number of the format that prepare() writes; types with the same number share prepared activations. */
  activationForm(type: number): number;
  /**
   * Converts n rows of k floats (row i at x + 4 * i * stride) to the format that multiply() takes for matrices of this
   * type.
   */
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
   * Sets whether the unsigned operand of the dot instruction may have 8 bits (1) or 7 bits (0, the default). Call it
   * before anything is packed or prepared: the layouts of matrices and activations depend on it.
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
  /** out[i] = (x[i] - mean) / sqrt(variance + epsilon) * weight + bias, with the same arguments; bias 0 = none. */
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

  /**
   * out[i] = a(x[i]) for `count` floats, with a = silu (`activation` 0) or the tanh approximation of gelu (1); out may
   * be x.
   */
  activate(activation: number, x: number, out: number, count: number): void;
  /** out[i] = a(gate[i]) * up[i], with a as in activate(); out may be gate or up. */
  gate(activation: number, gate: number, up: number, out: number, count: number): void;
  /** x[i] = cap * tanh(x[i] / cap) for `count` floats. */
  softcap(x: number, count: number, cap: number): void;
  /**
   * Rotates in place the first `rotated` floats of each of `heads` heads of n rows. `table` has rotated / 2 pairs (cos,
   * sin) for each row. Pair i is floats (2i, 2i + 1), or with `neox` = 1 floats (i, i + rotated / 2).
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
   * Attention of n consecutive tokens of one sequence, the first at position `firstPosition`, over some of its pages.
   * `pages` has a pair of i32 per page (address, position of its first token), ascending. Token p sees positions p -
   * behind .. p + ahead, limited to 0 .. the position of the last of the n tokens; `behind` and `ahead` are at most
   * 0x7fffffff, which means all. Pages that no token sees are not read. Scores are multiplied by `scale` (> 0); if
   * `softcap` > 0, they become softcap * tanh(score / softcap). Head lengths are multiples of 4 up to 512.
   *
   * Query row i (heads * headLength floats) is at q + 4 * i * qStride. The output has, for each row and head:
   * headLength floats (the weighted sum of values, not divided by the sum of weights), the largest score, the sum of
   * weights, and two floats of padding. A row that sees no token gets a largest score of -1e30 and zeros.
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
  /** Merges the outputs of `parts` calls of attend(), `partBytes` apart, into rows of heads * headLength floats. */
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
   * Multiplies A of each adapter of a pass with the inputs of its tokens: rows of `k` floats at x + 4 * stride * token.
   * A group is an adapter, as three i32: address of its site table, start of its tokens in the list `tokens`, their
   * count. `site` is the byte offset of the site in each table; adapters/layout.ts defines the entry. Writes this
   * thread's ranks of list entry i at out + 4 * i * width. Returns that width, the same in all threads; 0 if no adapter
   * changes anything at the site.
   */
  reduceAdapters(
    site: number,
    groups: number,
    groupCount: number,
    tokens: number,
    x: number,
    stride: number,
    k: number,
    out: number,
  ): number;
  /**
   * Adds B times the reduced inputs of all threads (slabs `reducedBytes` apart) to this thread's `rows` rows, a
   * multiple of 16, of matrix number `matrix` of a site: y[token * stride + r] += sum over ranks. `scratch` has room
   * for the ranks of two tokens.
   */
  addAdapters(
    site: number,
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

  /** For the self-test: dot product of `bytes` signed bytes at a and unsigned bytes at b, by the dot instruction. */
  probeAddDot(a: number, b: number, bytes: number): number;
  /** The same by the instruction that sums pairs into 16 bits. */
  probePairDot(a: number, b: number, bytes: number): number;
  /** Sums entries of the table of 16 signed bytes at `table`, at the `bytes` indices at `indices`, all below 16. */
  probeLookUp(table: number, indices: number, bytes: number): number;
  /** Peak rate of the dot instruction: `count` times 16 bytes from registers. The result depends on the work. */
  probeDot(count: number): number;
  /** Reads `bytes` bytes and discards them. The result depends on the data. */
  probeReadAll(from: number, bytes: number): number;
}
