// Kernel exports: the functions of the compiled kernels. Every pointer is a byte offset into the calling thread's
// memory, aligned to 16 bytes. Every stride is in floats. Kernels keep no state except the setting of useWideDot(), and
// allocate no memory.
//
// A matrix argument is a slice: `rows` (a multiple of 16) rows of `k` columns (a multiple of the block length), packed
// in the kernels' own layout. Types are GGUF's numbers. Without blocks: F32 0, F16 1, BF16 30. With blocks of 32
// columns: Q4_0 2, Q4_1 3, Q5_0 6, Q5_1 7, Q8_0 8, IQ4_NL 20, MXFP4 39. With super-blocks of 256 columns: Q2_K 10, Q3_K
// 11, Q4_K 12, Q5_K 13, Q6_K 14, IQ4_XS 23.

export interface KernelExports {
  /** Returns the size in bytes of a packed matrix, a multiple of 16. */
  matrixBytes(type: number, rows: number, k: number): number;
  /**
   * Packs `count` rows, laid out as in a GGUF file at `source`, into the matrix at `target` from row `firstRow` on.
   * firstRow is a multiple of 16. `count` is also a multiple of 16, unless these are the matrix's last rows; in that
   * case, the rows up to the next multiple of 16 become zeros. Returns 0, or 1 + the index (in source) of the first row
   * that contains a NaN or an infinity.
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
  /** Unpacks row `row` of a packed matrix: writes it as k floats at `out`. */
  readRow(type: number, matrix: number, row: number, rows: number, k: number, out: number): void;

  /** Returns the number of bytes that prepare() writes for n activation rows, a multiple of 16. */
  activationBytes(type: number, n: number, k: number): number;
  /**
   * Returns a number that identifies the activation format in which prepare() writes rows for this matrix type. Matrix types with the same
   * number can share prepared activations.
   */
  activationForm(type: number): number;
  /**
   * Converts n activation rows of k floats (row i is at x + 4 * i * stride) to the activation format in which multiply() reads them for
   * matrices of this type.
   */
  prepare(type: number, x: number, stride: number, n: number, k: number, out: number): void;
  /**
   * Computes y[i * stride + r] = sum over c of matrix[r][c] * x[i][c], for each of the n prepared rows x[i] and all
   * rows r of the matrix.
   */
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
   * Sets whether the unsigned operand of the dot instruction may have 8 bits (1) or 7 bits (0, the default). Call this
   * before packing matrices or preparing activations, because both layouts depend on the setting.
   */
  useWideDot(wide: number): void;

  /**
   * Computes out[i] = x[i] / sqrt(mean of x[i]^2 + epsilon) * weight, for n rows of k floats. `out` may equal `x`; if the address
   * `weight` is 0, the weights are 1.
   */
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
  /**
   * Computes out[i] = (x[i] - mean) / sqrt(variance + epsilon) * weight + bias, for n rows of k floats. `out` may equal
   * `x`; if the address `bias` is 0, no bias is added.
   */
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
  /**
   * copyRows() copies n rows of `columns` floats to `target`. addRows() adds n rows of `columns` floats to the rows at
   * `target`.
   */
  copyRows(
    source: number,
    sourceStride: number,
    target: number,
    targetStride: number,
    n: number,
    columns: number,
  ): void;
  addRows(source: number, sourceStride: number, target: number, targetStride: number, n: number, columns: number): void;
  /**
   * Computes target[i][c] = source[i][c], clamped to the range from the float at the address `low` to the float at the address
   * `high`, for n rows of `columns` floats. `target` may equal `source`.
   */
  clampRows(
    source: number,
    sourceStride: number,
    target: number,
    targetStride: number,
    n: number,
    columns: number,
    low: number,
    high: number,
  ): void;
  /** Computes x[i][c] += vector[c], for n rows of `count` floats. */
  addVector(x: number, stride: number, n: number, vector: number, count: number): void;
  /** Computes x[i][c] *= vector[c], for n rows of `count` floats. */
  scaleColumns(x: number, stride: number, n: number, vector: number, count: number): void;
  /** Computes x[i][c] *= factor, for n rows of `columns` floats. */
  scaleRows(x: number, stride: number, n: number, columns: number, factor: number): void;
  /** Computes target[c] += factor * source[c], for `columns` floats. */
  addScaledRow(source: number, target: number, columns: number, factor: number): void;

  /**
   * Computes out[i] = a(x[i]), for `count` floats. The function a is silu (`activation` 0), the tanh approximation of
   * gelu (1), or quick gelu, x * sigmoid(1.702 x) (2). `out` may equal `x`.
   */
  activate(activation: number, x: number, out: number, count: number): void;
  /** Computes out[i] = a(gate[i]) * up[i], with a as in activate(). `out` may equal `gate` or `up`. */
  gate(activation: number, gate: number, up: number, out: number, count: number): void;
  /** Computes x[i] = cap * tanh(x[i] / cap), for `count` floats. */
  softcap(x: number, count: number, cap: number): void;
  /**
   * Applies the rope in place: rotates the first `rotated` floats of each of `heads` heads of n rows. `table` has
   * rotated / 2 pairs (cos, sin) for each row. Pair i consists of floats (2i, 2i + 1), or with `neox` = 1 of floats (i,
   * i + rotated / 2).
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

  /**
   * Returns the size in bytes of a KV page, a multiple of 16. A page has the keys and values of `blockTokens` tokens in
   * one layer.
   */
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
   * Computes attention of n consecutive tokens of one sequence over some of its pages. The first token is at position `firstPosition`.
   * `pages` has a pair of i32 per page (address, position of its first token), ascending by position. The token at position p attends to
   * positions p - behind .. p + ahead, limited to the range from 0 to the position of the last of the n tokens. The maximum of `behind` and
   * `ahead`, 0x7fffffff, means all positions. Pages to which no token attends are not read. Scores are multiplied by `scale` (> 0); if
   * `softcap` > 0, they become softcap * tanh(score / softcap). Head lengths are multiples of 4 up to 512.
   *
   * `slopes` is the address of the position bias, one float per head: after the soft cap, each score is lowered by the distance of the two
   * positions times the slope of the head. 0 = no position bias.
   *
   * Query row i (heads * headLength floats) is at q + 4 * i * qStride. For each row and head, the output has headLength floats (the
   * weighted sum of values, not divided by the sum of weights), the largest score, the sum of weights, and two floats of padding. If a row
   * attends to no token in these pages, its largest score is -1e30 and its other floats are zeros.
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
    slopes: number,
  ): void;
  /**
   * Merges the outputs of `parts` calls of attend() into rows of heads * headLength floats. The outputs are `partBytes`
   * bytes apart.
   */
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
   * Multiplies the LoRA matrix A of each adapter of a pass by the inputs of the tokens that use the adapter. The input of a token is a row
   * of `k` floats at x + 4 * stride * token. A site is a group of matrices with the same input. Each adapter has a table of its sites
   * (defined in adapters/layout.ts); `site` is the byte offset of the site in each table. `groups` has three i32 for each adapter: address
   * of its table, start of its tokens in the list `tokens`, and number of its tokens. For list entry i, the products with this thread's
   * rows of A are written at out + 4 * i * width. Returns `width`, which is the same in all threads; it is 0 if no adapter changes a matrix
   * of the site.
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
   * Multiplies the LoRA matrix B of each adapter by the outputs of reduceAdapters() of all threads, which are `reducedBytes` bytes apart.
   * The products belong to matrix number `matrix` of a site (a group of matrices with the same input), and to this thread's `rows` rows (a
   * multiple of 16). They are added to y: y[token * stride + r] += sum over ranks. `scratch` has room for the products with A of two
   * tokens.
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

  /**
   * For the self-test: returns the dot product of `bytes` signed bytes at a and unsigned bytes at b, computed with the
   * dot instruction.
   */
  probeAddDot(a: number, b: number, bytes: number): number;
  /**
   * For the self-test: returns the same dot product as probeAddDot(), computed with the instruction that adds pairs of
   * products in 16 bits.
   */
  probePairDot(a: number, b: number, bytes: number): number;
  /**
   * For the self-test: looks up `bytes` indices (each below 16) in the table of 16 signed bytes at `table`. Returns the
   * sum of the entries found.
   */
  probeLookUp(table: number, indices: number, bytes: number): number;
  /**
   * For measuring the peak rate of the dot instruction: runs it `count` times on 16 bytes in registers. The result
   * depends on every instruction, so that the compiler cannot remove any.
   */
  probeDot(count: number): number;
  /**
   * For measuring memory bandwidth: reads `bytes` bytes. The result depends on the data, so that the compiler cannot
   * remove the reads.
   */
  probeReadAll(from: number, bytes: number): number;
}
