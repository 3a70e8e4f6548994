// Packed MXFP4: copies rows of a checkpoint in MXFP4 into blocks of GGUF's type MXFP4. The values do not change.
import type { Mxfp4Rows, RowSource } from "../../files/checkpoint/row-source.ts";
import { pickedRun } from "./copyable.ts";
import { StoredFiles } from "./stored-files.ts";

/** Values and bytes of a block: a scale, then 16 bytes of two codes each. */
const blockLength = 32;
const blockBytes = 17;

export interface Mxfp4Reader {
  /** Writes `count` rows as blocks to the start of `out`. */
  read(source: RowSource, firstRow: number, count: number, out: Uint8Array): void;
  close(): void;
}

/** Returns whether all rows of a source are stored as MXFP4. The source may reorder such rows or join several tensors. */
export function isMxfp4(source: RowSource): boolean {
  if (source.kind === "joined") return source.parts.every(isMxfp4);
  return source.kind === "mxfp4" || (source.kind === "picked" && isMxfp4(source.source));
}

export function createMxfp4Reader(paths: readonly string[]): Mxfp4Reader {
  const files = new StoredFiles(paths);
  return {
    read: (source, firstRow, count, out) => copyRows(files, source, firstRow, count, out),
    close: () => files.close(),
  };
}

function copyRows(files: StoredFiles, source: RowSource, first: number, count: number, out: Uint8Array): void {
  const rowBytes = (source.columns / blockLength) * blockBytes;
  if (source.kind === "mxfp4") {
    for (let i = 0; i < count; i++) copyRow(files, source, first + i, out.subarray(i * rowBytes, (i + 1) * rowBytes));
    return;
  }
  if (source.kind === "picked") {
    for (let done = 0; done < count; ) {
      const { from, run } = pickedRun(source, first + done);
      const rows = Math.min(run, count - done);
      copyRows(files, source.source, from, rows, out.subarray(done * rowBytes));
      done += rows;
    }
    return;
  }
  if (source.kind !== "joined") throw new RangeError(`rows of kind ${source.kind} are not MXFP4`);
  let start = 0;
  for (const part of source.parts) {
    const from = Math.max(first, start);
    const to = Math.min(first + count, start + part.rows);
    if (from < to) copyRows(files, part, from - start, to - from, out.subarray((from - first) * rowBytes));
    start += part.rows;
  }
}

function copyRow(files: StoredFiles, { codes, scales }: Mxfp4Rows, row: number, out: Uint8Array): void {
  if (codes.kind !== "stored" || scales.kind !== "stored") throw new RangeError("codes of MXFP4 are stored");
  const code = new Uint8Array(codes.columns);
  const scale = new Uint8Array(scales.columns);
  files.readBytes(codes.file, codes.offset + row * codes.columns, code);
  files.readBytes(scales.file, scales.offset + row * scales.columns, scale);
  for (let block = 0; block < scale.length; block++) {
    const at = block * blockBytes;
    out[at] = scale[block] as number;
    // Stored: values 2i and 2i + 1 in byte i. GGUF: values i and i + 16.
    const value = (i: number) => ((code[block * 16 + (i >> 1)] as number) >> (4 * (i % 2))) & 15;
    for (let i = 0; i < 16; i++) out[at + 1 + i] = value(i) | (value(i + 16) << 4);
  }
}
