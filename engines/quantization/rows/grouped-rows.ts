// Grouped rows: decodes rows in the number types of GGUF and of UQFF (AFQ, HQQ, F8Q8) to F32.
import type { AffineRows, BlockRows, InterleavedRows, ScaledByteRows } from "../../files/checkpoint/row-source.ts";
import { tensorByteLength } from "../../files/gguf/writer.ts";
import { BlockCodec } from "../codec/block-codec.ts";
import type { StoredFiles } from "./stored-files.ts";
import { decoderOf } from "./stored-values.ts";
import type { ReadRows, Tables } from "./tables.ts";

type Grouped = BlockRows | AffineRows | InterleavedRows | ScaledByteRows;

/** Maximum number of bytes or words read at once, unless one row has more. */
const maxRead = 2 ** 20;
const wordBits = 32;
/** F8Q8: values and bytes of a block, and the divisor of its scale, as found in files of mistral.rs 0.9.5. */
const scaledBlock = { length: 32, bytes: 33, divisor: 416 } as const;

export class GroupedRows {
  readonly #files: StoredFiles;
  readonly #readRows: ReadRows;
  readonly #tables: Tables;
  #codec: BlockCodec | undefined;

  constructor(files: StoredFiles, readRows: ReadRows, tables: Tables) {
    this.#files = files;
    this.#readRows = readRows;
    this.#tables = tables;
  }

  read(source: Grouped, first: number, count: number, out: Float32Array, at: number): void {
    switch (source.kind) {
      case "blocks":
        this.#blocks(source, first, count, out, at);
        break;
      case "affine":
        this.#affine(source, first, count, out, at);
        break;
      case "interleaved":
        this.#interleaved(source, first, count, out, at);
        break;
      case "scaledBytes":
        this.#scaledBytes(source, first, count, out, at);
        break;
    }
  }

  #blocks(
    { type, file, offset, columns }: BlockRows,
    first: number,
    count: number,
    out: Float32Array,
    at: number,
  ): void {
    this.#codec ??= BlockCodec.create();
    const rowBytes = tensorByteLength(type, [columns]);
    const most = Math.max(1, Math.min(count, Math.floor(maxRead / rowBytes)));
    const bytes = new Uint8Array(most * rowBytes);
    for (let done = 0; done < count; done += most) {
      const rows = Math.min(most, count - done);
      const read = bytes.subarray(0, rows * rowBytes);
      this.#files.readBytes(file, offset + (first + done) * rowBytes, read);
      const start = at + done * columns;
      this.#codec.decodeRows(type, read, columns, out.subarray(start, start + rows * columns));
    }
  }

  #affine(source: AffineRows, first: number, count: number, out: Float32Array, at: number): void {
    const { bits, words, columns, groupSize } = source;
    const groups = columns / groupSize;
    const mask = 2 ** bits - 1;
    const row = new Uint32Array(words.columns);
    const [scales, offsets] = [new Float32Array(groups), new Float32Array(groups)];
    for (let i = 0; i < count; i++) {
      this.#files.readBytes(words.file, words.offset + (first + i) * row.byteLength, new Uint8Array(row.buffer));
      this.#readRows(source.scales, first + i, 1, scales, 0);
      this.#readRows(source.offsets, first + i, 1, offsets, 0);
      for (let column = 0; column < columns; column++) {
        const bit = column * bits;
        const [word, shift] = [Math.floor(bit / wordBits), bit % wordBits];
        let code = (row[word] as number) >>> shift;
        if (shift + bits > wordBits) code |= (row[word + 1] as number) << (wordBits - shift);
        const group = Math.floor(column / groupSize);
        out[at + i * columns + column] = (code & mask) * (scales[group] as number) + (offsets[group] as number);
      }
    }
  }

  #interleaved(source: InterleavedRows, first: number, count: number, out: Float32Array, at: number): void {
    const { bits, codes, rows, columns } = source;
    const [scales, zeros] = [this.#tables.of(source.scales), this.#tables.of(source.zeros)];
    const [start, end] = [first * columns, (first + count) * columns];
    // With 4 bits, a byte holds two codes: values before index `half` are in the high nibbles, all later values in the low nibbles.
    const half = bits === 4 ? (rows * columns) / 2 : rows * columns;
    const put = (from: number, to: number, byte: number, shift: number) => {
      if (from >= to) return;
      const bytes = new Uint8Array(to - from);
      this.#files.readBytes(codes.file, codes.offset + byte, bytes);
      const mask = 2 ** bits - 1;
      for (let i = 0; i < bytes.length; i++) {
        const place = (from + i) % scales.length;
        const code = ((bytes[i] as number) >> shift) & mask;
        out[at + from - start + i] = (code - (zeros[place] as number)) * (scales[place] as number);
      }
    };
    put(start, Math.min(end, half), start, bits === 4 ? 4 : 0);
    put(Math.max(start, half), end, Math.max(start, half) - half, 0);
  }

  #scaledBytes({ blocks, columns }: ScaledByteRows, first: number, count: number, out: Float32Array, at: number): void {
    const { length, bytes, divisor } = scaledBlock;
    const rowBytes = (columns / length) * bytes;
    const row = new DataView(new ArrayBuffer(rowBytes));
    const decode = decoderOf("F8_E4M3");
    const scale = new Float32Array(1);
    for (let i = 0; i < count; i++) {
      this.#files.readBytes(blocks.file, blocks.offset + (first + i) * rowBytes, new Uint8Array(row.buffer));
      for (let block = 0; block < columns / length; block++) {
        decode(new DataView(row.buffer, block * bytes, 1), 1, scale, 0);
        const factor = (scale[0] as number) / divisor;
        const start = at + i * columns + block * length;
        for (let j = 0; j < length; j++) out[start + j] = row.getInt8(block * bytes + 1 + j) * factor;
      }
    }
  }
}
