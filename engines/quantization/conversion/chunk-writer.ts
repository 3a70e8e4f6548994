// Chunk writer: converts rows of a tensor and writes them at their position in the target file. Runs in the worker threads of a conversion.
// The size of buffers is limited, however large a tensor is.
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { ServerError } from "../../../runtime/errors.ts";
import { tensorTypes } from "../../files/gguf/tensors.ts";
import { BlockCodec } from "../codec/block-codec.ts";
import { type ByteRange, copyable } from "../rows/copyable.ts";
import { createMxfp4Reader, isMxfp4, type Mxfp4Reader } from "../rows/packed-mxfp4.ts";
import { createRowReader, type RowReader } from "../rows/rows.ts";
import type { Chunk, ConversionTask, TargetTensor } from "./messages.ts";

/** Number of bytes copied per read. */
const copyBytes = 1024 * 1024;
const mxfp4 = 39;

export class ChunkWriter {
  readonly #task: ConversionTask;
  readonly #sources = new Map<number, number>();
  readonly #target: number;
  readonly #rows: RowReader;
  readonly #blocks: Mxfp4Reader;
  readonly #codec = BlockCodec.create();
  #floats = new Float32Array(0);
  #bytes = new Uint8Array(0);

  /** Opens the files. Throws `model_file_invalid` if one cannot be read. */
  constructor(task: ConversionTask) {
    this.#task = task;
    this.#target = openSync(task.target, "r+");
    this.#rows = createRowReader(task.files);
    this.#blocks = createMxfp4Reader(task.files);
  }

  /** Converts and writes the rows of a chunk. Throws `model_file_invalid` if the source ends early or has a value that is not finite. */
  write({ tensor: index, firstRow, rows }: Chunk): void {
    const tensor = this.#task.tensors[index] as TargetTensor;
    const columns = tensor.shape[0] ?? 1;
    const rowBytes = bytesOf(tensor.targetType, columns);
    const position = tensor.offset + firstRow * rowBytes;
    const ranges = copyable(tensor.values, tensor.targetType);
    // A tensor that is copied is a single chunk.
    if (ranges !== null) {
      this.#copy(ranges, position, tensor);
      return;
    }
    this.#reserve(rows * columns, rows * rowBytes);
    const floats = this.#floats.subarray(0, rows * columns);
    const bytes = this.#bytes.subarray(0, rows * rowBytes);
    const { values, targetType } = tensor;
    if (targetType === mxfp4 && isMxfp4(values)) {
      this.#blocks.read(values, firstRow, rows, bytes);
    } else {
      this.#rows.read(values, firstRow, rows, floats);
      this.#encode(tensor, firstRow, floats, bytes);
    }
    this.#put(bytes, position);
  }

  close(): void {
    this.#rows.close();
    this.#blocks.close();
    for (const file of [...this.#sources.values(), this.#target]) closeSync(file);
  }

  /** Encodes rows. Each matrix of the tensor has its own importance. */
  #encode(tensor: TargetTensor, firstRow: number, floats: Float32Array, bytes: Uint8Array): void {
    const { name, shape, targetType, importance } = tensor;
    const [columns = 1, matrixRows = 1] = shape;
    const rowBytes = bytesOf(targetType, columns);
    const rows = floats.length / columns;
    try {
      for (let done = 0; done < rows; ) {
        const matrix = Math.floor((firstRow + done) / matrixRows);
        const count = importance ? Math.min(rows - done, (matrix + 1) * matrixRows - firstRow - done) : rows;
        const weights = importance?.subarray(matrix * columns, (matrix + 1) * columns) ?? null;
        const from = floats.subarray(done * columns, (done + count) * columns);
        this.#codec.encodeRows(
          targetType,
          from,
          columns,
          weights,
          bytes.subarray(done * rowBytes, (done + count) * rowBytes),
        );
        done += count;
      }
    } catch (cause) {
      if (!(cause instanceof ServerError)) throw cause;
      throw new ServerError(cause.code, `tensor "${name}", from row ${firstRow}: ${cause.message}`, { cause });
    }
  }

  #copy(ranges: readonly ByteRange[], position: number, { name }: TargetTensor): void {
    this.#reserve(0, copyBytes);
    let to = position;
    for (const { file, offset, bytes: length } of ranges) {
      for (let done = 0; done < length; ) {
        const part = this.#bytes.subarray(0, Math.min(copyBytes, length - done));
        this.#get(file, offset + done, part, name);
        this.#put(part, to);
        to += part.length;
        done += part.length;
      }
    }
  }

  #get(file: number, position: number, into: Uint8Array, tensor: string): void {
    for (let done = 0; done < into.length; ) {
      const read = readSync(this.#sourceOf(file), into, done, into.length - done, position + done);
      if (read === 0) {
        const path = this.#task.files[file];
        throw new ServerError("model_file_invalid", `${path} ends in the middle of tensor "${tensor}"; copy it again`);
      }
      done += read;
    }
  }

  /** Returns the descriptor of a source file. A file is opened when it is first read, because a model may have many files. */
  #sourceOf(file: number): number {
    const known = this.#sources.get(file);
    if (known !== undefined) return known;
    const opened = openSync(this.#task.files[file] as string, "r");
    this.#sources.set(file, opened);
    return opened;
  }

  #put(bytes: Uint8Array, position: number): void {
    try {
      for (let done = 0; done < bytes.length; ) {
        done += writeSync(this.#target, bytes, done, bytes.length - done, position + done);
      }
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== "ENOSPC") throw cause;
      const message = `the disk of ${this.#task.target} is full; make room and start again: what is written is kept`;
      throw new ServerError("config_invalid", message, { cause });
    }
  }

  #reserve(floats: number, bytes: number): void {
    if (this.#floats.length < floats) this.#floats = new Float32Array(floats);
    if (this.#bytes.length < bytes) this.#bytes = new Uint8Array(bytes);
  }
}

/** Whether a tensor's bytes are copied without a conversion. */
export function isCopied({ values, targetType }: TargetTensor): boolean {
  return copyable(values, targetType) !== null;
}

/** Returns the number of rows of all matrices of a tensor. */
export function rowsOf({ shape }: Pick<TargetTensor, "shape">): number {
  return shape.slice(1).reduce((product, length) => product * length, 1);
}

function bytesOf(type: number, columns: number): number {
  const { blockLength, blockBytes } = tensorTypes.get(type) ?? { blockLength: 1, blockBytes: 0 };
  return (columns / blockLength) * blockBytes;
}
