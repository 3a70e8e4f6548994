// Weight loading: reads one thread's rows of the weights from the model's files into its memory. It reads 256 KiB at a
// time into the scratch memory of passes, and packs the weights from there. Therefore no weight is in memory twice.
import { closeSync, openSync, readSync } from "node:fs";
import { ServerError } from "../../../runtime/errors.ts";
import { accessFailure } from "../../files/access-failure.ts";
import type { TensorInfo, TensorTable } from "../../files/gguf/tensors.ts";
import { frequencyFactorNames } from "../graph/graph.ts";
import { rowBytes } from "../graph/graph-tensors.ts";
import type { FrequencyFactors } from "../graph/ropes.ts";
import { threadPieces, vectors } from "../graph/weight-lists.ts";
import { type DividedGraph, type PartitionPlan, type Piece, rowGrain } from "../plan/partition-plan.ts";
import type { ThreadMemory } from "../threads/thread-memory.ts";
import type { KernelExports } from "./kernel-exports.ts";

const f32 = 0;
/** Names of clamp ranges, which may be infinite. */
const clampRange = /\.(?:input|output)_(?:min|max)$/;
/**
 * Maximum size in bytes of a tensor of frequency factors. Such a tensor has one factor per rotated pair, and a head has
 * only a few hundred floats.
 */
const longestFactorBytes = 16_384;

/**
 * Loads the weights of thread `index` into its memory. Throws model_file_invalid if a file ends early or contains a NaN
 * or an infinity.
 */
export async function loadWeights(
  plan: PartitionPlan,
  divided: DividedGraph,
  index: number,
  memory: ThreadMemory,
  kernels: KernelExports,
  bytes: Uint8Array,
  onBytes: (bytes: number) => void,
): Promise<void> {
  const reader = new Reader(plan.files, bytes, onBytes);
  try {
    const loaded = new Set<string>();
    for (const piece of threadPieces(divided, index)) {
      const { name, count } = piece.matrix;
      for (let i = 0; i < (count ?? 1) && !loaded.has(name); i++) {
        packPiece(reader, piece, i, memory, kernels);
        await nextTurn();
      }
      const { bias, scale } = piece.matrix;
      if (bias) loadRowValues(reader, piece, bias, memory.biases.get(name) as number);
      if (scale) loadRowValues(reader, piece, scale, memory.scales.get(name) as number);
      loaded.add(name);
    }
    for (const tensor of vectors(plan)) {
      const count = tensor.bytes / Float32Array.BYTES_PER_ELEMENT;
      loadFloats(reader, tensor, 0, memory.weights.get(tensor.name) as number, count);
    }
  } finally {
    reader.close();
  }
}

/**
 * Packs a piece: the rows of one matrix that this thread computes. If the tensor is a stack of matrices (one per
 * expert), `index` selects the matrix.
 */
function packPiece(reader: Reader, piece: Piece, index: number, memory: ThreadMemory, kernels: KernelExports): void {
  if (piece.matrix.filled) {
    packFilled(reader, piece, piece.matrix.filled, memory, kernels);
    return;
  }
  const { name, tensor, columns, rows } = piece.matrix;
  const bytes = rowBytes(tensor);
  const packedBytes = kernels.matrixBytes(tensor.type, piece.padded, columns) >>> 0;
  const target = (memory.weights.get(name) as number) + index * packedBytes;
  const firstRow = piece.matrix.firstRow + index * rows + piece.firstRow;
  const step = Math.max(Math.floor(memory.stagingBytes / bytes / rowGrain) * rowGrain, rowGrain);
  for (let done = 0; done < piece.rows; done += step) {
    const count = Math.min(step, piece.rows - done);
    reader.read(tensor, (firstRow + done) * bytes, memory.staging, count * bytes);
    const bad = kernels.packRows(tensor.type, memory.staging, target, done, count, piece.padded, columns);
    if (bad !== 0) throw notFinite(reader, tensor, firstRow + done + bad - 1);
  }
}

/** Packs the rows of a padded or transposed matrix. Padding rows and columns stay 0. */
function packFilled(
  reader: Reader,
  { matrix, firstRow, rows, padded }: Piece,
  filled: NonNullable<Piece["matrix"]["filled"]>,
  memory: ThreadMemory,
  kernels: KernelExports,
): void {
  const { name, tensor, columns, transposed = false } = matrix;
  const target = memory.weights.get(name) as number;
  const size = tensor.bytes / (filled.rows * filled.columns);
  const whole = transposed ? reader.bytesOf(tensor) : null;
  const end = Math.min(firstRow + rows, filled.rows);
  const step = Math.max(Math.floor(memory.stagingBytes / (columns * size) / rowGrain) * rowGrain, rowGrain);
  for (let first = firstRow; first < end; first += step) {
    const count = Math.min(step, end - first);
    reader.zero(memory.staging, count * columns * size);
    for (let row = first; row < first + count; row++) {
      const at = memory.staging + (row - first) * columns * size;
      if (whole === null) reader.read(tensor, row * filled.columns * size, at, filled.columns * size);
      else
        for (let i = 0; i < filled.columns; i++)
          reader.copy(whole, (i * filled.rows + row) * size, at + i * size, size);
    }
    const bad = kernels.packRows(tensor.type, memory.staging, target, first - firstRow, count, padded, columns);
    if (bad !== 0) throw notFinite(reader, tensor, first + bad - 1);
  }
}

/**
 * Loads one value (a bias or a scale) for each row of a piece: the rows of a matrix that this thread computes. Padding
 * rows keep the value 0 of new memory.
 */
function loadRowValues(reader: Reader, { matrix, firstRow, rows }: Piece, values: TensorInfo, target: number): void {
  if (matrix.filled) {
    const count = Math.min(rows, matrix.filled.rows - firstRow);
    if (count > 0) loadFloats(reader, values, firstRow * Float32Array.BYTES_PER_ELEMENT, target, count);
    return;
  }
  const isOwn = values.shape[0] === matrix.rows;
  const from = ((isOwn ? 0 : matrix.firstRow) + firstRow) * Float32Array.BYTES_PER_ELEMENT;
  loadFloats(reader, values, from, target, rows);
}

function loadFloats(reader: Reader, tensor: TensorInfo, from: number, target: number, count: number): void {
  const bytes = count * Float32Array.BYTES_PER_ELEMENT;
  reader.read(tensor, from, target, bytes);
  const isValid = clampRange.test(tensor.name) ? (value: number) => !Number.isNaN(value) : Number.isFinite;
  if (!reader.floats(target, bytes).every(isValid)) throw notFinite(reader, tensor, 0);
}

/**
 * Reads parts of tensors. The reads are synchronous, because starting an asynchronous read takes as long as reading a
 * small tensor.
 */
class Reader {
  /** File descriptors by file number. A file is opened when it is first read. */
  readonly #files = new Map<number, number>();
  readonly #paths: readonly string[];
  readonly #bytes: Uint8Array;
  readonly #onBytes: (bytes: number) => void;

  constructor(paths: readonly string[], bytes: Uint8Array, onBytes: (bytes: number) => void) {
    this.#paths = paths;
    this.#bytes = bytes;
    this.#onBytes = onBytes;
  }

  close(): void {
    for (const descriptor of this.#files.values()) closeSync(descriptor);
  }

  /** Reads `count` bytes of a tensor, from byte `from` on, to an address. */
  read({ file, offset, name }: TensorInfo, from: number, address: number, count: number): void {
    const descriptor = this.#descriptor(file);
    let done = 0;
    while (done < count) {
      const bytesRead = readSync(descriptor, this.#bytes, address + done, count - done, offset + from + done);
      if (bytesRead === 0) throw endsInside(this.path(file), name);
      done += bytesRead;
    }
    this.#onBytes(count);
  }

  #descriptor(file: number): number {
    let descriptor = this.#files.get(file);
    if (descriptor === undefined) {
      try {
        descriptor = openSync(this.path(file), "r");
      } catch (cause) {
        const { code } = cause as NodeJS.ErrnoException;
        throw accessFailure(cause, `${this.path(file)} cannot be opened (${code})`, "check its permissions");
      }
      this.#files.set(file, descriptor);
    }
    return descriptor;
  }

  /** Reads a whole tensor into a new array. */
  bytesOf(tensor: TensorInfo): Uint8Array {
    const whole = new Reader(this.#paths, new Uint8Array(tensor.bytes), () => undefined);
    try {
      whole.read(tensor, 0, 0, tensor.bytes);
    } finally {
      whole.close();
    }
    return whole.#bytes;
  }

  zero(address: number, count: number): void {
    this.#bytes.fill(0, address, address + count);
  }

  copy(source: Uint8Array, from: number, address: number, count: number): void {
    for (let i = 0; i < count; i++) this.#bytes[address + i] = source[from + i] as number;
  }

  floats(address: number, bytes: number): Float32Array {
    return new Float32Array(this.#bytes.buffer, address, bytes / Float32Array.BYTES_PER_ELEMENT);
  }

  path(file: number): string {
    return this.#paths[file] as string;
  }
}

function endsInside(path: string, tensor: string): ServerError {
  const message = `${path} ends inside tensor "${tensor}"; it is an incomplete copy, fetch it again`;
  return new ServerError("model_file_invalid", message);
}

function notFinite(reader: Reader, tensor: TensorInfo, row: number): ServerError {
  return new ServerError(
    "model_file_invalid",
    `${reader.path(tensor.file)} holds a NaN or an infinity in row ${row} of tensor "${tensor.name}"; the copy is damaged or ` +
      "its conversion failed: fetch it again",
  );
}

/** Reads the divisors of the rope frequencies; each is null if the file does not have it. */
export function readFrequencyFactors(table: TensorTable): FrequencyFactors {
  const { always, short, long } = frequencyFactorNames;
  return { always: readFactors(table, always), short: readFactors(table, short), long: readFactors(table, long) };
}

function readFactors({ files, tensors }: TensorTable, name: string): Float32Array | null {
  const tensor = tensors.get(name);
  if (!tensor) return null;
  const path = files[tensor.file] as string;
  const isList = tensor.type === f32 && tensor.shape.slice(1).every((length) => length === 1);
  if (!isList || tensor.bytes > longestFactorBytes) {
    const problem = `has "${tensor.name}" as type ${tensor.type}, ${tensor.shape.join(" x ")}; expected a short list of F32`;
    throw new ServerError("model_file_invalid", `${path} ${problem}`);
  }
  const factors = new Float32Array(tensor.bytes / Float32Array.BYTES_PER_ELEMENT);
  const reader = new Reader(files, new Uint8Array(factors.buffer), () => undefined);
  try {
    reader.read(tensor, 0, 0, tensor.bytes);
  } finally {
    reader.close();
  }
  return factors;
}

/** Yields to the event loop. Called between tensors, because loading a large model takes seconds. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
