// Collector of the llama engine: sums the squares of each column over the input rows of every matrix in the layers, as llama-imatrix does.
// For each tensor of a pass, llama.cpp first asks the collector's callback whether it wants the tensor, and calls it again once the tensor
// is computed. Both calls are on the thread of the pass. The weights must be in main memory.
import koffi from "koffi";
import { ServerError } from "../../../runtime/errors.ts";
import type { Calibration, InputSums } from "../../engine.ts";
import type { Pointer } from "../native/pointer.ts";
import type { NativeTensor, TensorReader } from "./tensor-abi.ts";

interface Sums {
  /**
   * Sums of squares, one number per column for each matrix of a stack. `rows` has the number of summed input rows for each matrix of the
   * stack.
   */
  readonly squares: Float64Array;
  readonly rows: Float64Array;
}

const f32 = 0;
/** Names of the matrices in layers. The output matrix is left out, as in llama-imatrix. */
const ofLayer = /^blk\.\d+\..+\.weight$/;
// The type is created only once, because koffi never frees a type.
const evalCallback = koffi.pointer(koffi.proto("bool", ["void*", "bool", "void*"]));

export class NativeCollector implements Calibration {
  /** Address of the callback that llama.cpp calls for each tensor; set in the parameters of a context. */
  readonly callback: Pointer;
  readonly #reader: TensorReader;
  #sums: Map<string, Sums> | null = null;
  #problem: unknown = null;

  constructor(reader: TensorReader) {
    this.#reader = reader;
    const see = (tensor: Pointer, isAsked: boolean) => this.#see(tensor, isAsked);
    this.callback = koffi.register(see, evalCallback);
  }

  get isCollecting(): boolean {
    return this.#sums !== null;
  }

  start(): void {
    this.#sums = new Map();
    this.#problem = null;
  }

  stop(): void {
    this.#sums = null;
  }

  /** Returns the sums. Throws the first error that occurred in the callback during a pass, because native code cannot pass errors on. */
  sums(): readonly InputSums[] {
    if (this.#problem !== null) throw this.#problem;
    return [...(this.#sums ?? [])].map(([name, { squares, rows }]) => {
      return { name, squares: Float32Array.from(squares), rows: Float32Array.from(rows) };
    });
  }

  /** Frees the callback. Call after the context is freed. */
  dispose(): void {
    koffi.unregister(this.callback as bigint);
  }

  /**
   * Handles both calls of the callback. If `isAsked`, the tensor is not computed yet, and the result says whether the collector wants it.
   * Otherwise the tensor is computed, and the result says whether the pass continues.
   */
  #see(pointer: Pointer, isAsked: boolean): boolean {
    if (this.#sums === null || this.#problem !== null) return !isAsked;
    try {
      const { product, expertProduct } = this.#reader;
      const operation = this.#reader.operationOf(pointer);
      if (operation !== product && operation !== expertProduct) return !isAsked;
      const { src } = this.#reader.read(pointer);
      const matrix = this.#reader.read(src[0]);
      if (!ofLayer.test(matrix.name)) return !isAsked;
      if (isAsked) return true;
      const input = this.#reader.read(src[1]);
      if (input.type !== f32) throw unreadable(matrix, `type ${input.type}`);
      const sums = this.#sumsOf(matrix, this.#sums);
      if (operation === product) addProduct(sums, matrix, input);
      else addExperts(sums, input, this.#reader.read(src[2]));
    } catch (error) {
      this.#problem = error;
    }
    return true;
  }

  #sumsOf({ name, ne }: NativeTensor, all: Map<string, Sums>): Sums {
    const known = all.get(name);
    if (known !== undefined) return known;
    const [columns = 1, , matrices = 1] = ne;
    const made = { squares: new Float64Array(columns * matrices), rows: new Float64Array(matrices) };
    all.set(name, made);
    return made;
  }
}

/**
 * Adds all input rows of a matrix to its sums. If `matrix` is a stack, the slices of the input along its third dimension are divided
 * evenly among the matrices, in order.
 */
function addProduct(sums: Sums, matrix: NativeTensor, input: NativeTensor): void {
  const [columns = 1, rows = 1, layers = 1, more = 1] = input.ne;
  const [, , matrices = 1] = matrix.ne;
  const floats = floatsOf(input);
  for (let outer = 0; outer < more; outer++) {
    for (let layer = 0; layer < layers; layer++) {
      const index = Math.floor((layer * matrices) / layers);
      for (let row = 0; row < rows; row++) addRow(sums, index, floats, startOf(input, row, layer, outer), columns);
    }
  }
}

/** Adds the input rows of each token to the sums of the experts that the token uses. `ids`: for each token, the numbers of its experts. */
function addExperts(sums: Sums, input: NativeTensor, ids: NativeTensor): void {
  const [columns = 1, rows = 1] = input.ne;
  const [slots = 1, tokens = 1] = ids.ne;
  const [slotBytes = 0, tokenBytes = 0] = ids.nb;
  const experts = new DataView(koffi.view(ids.data, (slots - 1) * slotBytes + (tokens - 1) * tokenBytes + 4));
  const floats = floatsOf(input);
  for (let token = 0; token < tokens; token++) {
    for (let slot = 0; slot < slots; slot++) {
      const expert = experts.getInt32(slot * slotBytes + token * tokenBytes, true);
      addRow(sums, expert, floats, startOf(input, slot % rows, token, 0), columns);
    }
  }
}

function addRow({ squares, rows }: Sums, index: number, floats: Float32Array, start: number, columns: number): void {
  if (index < 0 || index >= rows.length)
    throw new ServerError("internal", `llama.cpp names expert ${index} of ${rows.length}`);
  const first = index * columns;
  rows[index] = (rows[index] as number) + 1;
  for (let column = 0; column < columns; column++) {
    const value = floats[start + column] as number;
    squares[first + column] = (squares[first + column] as number) + value * value;
  }
}

/** Returns a view of a tensor's memory as floats, from its first float to its last. */
function floatsOf(input: NativeTensor): Float32Array {
  const end = input.ne.reduce((sum, length, i) => sum + (length - 1) * (input.nb[i] ?? 0), 0);
  if (input.nb[0] !== 4 || end % 4 !== 0) throw unreadable(input, `strides ${input.nb.join()}`);
  return new Float32Array(koffi.view(input.data, end + 4));
}

function startOf({ nb }: NativeTensor, row: number, layer: number, outer: number): number {
  return (row * (nb[1] ?? 0) + layer * (nb[2] ?? 0) + outer * (nb[3] ?? 0)) / 4;
}

function unreadable({ name }: NativeTensor, what: string): ServerError {
  return new ServerError("unsupported", `the input of "${name}" has ${what}, which cannot be collected`);
}
