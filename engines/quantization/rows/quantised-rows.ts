// Quantised rows: decodes the rows of quantised checkpoints (GPTQ, AWQ, FP8, MXFP4, bitsandbytes) to F32. Scales and
// zero points are read once for each tensor and kept while there is room.
import type {
  BlockScaledRows,
  CodebookRows,
  LookedUpRows,
  Mxfp4Rows,
  PackedIntRows,
  RowSource,
  StoredRows,
} from "../../files/checkpoint/row-source.ts";
import type { StoredFiles } from "./stored-files.ts";

export type ReadRows = (source: RowSource, first: number, count: number, out: Float32Array, at: number) => void;

type Quantised = BlockScaledRows | PackedIntRows | Mxfp4Rows | CodebookRows | LookedUpRows;

/** Maximum number of floats of scales kept. */
const maxTables = 2 ** 23;
/** Place of each output feature in a word of AWQ. */
const awqOrder = [0, 4, 1, 5, 2, 6, 3, 7];
const mxfp4Values = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];
const mxfp4Block = 32;

export class QuantisedRows {
  readonly #files: StoredFiles;
  readonly #readRows: ReadRows;
  readonly #tables = new Map<RowSource, Float32Array>();
  #tableFloats = 0;

  constructor(files: StoredFiles, readRows: ReadRows) {
    this.#files = files;
    this.#readRows = readRows;
  }

  read(source: Quantised, first: number, count: number, out: Float32Array, at: number): void {
    switch (source.kind) {
      case "blockScaled":
        this.#blockScaled(source, first, count, out, at);
        break;
      case "packedInts":
        this.#packedInts(source, first, count, out, at);
        break;
      case "mxfp4":
        this.#mxfp4(source, first, count, out, at);
        break;
      case "codebook":
        this.#codebook(source, first, count, out, at);
        break;
      case "lookedUp":
        this.#lookedUp(source, first, count, out, at);
        break;
    }
  }

  #blockScaled(source: BlockScaledRows, first: number, count: number, out: Float32Array, at: number): void {
    const { columns, blockRows, blockColumns, matrixRows } = source;
    this.#readRows(source.source, first, count, out, at);
    const scales = this.#table(source.scales);
    const matrixBlocks = Math.ceil(matrixRows / blockRows);
    for (let i = 0; i < count; i++) {
      const row = first + i;
      const block = Math.floor(row / matrixRows) * matrixBlocks + Math.floor((row % matrixRows) / blockRows);
      const start = at + i * columns;
      for (let column = 0; column < columns; column++) {
        const scale = scales[block * source.scales.columns + Math.floor(column / blockColumns)] as number;
        out[start + column] = (out[start + column] as number) * scale;
      }
    }
  }

  #packedInts(source: PackedIntRows, first: number, count: number, out: Float32Array, at: number): void {
    const { layout, columns, bits } = source;
    if (layout === "rows") {
      this.#packedRows(source, first, count, out, at);
      return;
    }
    const part = this.#packedPart(source);
    const perWord = 32 / bits;
    const mask = 2 ** bits - 1;
    const width = source.words.columns;
    const isGptq = layout === "gptq";
    // A row of words has all rows of the matrix (GPTQ: of several columns; AWQ: of one column).
    const from = isGptq ? first : Math.floor(first / perWord);
    const words = new Uint32Array((isGptq ? first + count : Math.ceil((first + count) / perWord)) - from);
    for (let wordRow = 0; wordRow < source.words.rows; wordRow++) {
      this.#words(source.words, wordRow * width + from, words);
      for (let i = 0; i < count; i++) {
        const row = first + i;
        if (isGptq) {
          const word = words[i] as number;
          for (let k = 0; k < perWord; k++) {
            const column = wordRow * perWord + k;
            out[at + i * columns + column] = part(((word >>> (bits * k)) & mask) >>> 0, row, column);
          }
        } else {
          const word = words[Math.floor(row / perWord) - from] as number;
          const value = (word >>> (bits * placeIn(layout, row, perWord))) & mask;
          out[at + i * columns + wordRow] = part(value, row, wordRow);
        }
      }
    }
  }

  #packedRows(source: PackedIntRows, first: number, count: number, out: Float32Array, at: number): void {
    const { columns, bits } = source;
    const part = this.#packedPart(source);
    const perWord = 32 / bits;
    const mask = 2 ** bits - 1;
    const words = new Uint32Array(source.words.columns);
    for (let i = 0; i < count; i++) {
      const row = first + i;
      this.#words(source.words, row * source.words.columns, words);
      for (let column = 0; column < columns; column++) {
        const word = words[Math.floor(column / perWord)] as number;
        const value = (word >>> (bits * (column % perWord))) & mask;
        out[at + i * columns + column] = part(value, row, column);
      }
    }
  }

  /** Returns a function that gives the value of a stored number. */
  #packedPart(source: PackedIntRows): (value: number, row: number, column: number) => number {
    const { layout, zero, groupSize, bits } = source;
    const scales = this.#table(source.scales);
    const groups = source.groups === null ? null : this.#table(source.groups);
    const zeros = source.zeros === null ? null : this.#zeroWords(source.zeros);
    const perWord = 32 / bits;
    const mask = 2 ** bits - 1;
    const { rows } = source;
    const isByRows = layout === "rows";
    const groupCount = source.scales.columns;
    const zeroColumns = source.zeros?.columns ?? 0;
    return (value, row, column) => {
      const group = groups === null ? Math.floor(column / groupSize) : (groups[column] as number);
      const scale = scales[isByRows ? row * groupCount + group : group * rows + row] as number;
      if (zeros === null) return (value - zero) * scale;
      const wordRow = Math.floor(row / perWord);
      const word = zeros[isByRows ? wordRow * zeroColumns + group : group * zeroColumns + wordRow] as number;
      const point = (word >>> (bits * placeIn(layout, row, perWord))) & mask;
      return (value - point - zero) * scale;
    };
  }

  #mxfp4(source: Mxfp4Rows, first: number, count: number, out: Float32Array, at: number): void {
    const { columns } = source;
    const codes = new Float32Array(columns / 2);
    const scales = new Float32Array(columns / mxfp4Block);
    for (let i = 0; i < count; i++) {
      this.#readRows(source.codes, first + i, 1, codes, 0);
      this.#readRows(source.scales, first + i, 1, scales, 0);
      for (let column = 0; column < columns; column++) {
        const code = codes[column >> 1] as number;
        const value = mxfp4Values[column % 2 === 0 ? code & 15 : code >> 4] as number;
        out[at + i * columns + column] = value * 2 ** ((scales[Math.floor(column / mxfp4Block)] as number) - 127);
      }
    }
  }

  #codebook(source: CodebookRows, first: number, count: number, out: Float32Array, at: number): void {
    const { columns, blockLength } = source;
    const table = this.#table(source.table);
    const scales = this.#table(source.scales);
    const start = first * columns;
    const length = count * columns;
    // Two codes in a byte; a row may begin in the middle of one.
    const firstByte = start >> 1;
    const codes = new Float32Array(((start + length + 1) >> 1) - firstByte);
    this.#files.readSpan(source.codes, firstByte, codes.length, codes, 0);
    for (let i = 0; i < length; i++) {
      const index = start + i;
      const code = codes[(index >> 1) - firstByte] as number;
      const value = table[index % 2 === 0 ? code >> 4 : code & 15] as number;
      out[at + i] = value * (scales[Math.floor(index / blockLength)] as number);
    }
  }

  #lookedUp(source: LookedUpRows, first: number, count: number, out: Float32Array, at: number): void {
    const { columns, blockLength, offset } = source;
    const table = this.#table(source.table);
    const scales = this.#table(source.scales);
    this.#readRows(source.codes, first, count, out, at);
    for (let i = 0; i < count * columns; i++) {
      const scale = scales[Math.floor((first * columns + i) / blockLength)] as number;
      // The library rounds the product to F32 before it adds.
      out[at + i] = Math.fround((table[out[at + i] as number] as number) * scale) + offset;
    }
  }

  /** Returns all values of a small source. */
  #table(source: RowSource): Float32Array {
    const known = this.#tables.get(source);
    if (known) return known;
    const values = new Float32Array(source.rows * source.columns);
    this.#readRows(source, 0, source.rows, values, 0);
    this.#tables.set(source, values);
    this.#tableFloats += values.length;
    for (const [oldest, { length }] of this.#tables) {
      if (this.#tableFloats <= maxTables || oldest === source) break;
      this.#tables.delete(oldest);
      this.#tableFloats -= length;
    }
    return values;
  }

  #zeroWords(source: StoredRows): Uint32Array {
    const words = new Uint32Array(source.rows * source.columns);
    this.#words(source, 0, words);
    return words;
  }

  /** Reads 32-bit words as they are. */
  #words({ file, offset }: StoredRows, first: number, into: Uint32Array): void {
    this.#files.readBytes(file, offset + 4 * first, new Uint8Array(into.buffer));
  }
}

function placeIn(layout: PackedIntRows["layout"], row: number, perWord: number): number {
  return layout === "awq" ? (awqOrder[row % perWord] as number) : row % perWord;
}
