// Packed integers: decodes the rows of GPTQ, AWQ and compressed-tensors to F32. Scales and zero points are expanded for the requested rows
// before the integers are unpacked.
import type { PackedIntRows, RowSource, StoredRows } from "../../files/checkpoint/row-source.ts";
import type { StoredFiles } from "./stored-files.ts";

/** Position in a 32-bit word of AWQ of each of the eight adjacent output features that the word holds. */
const awqOrder = [0, 4, 1, 5, 2, 6, 3, 7];
/**
 * Scales and zero points of some rows, stored group by group: one scale and one zero point for each row and each group of columns.
 * `groupOf`: the index of each column's group.
 */
interface RowGroups {
  readonly groupOf: Int32Array;
  readonly scales: Float32Array;
  readonly points: Float32Array;
}

export class PackedInts {
  readonly #files: StoredFiles;
  readonly #table: (source: RowSource) => Float32Array;

  /** `table`: returns all values of a small source. */
  constructor(files: StoredFiles, table: (source: RowSource) => Float32Array) {
    this.#files = files;
    this.#table = table;
  }

  read(source: PackedIntRows, first: number, count: number, out: Float32Array, at: number): void {
    const groups = this.#groupsOf(source, first, count);
    if (source.layout === "gptq") this.#columns(source, groups, first, count, out, at);
    else if (source.layout === "awq") this.#columnWords(source, groups, first, count, out, at);
    else this.#rows(source, groups, first, count, out, at);
  }

  /** Decodes the layout gptq: word i of a row of words has several adjacent columns of row i of the matrix. */
  #columns(
    { words: source, bits, columns }: PackedIntRows,
    { groupOf, scales, points }: RowGroups,
    first: number,
    count: number,
    out: Float32Array,
    at: number,
  ): void {
    const perWord = 32 / bits;
    const mask = 2 ** bits - 1;
    const words = new Uint32Array(count);
    for (let wordRow = 0; wordRow < source.rows; wordRow++) {
      this.#words(source, wordRow * source.columns + first, words);
      for (let i = 0; i < count; i++) {
        const word = words[i] as number;
        const target = at + i * columns + wordRow * perWord;
        for (let k = 0; k < perWord; k++) {
          const group = (groupOf[wordRow * perWord + k] as number) * count + i;
          const value = (word >>> (bits * k)) & mask;
          out[target + k] = (value - (points[group] as number)) * (scales[group] as number);
        }
      }
    }
  }

  /** Decodes the layout awq: a row of words has one column of the matrix, and each word has that column of several adjacent rows. */
  #columnWords(
    { words: source, bits, columns, layout }: PackedIntRows,
    { groupOf, scales, points }: RowGroups,
    first: number,
    count: number,
    out: Float32Array,
    at: number,
  ): void {
    const perWord = 32 / bits;
    const mask = 2 ** bits - 1;
    const from = Math.floor(first / perWord);
    const words = new Uint32Array(Math.ceil((first + count) / perWord) - from);
    const shifts = Int32Array.from({ length: perWord }, (_, row) => bits * placeIn(layout, row, perWord));
    for (let column = 0; column < columns; column++) {
      this.#words(source, column * source.columns + from, words);
      const group = (groupOf[column] as number) * count;
      for (let i = 0; i < count; i++) {
        const row = first + i;
        const word = words[Math.floor(row / perWord) - from] as number;
        const value = (word >>> (shifts[row % perWord] as number)) & mask;
        out[at + i * columns + column] = (value - (points[group + i] as number)) * (scales[group + i] as number);
      }
    }
  }

  /** Decodes the layout of compressed-tensors: a row of words has all columns of one row of the matrix. */
  #rows(
    { words: source, bits, columns }: PackedIntRows,
    { groupOf, scales, points }: RowGroups,
    first: number,
    count: number,
    out: Float32Array,
    at: number,
  ): void {
    const perWord = 32 / bits;
    const mask = 2 ** bits - 1;
    const words = new Uint32Array(source.columns);
    for (let i = 0; i < count; i++) {
      this.#words(source, (first + i) * source.columns, words);
      for (let column = 0; column < columns; column++) {
        const word = words[Math.floor(column / perWord)] as number;
        const group = (groupOf[column] as number) * count + i;
        const value = (word >>> (bits * (column % perWord))) & mask;
        out[at + i * columns + column] = (value - (points[group] as number)) * (scales[group] as number);
      }
    }
  }

  /** Returns scales and zero points of some rows, and the group of each column. */
  #groupsOf(source: PackedIntRows, first: number, count: number): RowGroups {
    const { layout, rows, columns, bits, zero, groupSize } = source;
    const isByRows = layout === "rows";
    const groupCount = isByRows ? source.scales.columns : source.scales.rows;
    const ordered = source.groups === null ? null : this.#table(source.groups);
    const groupOf = Int32Array.from({ length: columns }, (_, column) => {
      return Math.min(groupCount - 1, ordered?.[column] ?? Math.floor(column / groupSize));
    });
    const table = this.#table(source.scales);
    const zeros = source.zeros === null ? null : this.#zeroWords(source.zeros);
    const zeroColumns = source.zeros?.columns ?? 0;
    const perWord = 32 / bits;
    const scales = new Float32Array(groupCount * count);
    const points = new Float32Array(groupCount * count).fill(zero);
    for (let group = 0; group < groupCount; group++) {
      for (let i = 0; i < count; i++) {
        const row = first + i;
        const target = group * count + i;
        scales[target] = table[isByRows ? row * groupCount + group : group * rows + row] as number;
        if (zeros === null) continue;
        const wordRow = Math.floor(row / perWord);
        const word = zeros[isByRows ? wordRow * zeroColumns + group : group * zeroColumns + wordRow] as number;
        points[target] = ((word >>> (bits * placeIn(layout, row, perWord))) & (2 ** bits - 1)) + zero;
      }
    }
    return { groupOf, scales, points };
  }

  #zeroWords(source: StoredRows): Uint32Array {
    const words = new Uint32Array(source.rows * source.columns);
    this.#words(source, 0, words);
    return words;
  }

  /** Reads 32-bit words without unpacking them. */
  #words({ file, offset }: StoredRows, first: number, into: Uint32Array): void {
    this.#files.readBytes(file, offset + 4 * first, new Uint8Array(into.buffer));
  }
}

function placeIn(layout: PackedIntRows["layout"], row: number, perWord: number): number {
  return layout === "awq" ? (awqOrder[row % perWord] as number) : row % perWord;
}
