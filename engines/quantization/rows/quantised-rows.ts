// Quantised rows: decodes the rows of quantised checkpoints (GPTQ, AWQ, FP8, MXFP4, bitsandbytes) to F32. tables.ts caches scales and zero
// points.
import type {
  BlockScaledRows,
  CodebookRows,
  LookedUpRows,
  Mxfp4Rows,
  PackedIntRows,
} from "../../files/checkpoint/row-source.ts";
import { PackedInts } from "./packed-ints.ts";
import type { StoredFiles } from "./stored-files.ts";
import type { ReadRows, Tables } from "./tables.ts";

type Quantised = BlockScaledRows | PackedIntRows | Mxfp4Rows | CodebookRows | LookedUpRows;

const mxfp4Values = Float32Array.of(0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6);
const mxfp4Block = 32;
/** Maximum number of MXFP4 values decoded at once. */
const maxCodes = 2 ** 20;

export class QuantisedRows {
  readonly #files: StoredFiles;
  readonly #readRows: ReadRows;
  readonly #packedInts: PackedInts;
  readonly #tables: Tables;

  constructor(files: StoredFiles, readRows: ReadRows, tables: Tables) {
    this.#files = files;
    this.#readRows = readRows;
    this.#tables = tables;
    this.#packedInts = new PackedInts(files, (source) => tables.of(source));
  }

  read(source: Quantised, first: number, count: number, out: Float32Array, at: number): void {
    switch (source.kind) {
      case "blockScaled":
        this.#blockScaled(source, first, count, out, at);
        break;
      case "packedInts":
        this.#packedInts.read(source, first, count, out, at);
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
    const scales = this.#tables.of(source.scales);
    const matrixBlocks = Math.ceil(matrixRows / blockRows);
    for (let i = 0; i < count; i++) {
      const row = first + i;
      const block = Math.floor(row / matrixRows) * matrixBlocks + Math.floor((row % matrixRows) / blockRows);
      const start = at + i * columns;
      for (let column = 0; column < columns; column += blockColumns) {
        const scale = scales[block * source.scales.columns + column / blockColumns] as number;
        const end = start + Math.min(columns, column + blockColumns);
        for (let value = start + column; value < end; value++) out[value] = (out[value] as number) * scale;
      }
    }
  }

  #mxfp4(source: Mxfp4Rows, first: number, count: number, out: Float32Array, at: number): void {
    const { columns } = source;
    const most = Math.max(1, Math.min(count, Math.floor(maxCodes / columns)));
    const codes = new Float32Array((most * columns) / 2);
    const scales = new Float32Array((most * columns) / mxfp4Block);
    for (let done = 0; done < count; done += most) {
      const rows = Math.min(most, count - done);
      this.#readRows(source.codes, first + done, rows, codes, 0);
      this.#readRows(source.scales, first + done, rows, scales, 0);
      const target = at + done * columns;
      for (let block = 0; block < (rows * columns) / mxfp4Block; block++) {
        const scale = 2 ** ((scales[block] as number) - 127);
        for (let i = 0; i < mxfp4Block / 2; i++) {
          const code = codes[(block * mxfp4Block) / 2 + i] as number;
          const value = target + block * mxfp4Block + 2 * i;
          out[value] = (mxfp4Values[code & 15] as number) * scale;
          out[value + 1] = (mxfp4Values[code >> 4] as number) * scale;
        }
      }
    }
  }

  #codebook(source: CodebookRows, first: number, count: number, out: Float32Array, at: number): void {
    const { columns, blockLength } = source;
    const table = this.#tables.of(source.table);
    const scales = this.#tables.of(source.scales);
    const start = first * columns;
    const length = count * columns;
    // A byte holds two codes, so a row may begin with the second code of a byte.
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
    const table = this.#tables.of(source.table);
    const scales = this.#tables.of(source.scales);
    this.#readRows(source.codes, first, count, out, at);
    for (let i = 0; i < count * columns; i++) {
      const scale = scales[Math.floor((first * columns + i) / blockLength)] as number;
      // bitsandbytes rounds the product of table value and scale to F32 before it adds the offset.
      out[at + i] = Math.fround((table[out[at + i] as number] as number) * scale) + offset;
    }
  }
}
