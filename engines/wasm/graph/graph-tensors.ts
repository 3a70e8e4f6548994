// Graph tensors: finds a file's tensors by name while the graph is built, and checks their shapes and types. It records
// which tensors have been used. A tensor that stays unused is an error, because ignoring it would give wrong results.
// Used by graph.ts at load.
import { ServerError } from "../../../runtime/errors.ts";
import { type TensorInfo, type TensorTable, tensorTypes } from "../../files/gguf/tensors.ts";

/** A matrix of the model: a whole tensor, or consecutive rows of one. */
export interface Matrix {
  /** Unique name. It equals the tensor's name if the matrix is the whole tensor. */
  readonly name: string;
  readonly tensor: TensorInfo;
  /**
   * Index of the matrix's first row in the tensor. All dimensions of the tensor except the first (columns) are counted
   * as rows.
   */
  readonly firstRow: number;
  readonly rows: number;
  readonly columns: number;
  /**
   * Bias added to the products. It has one value for each row of this matrix, or for each row of the tensor. Null =
   * none.
   */
  readonly bias: TensorInfo | null;
  /** One factor per row, by which the row's result (bias included) is multiplied; absent = none. Only if the matrix is a whole tensor. */
  readonly scale?: TensorInfo;
  /** Ranges of the inputs and of the products; absent = they are not clamped. */
  readonly clamp?: ClampRanges;
  /** Number of equal matrices stacked in the tensor (experts); 1 if absent. */
  readonly count?: number;
  /**
   * Size of the tensor, if the matrix is padded to more rows or columns: all values beyond this size are 0. Absent = the matrix is not
   * padded. Only for tensors of floats.
   */
  readonly filled?: { readonly rows: number; readonly columns: number };
  /** true: the file stores the matrix column by column instead of row by row. Only for tensors of floats. */
  readonly transposed?: boolean;
}

/**
 * The matrices of one kind (for example the gates) of all experts of a layer, as a single object. One object per matrix
 * would be too many, because a model may have ten thousand experts in total. `rows` and the other fields describe the
 * first expert's matrix.
 */
export type MatrixStack = Matrix & Required<Pick<Matrix, "count">>;

/** Ranges to which the inputs and the products (before the bias) of a matrix are clamped (Gemma 4). Each tensor has one float. */
export interface ClampRanges {
  readonly inputMin: TensorInfo;
  readonly inputMax: TensorInfo;
  readonly outputMin: TensorInfo;
  readonly outputMax: TensorInfo;
}

export interface Norm {
  readonly weight: TensorInfo;
  readonly bias: TensorInfo | null;
}

/** GGUF types of the matrices that the kernels can multiply. */
export const matrixTypes: ReadonlySet<number> = new Set([0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 30, 39]);
const f32 = 0;
/**
 * The kernels process 32 columns at a time, so row lengths must be multiples of 32. Types with longer blocks need no
 * check, because a GGUF row consists of whole blocks.
 */
const columnGrain = 32;

/** GGUF types of floats: F32, F16 and BF16. */
const floatTypes: ReadonlySet<number> = new Set([0, 1, 30]);
/** The number of rows of a padded float matrix is a multiple of this number. */
const rowGrain = 16;

/** Returns the size in bytes of one row of a tensor in the file. */
export function rowBytes({ shape, bytes }: TensorInfo): number {
  return bytes / shape.slice(1).reduce((rows, length) => rows * length, 1);
}

export class GraphTensors {
  readonly #table: TensorTable;
  readonly #used: Set<string>;

  readonly #advice: string;

  /**
   * `readElsewhere`: names of tensors that other code reads; they count as used. `advice`: end of the error message for a tensor that the
   * engine does not support; it tells the user what to do.
   */
  constructor(table: TensorTable, readElsewhere: readonly string[], advice = "use --engine llama for this model") {
    this.#table = table;
    this.#advice = advice;
    this.#used = new Set(readElsewhere);
  }

  /** Whether the file has the tensor. `name` omits the suffix ".weight". */
  has(name: string): boolean {
    return this.#table.tensors.has(`${name}.weight`);
  }

  /**
   * Returns a norm: its weight, which must have one of `shapes`, and its bias if the file has one and `canHaveBias` is
   * true.
   */
  norm(name: string, canHaveBias: boolean, ...shapes: readonly (readonly number[])[]): Norm {
    const fitting = shapes.find((shape) => this.#fits(`${name}.weight`, shape)) ?? (shapes[0] as readonly number[]);
    return { weight: this.#floats(`${name}.weight`, fitting), bias: canHaveBias ? this.#bias(name, fitting) : null };
  }

  /**
   * Returns a matrix of `filled.rows` x `filled.columns` values, padded with zeros to the numbers of rows and columns that the kernels
   * need. `shape`: the dimensions of the tensor in the file, columns first.
   */
  padded(
    name: string,
    shape: readonly number[],
    filled: { rows: number; columns: number },
    transposed = false,
  ): Matrix {
    const matrix = this.#padded(`${name}.weight`, shape, filled, transposed);
    return { ...matrix, bias: this.#bias(name, [filled.rows]) };
  }

  /** Like padded(), but without a bias. `name` is the complete name of the tensor. */
  paddedTensor(name: string, shape: readonly number[], filled: { rows: number; columns: number }): Matrix {
    return { ...this.#padded(name, shape, filled, false), bias: null };
  }

  #padded(
    name: string,
    shape: readonly number[],
    filled: { rows: number; columns: number },
    transposed: boolean,
  ): Omit<Matrix, "bias"> {
    const tensor = this.#take(name, shape);
    const isFloat = floatTypes.has(tensor.type);
    const rows = isFloat ? Math.ceil(filled.rows / rowGrain) * rowGrain : filled.rows;
    const columns = Math.ceil(filled.columns / columnGrain) * columnGrain;
    if (!isFloat && (transposed || columns !== filled.columns))
      throw this.#unsupportedType(tensor, namesOf(floatTypes));
    if (!matrixTypes.has(tensor.type)) throw this.#unsupportedType(tensor, namesOf(matrixTypes));
    return { name: tensor.name, tensor, firstRow: 0, rows, columns, filled, transposed, ...this.#clamp(name) };
  }

  /**
   * Returns floats that are neither a norm's weight, nor a bias, nor a matrix. `name` is the complete name of the tensor; `shape`:
   * its dimensions, columns first.
   */
  vector(name: string, ...shape: readonly number[]): TensorInfo {
    return this.#floats(name, shape);
  }

  /** Returns the whole tensor `name`.weight as a matrix. Its bias is the tensor `biasOf`.bias, if the file has one. */
  matrix(name: string, rows: number, columns: number, biasOf = name): Matrix {
    const tensor = this.#values(name, [columns, rows]);
    const bias = this.#bias(biasOf, [rows]);
    return { name: tensor.name, tensor, firstRow: 0, rows, columns, bias, ...this.#clamp(tensor.name) };
  }

  /**
   * Returns the matrices that are stored one after the other in one tensor. If the tensor has no common bias, each
   * matrix may have its own bias, stored under the names `biasesOf`.
   */
  fused(name: string, rowCounts: readonly number[], columns: number, biasesOf: readonly string[] = []): Matrix[] {
    const total = rowCounts.reduce((sum, rows) => sum + rows, 0);
    const tensor = this.#values(name, [columns, total]);
    const shared = this.#bias(name, [total]);
    let next = 0;
    return rowCounts.map((rows, i) => {
      const firstRow = next;
      next += rows;
      const own = biasesOf[i];
      const bias = shared ?? (own === undefined ? null : this.#bias(own, [rows]));
      return { name: `${tensor.name} from row ${firstRow}`, tensor, firstRow, rows, columns, bias };
    });
  }

  /**
   * Returns several parts of a tensor as matrices of `rows` rows, each from one of `firstRows` on. All dimensions but the first count as
   * rows.
   */
  parts(name: string, shape: readonly number[], firstRows: readonly number[], rows: number): Matrix[] {
    const tensor = this.#values(name, shape);
    const columns = shape[0] as number;
    return firstRows.map((firstRow) => {
      return { name: `${tensor.name} from row ${firstRow}`, tensor, firstRow, rows, columns, bias: null };
    });
  }

  /** Returns the first row of a tensor as a matrix; null if the file has no such tensor. */
  firstRow(name: string, columns: number): Matrix | null {
    const rows = this.#table.tensors.get(`${name}.weight`)?.shape[1] ?? 1;
    return this.has(name) ? (this.fused(name, [1, rows - 1], columns)[0] ?? null) : null;
  }

  /**
   * Returns the matrices of a tensor [count][rows][columns]. Biases of such tensors are not supported: checkAllUsed()
   * rejects a file that has one.
   */
  stack(name: string, count: number, rows: number, columns: number): MatrixStack {
    const alone = name.replace("_exps", ".0");
    if (this.has(alone)) {
      const problem = `has a tensor for each expert ("${alone}.weight"), as files of 2023 had`;
      throw this.#invalid(`${problem}; no engine reads such any more: fetch a newer file of the model`);
    }
    const tensor = this.#values(name, [columns, rows, count]);
    return { name: tensor.name, tensor, firstRow: 0, rows, columns, bias: null, count };
  }

  /** Marks a matrix and its bias as used, although the graph ignores them, so that checkAllUsed() does not reject the file. */
  leaveOut(name: string): void {
    for (const part of ["weight", "bias"]) this.#used.add(`${name}.${part}`);
  }

  /** Marks all tensors of a layer as used, although the graph does not compute the layer. `prefix`: the start of their names. */
  leaveOutLayer(prefix: string): void {
    for (const name of this.#table.tensors.keys()) if (name.startsWith(prefix)) this.#used.add(name);
  }

  /** Returns the number of columns of a tensor; null if the file does not have the tensor. */
  columnsOf(name: string): number | null {
    return this.#table.tensors.get(`${name}.weight`)?.shape[0] ?? null;
  }

  /** Returns the number of rows of a tensor; null if the file does not have the tensor. */
  rowsOf(name: string): number | null {
    return this.#table.tensors.get(`${name}.weight`)?.shape[1] ?? null;
  }

  checkAllUsed(): void {
    for (const name of this.#table.tensors.keys()) {
      if (this.#used.has(name)) continue;
      throw new ServerError(
        "unsupported",
        `the model has a tensor "${name}" that the wasm engine does not use, so its answers would be wrong; ` +
          this.#advice,
        { param: "engine" },
      );
    }
  }

  /** Returns the clamp ranges of the matrix whose tensor is `name`, if the file has them. */
  #clamp(name: string): { readonly clamp?: ClampRanges } {
    const prefix = name.replace(/\.weight$/, "");
    if (!this.#table.tensors.has(`${prefix}.input_max`)) return {};
    const bound = (part: string) => this.#floats(`${prefix}.${part}`, [1]);
    const [inputMin, inputMax] = [bound("input_min"), bound("input_max")];
    return { clamp: { inputMin, inputMax, outputMin: bound("output_min"), outputMax: bound("output_max") } };
  }

  #bias(name: string, shape: readonly number[]): TensorInfo | null {
    if (!this.#table.tensors.has(`${name}.bias`)) return null;
    // The biases of convolutions have one or two leading dimensions of 1.
    const fitting = [
      [1, ...shape],
      [1, 1, ...shape],
    ].find((one) => this.#fits(`${name}.bias`, one));
    return this.#floats(`${name}.bias`, fitting ?? shape);
  }

  #floats(name: string, shape: readonly number[]): TensorInfo {
    const tensor = this.#take(name, shape);
    if (tensor.type !== f32) throw this.#unsupportedType(tensor, "F32");
    return tensor;
  }

  #values(name: string, shape: readonly number[]): TensorInfo {
    const tensor = this.#take(`${name}.weight`, shape);
    if (!matrixTypes.has(tensor.type)) throw this.#unsupportedType(tensor, namesOf(matrixTypes));
    const [columns] = shape as readonly [number];
    if (columns % columnGrain === 0) return tensor;
    throw new ServerError(
      "unsupported",
      `tensor "${tensor.name}" has rows of ${columns} values; the wasm engine takes multiples of ${columnGrain}: ` +
        this.#advice,
      { param: "engine" },
    );
  }

  #take(name: string, shape: readonly number[]): TensorInfo {
    const tensor = this.#table.tensors.get(name);
    if (!tensor) throw this.#invalid(`has no tensor "${name}"`);
    if (!this.#fits(name, shape)) {
      throw this.#invalid(`has "${name}" as ${tensor.shape.join(" x ")}; expected ${shape.join(" x ")}`);
    }
    this.#used.add(name);
    return tensor;
  }

  /** Whether the tensor has this shape; trailing dimensions of 1 are ignored. */
  #fits(name: string, shape: readonly number[]): boolean {
    const found = this.#table.tensors.get(name)?.shape ?? [];
    const length = Math.max(found.length, shape.length);
    return Array.from({ length }, (_, i) => i).every((i) => (found[i] ?? 1) === (shape[i] ?? 1));
  }

  #invalid(problem: string): ServerError {
    return new ServerError("model_file_invalid", `${this.#table.files[0]} ${problem}`);
  }

  #unsupportedType(tensor: TensorInfo, expected: string): ServerError {
    const name = tensorTypes.get(tensor.type)?.name ?? `type ${tensor.type}`;
    return new ServerError(
      "unsupported",
      `tensor "${tensor.name}" is ${name}; the wasm engine takes ${expected} there: ${this.#advice}`,
      { param: "engine" },
    );
  }
}

function namesOf(types: ReadonlySet<number>): string {
  const names = [...types].map((type) => tensorTypes.get(type)?.name ?? `type ${type}`);
  return `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}
