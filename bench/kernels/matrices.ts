// Matrices and activations of the kernel benchmark. One thread's memory is filled with matrices of one type, so that each
// product reads weights that are in no CPU cache.
import { tensorTypes } from "../../engines/files/gguf/tensors.ts";
import type { KernelExports } from "../../engines/wasm/load/kernel-exports.ts";
import { createMemory, instantiateKernels, type KernelModule } from "../../engines/wasm/load/kernel-module.ts";

const pageBytes = 65_536;
/** Address of the first matrix. The kernels' constants are below it. */
const matricesAt = pageBytes;

/** Byte offsets of the 16-bit floats in a block, by tensor type. Types not listed have one float, at offset 0. */
const floatsAt: Readonly<Record<string, readonly number[]>> = {
  Q4_1: [0, 2],
  Q5_1: [0, 2],
  Q2_K: [80, 82],
  Q3_K: [108],
  Q4_K: [0, 2],
  Q5_K: [0, 2],
  Q6_K: [208],
  MXFP4: [],
};
/** Biased exponent of the MXFP4 scales: 2^(124 - 127) = 1/8. */
const smallExponent = 124;

export interface MatrixShape {
  /** Number of rows, a multiple of 16. */
  readonly rows: number;
  /** Number of columns, a multiple of the type's block length. */
  readonly k: number;
}

export class Matrices {
  readonly count: number;
  /** Size of one packed matrix, in bytes. */
  readonly bytes: number;
  readonly kernels: KernelExports;
  readonly #type: number;
  readonly #shape: MatrixShape;
  readonly #xAt: number;
  readonly #preparedAt: number;
  readonly #outAt: number;
  #next = 0;

  /** Creates matrices until they fill `workingBytes`, and allocates `mostRows` activations. */
  constructor(module: KernelModule, type: number, shape: MatrixShape, workingBytes: number, mostRows: number) {
    const { rows, k } = shape;
    const sizes = instantiateKernels(module, createMemory(1));
    this.#type = type;
    this.#shape = shape;
    this.bytes = sizes.matrixBytes(type, rows, k);
    this.count = Math.ceil(workingBytes / this.bytes);
    this.#xAt = matricesAt + this.count * this.bytes;
    this.#preparedAt = this.#xAt + 4 * mostRows * k;
    this.#outAt = this.#preparedAt + sizes.activationBytes(type, mostRows, k);
    const sourceAt = this.#outAt + 4 * mostRows * rows;
    const source = randomRows(type, rows * k);
    const memory = createMemory(Math.ceil((sourceAt + source.length) / pageBytes));
    this.kernels = instantiateKernels(module, memory);
    const bytes = new Uint8Array(memory.buffer);
    bytes.set(source, sourceAt);
    const fault = this.kernels.packRows(type, sourceAt, matricesAt, 0, rows, rows, k);
    if (fault !== 0) throw new Error(`packing random weights of type ${type} failed in row ${fault - 1}`);
    for (let i = 1; i < this.count; i++) {
      bytes.copyWithin(matricesAt + i * this.bytes, matricesAt, matricesAt + this.bytes);
    }
    const x = new Float32Array(memory.buffer, this.#xAt, mostRows * k);
    for (let i = 0; i < x.length; i++) x[i] = Math.sin(i);
  }

  /** Prepares `n` activation rows for the products. */
  prepare(n: number): void {
    const { k } = this.#shape;
    this.kernels.prepare(this.#type, this.#xAt, k, n, k, this.#preparedAt);
  }

  /** Multiplies the next matrix by the prepared rows. */
  multiply(n: number): void {
    const { rows, k } = this.#shape;
    const matrix = matricesAt + this.#next * this.bytes;
    this.#next = (this.#next + 1) % this.count;
    this.kernels.multiply(this.#type, matrix, rows, k, this.#preparedAt, n, this.#outAt, rows);
  }

  readAll(): void {
    this.kernels.probeReadAll(matricesAt, this.count * this.bytes);
  }
}

/** Returns random weights in GGUF format. Every 16-bit float in them is finite and not small. */
function randomRows(type: number, elements: number): Uint8Array {
  const { name, blockLength, blockBytes } = tensorTypes.get(type) ?? { name: "unknown", blockLength: 1, blockBytes: 1 };
  if (name === "F32") return new Uint8Array(Float32Array.from({ length: elements }, (_, i) => Math.sin(i)).buffer);
  const bytes = new Uint8Array((elements / blockLength) * blockBytes);
  let state = 1;
  for (let i = 0; i < bytes.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[i] = state >>> 24;
  }
  // Sets the high byte of each float. It holds the sign and the exponent; for BF16, the last bit of the exponent is in the
  // other byte and stays random. All values are at least 0.125.
  const highByte = name === "BF16" ? 0x3e : 0x30;
  for (let block = 0; block < bytes.length; block += blockBytes) {
    for (const at of floatsAt[name] ?? [0]) bytes[block + at + 1] = highByte;
    if (name === "MXFP4") bytes[block] = smallExponent;
  }
  return bytes;
}
