// BlockCodec: converts rows of floats to the number types of GGUF files, and back. The work is done by WASM SIMD kernels
// (kernels/, AssemblyScript). A codec belongs to one thread; each thread creates its own. Rows are copied into the
// kernels' memory in chunks, so the memory needed does not depend on the number of rows.
import { readFileSync } from "node:fs";
import { ServerError } from "../../../runtime/errors.ts";
import { tensorTypes } from "../../files/gguf/tensors.ts";
import { decodableTypes, encodableTypes, largestValue, usesImportance } from "./codec-types.ts";

/** The types of WebAssembly that are used here. Neither the es2023 library nor Node's types declare them. */
declare const WebAssembly: {
  validate(bytes: Uint8Array): boolean;
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: unknown };
};

/** Functions and memory that kernels/codec.ts exports. */
interface Exports {
  readonly memory: { readonly buffer: ArrayBuffer; grow(pages: number): number };
  base(): number;
  findInvalid(at: number, count: number, limit: number): number;
  encode(type: number, from: number, rows: number, columns: number, importance: number, out: number): void;
  decode(type: number, from: number, count: number, out: number): void;
}

/** Addresses of a chunk's buffers in the kernels' memory. `importance` is 0 if there is none. */
interface Buffers {
  readonly values: number;
  readonly importance: number;
  readonly bytes: number;
  readonly memory: ArrayBuffer;
}

const pageBytes = 65_536;
/** Number of values that are converted by one call of the kernels, unless one row has more. */
const chunkValues = 65_536;
/** Number of bytes after each buffer that the kernels may read and overwrite. */
const slackBytes = 32;
/** Maximum number of columns of a row. The buffers of a row of this length take 200 MB. */
const maxColumns = 2 ** 24;
/**
 * Smallest importance of a column, relative to the largest. It keeps the sums of a block above zero if all its columns
 * have no importance, and has no influence otherwise.
 */
const leastImportance = 2 ** -40;

let compiled: object | undefined;

export class BlockCodec {
  readonly #exports: Exports;

  /** Creates a codec with its own memory. Throws ServerError `unsupported` if WebAssembly has no SIMD. */
  static create(): BlockCodec {
    compiled ??= compile();
    return new BlockCodec(compiled);
  }

  private constructor(module: object) {
    this.#exports = new WebAssembly.Instance(module).exports as Exports;
  }

  /**
   * Encodes rows in a GGUF number type.
   *
   * `values`: rows of `columns` floats each. `columns`: a multiple of the type's block length. `importance`: null, or one
   * number >= 0 for each column, the weight of its squared errors (mean squared activations of an importance matrix);
   * only their ratios matter. `out`: exactly the bytes of the rows in the type. F32, F16, BF16 and Q8_0 ignore the
   * importance.
   *
   * Throws ServerError: `unsupported` if the type cannot be encoded, or not with this number of columns;
   * `model_file_invalid` if a value is not finite or too large for the type; `config_invalid` if an importance is
   * negative or not finite.
   */
  encodeRows(
    type: number,
    values: Float32Array,
    columns: number,
    importance: Float32Array | null,
    out: Uint8Array,
  ): void {
    const rowBytes = checkedRowBytes(type, columns, encodableTypes, "encoded");
    const rows = checkedRows(values, columns, out, rowBytes);
    const weights = importance && usesImportance(type) ? relativeImportance(importance, columns) : null;
    const chunkRows = rowsAtOnce(rows, columns);
    const buffers = this.#allocate(chunkRows * columns, weights?.length ?? 0, chunkRows * rowBytes);
    if (weights) new Float32Array(buffers.memory, buffers.importance, columns).set(weights);
    for (let row = 0; row < rows; row += chunkRows) {
      const count = Math.min(chunkRows, rows - row);
      const chunk = values.subarray(row * columns, (row + count) * columns);
      new Float32Array(buffers.memory, buffers.values, chunk.length).set(chunk);
      const invalid = this.#exports.findInvalid(buffers.values, chunk.length, largestValue(type));
      if (invalid >= 0) throw invalidValue(type, chunk[invalid] ?? 0, row * columns + invalid, columns);
      this.#exports.encode(type, buffers.values, count, columns, buffers.importance, buffers.bytes);
      out.set(new Uint8Array(buffers.memory, buffers.bytes, count * rowBytes), row * rowBytes);
    }
  }

  /**
   * Decodes rows of a GGUF number type. `bytes`: the rows in the type. `columns`: a multiple of the type's block length.
   * `out`: rows of `columns` floats each. The values are those that llama.cpp computes. They are not finite if the bytes
   * have such values or scales.
   *
   * Throws ServerError `unsupported` if the type cannot be decoded, or not with this number of columns.
   */
  decodeRows(type: number, bytes: Uint8Array, columns: number, out: Float32Array): void {
    const rowBytes = checkedRowBytes(type, columns, decodableTypes, "decoded");
    const rows = checkedRows(out, columns, bytes, rowBytes);
    const chunkRows = rowsAtOnce(rows, columns);
    const buffers = this.#allocate(chunkRows * columns, 0, chunkRows * rowBytes);
    for (let row = 0; row < rows; row += chunkRows) {
      const count = Math.min(chunkRows, rows - row);
      const chunk = bytes.subarray(row * rowBytes, (row + count) * rowBytes);
      new Uint8Array(buffers.memory, buffers.bytes, chunk.length).set(chunk);
      this.#exports.decode(type, buffers.bytes, count * columns, buffers.values);
      out.set(new Float32Array(buffers.memory, buffers.values, count * columns), row * columns);
    }
  }

  /** Places the buffers of a chunk, and grows the memory if needed. */
  #allocate(values: number, importance: number, bytes: number): Buffers {
    const at = this.#exports.base();
    const importanceAt = aligned(at + values * 4 + slackBytes);
    const bytesAt = aligned(importanceAt + importance * 4 + slackBytes);
    const { memory } = this.#exports;
    const missing = Math.ceil((bytesAt + bytes + slackBytes - memory.buffer.byteLength) / pageBytes);
    if (missing > 0) memory.grow(missing);
    return { values: at, importance: importance === 0 ? 0 : importanceAt, bytes: bytesAt, memory: memory.buffer };
  }
}

function aligned(address: number): number {
  return Math.ceil(address / 16) * 16;
}

function rowsAtOnce(rows: number, columns: number): number {
  return Math.max(1, Math.min(rows, Math.floor(chunkValues / columns)));
}

/** Returns the size of a row in bytes. Throws unless the type is one of `types` and accepts rows of this length. */
function checkedRowBytes(type: number, columns: number, types: ReadonlySet<number>, done: string): number {
  const found = tensorTypes.get(type);
  if (!found || !types.has(type)) {
    const names = [...types].map((one) => tensorTypes.get(one)?.name).join(", ");
    const message = `values of type ${found?.name ?? type} cannot be ${done}; expected one of ${names}`;
    throw new ServerError("unsupported", message);
  }
  const { name, blockLength, blockBytes } = found;
  if (columns > 0 && columns <= maxColumns && columns % blockLength === 0) return (columns / blockLength) * blockBytes;
  throw new ServerError(
    "unsupported",
    `rows of ${columns} values cannot be ${name}; expected a multiple of ${blockLength}, at most ${maxColumns}`,
  );
}

/** Returns the number of rows. Checks that floats and bytes have the same number of whole rows. */
function checkedRows(floats: Float32Array, columns: number, bytes: Uint8Array, rowBytes: number): number {
  const rows = floats.length / columns;
  if (Number.isInteger(rows) && bytes.length === rows * rowBytes) return rows;
  throw new ServerError(
    "internal",
    `expected whole rows of ${columns} floats and ${rowBytes} bytes each; got ${floats.length} floats and ${bytes.length} bytes`,
  );
}

/** Returns the importance of each column relative to the largest. All columns count the same if all are zero. */
function relativeImportance(importance: Float32Array, columns: number): Float32Array {
  if (importance.length !== columns) {
    const message = `expected an importance for each of ${columns} columns; got ${importance.length}`;
    throw new ServerError("config_invalid", message);
  }
  let largest = 0;
  for (let column = 0; column < columns; column++) {
    const one = importance[column] ?? Number.NaN;
    if (!(one >= 0 && one < Number.POSITIVE_INFINITY)) {
      const message = `the importance of column ${column} is ${one}; expected a finite number of at least 0`;
      throw new ServerError("config_invalid", message);
    }
    if (one > largest) largest = one;
  }
  const relative = new Float32Array(columns).fill(1);
  if (largest === 0) return relative;
  for (let column = 0; column < columns; column++) {
    relative[column] = Math.max((importance[column] ?? 0) / largest, leastImportance);
  }
  return relative;
}

function invalidValue(type: number, value: number, index: number, columns: number): ServerError {
  const where = `the value in row ${Math.floor(index / columns)}, column ${index % columns} is ${value}`;
  const name = tensorTypes.get(type)?.name;
  const expected = Number.isFinite(value)
    ? `magnitudes up to ${largestValue(type)} for type ${name}; choose a type of a larger range, such as BF16`
    : "finite numbers";
  return new ServerError("model_file_invalid", `${where}; expected ${expected}`);
}

/** Compiles the WebAssembly file in this folder. All codecs of a thread share the module. */
function compile(): object {
  const file = new URL("./block-codec.wasm", import.meta.url);
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (cause) {
    throw new ServerError("internal", `expected the codec's kernels at ${file.pathname}; run "npm run build"`, {
      cause,
    });
  }
  if (WebAssembly.validate(bytes)) return new WebAssembly.Module(bytes);
  throw new ServerError("unsupported", "quantisation needs WebAssembly SIMD, which this Node.js or CPU does not have");
}
