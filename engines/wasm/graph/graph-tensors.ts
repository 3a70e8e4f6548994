// Tensors of a file by name while the graph is built, and which of them have been used. Each is checked for its shape
// and type. None may be left over, because ignoring a tensor would give wrong answers. Used by graph.ts at load.
import { ServerError } from "../../../runtime/errors.ts";
import { type TensorInfo, type TensorTable, tensorTypes } from "../../files/gguf/tensors.ts";

/** Rows of a matrix: a whole tensor, or a consecutive part of its rows. */
export interface Matrix {
  /** Unique name; the tensor's name if the matrix is the whole tensor. */
  readonly name: string;
  readonly tensor: TensorInfo;
  /** First row within the tensor; rows are counted through all higher dimensions. */
  readonly firstRow: number;
  readonly rows: number;
  readonly columns: number;
  /** Added to the products; either for these rows only, or for all rows of the tensor. Null = none. */
  readonly bias: TensorInfo | null;
  /** Number of equal matrices stacked in the tensor (experts); 1 if absent. */
  readonly count?: number;
}

/**
 * The experts of a layer as one object, because a model may have ten thousand. Rows and all other fields describe the
 * first expert.
 */
export type MatrixStack = Required<Matrix>;

export interface Norm {
  readonly weight: TensorInfo;
  /** Null = none. */
  readonly bias: TensorInfo | null;
}

/** GGUF types of matrices that the kernels multiply. */
export const matrixTypes: ReadonlySet<number> = new Set([0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 30, 39]);
const f32 = 0;
/** The kernels process 32 columns at a time. Types with longer blocks have whole blocks in every file. */
const columnGrain = 32;

/** Bytes of one row of a tensor in the file. */
export function rowBytes({ shape, bytes }: TensorInfo): number {
  return bytes / shape.slice(1).reduce((rows, length) => rows * length, 1);
}

export class GraphTensors {
  readonly #table: TensorTable;
  readonly #used: Set<string>;

  /** `readElsewhere`: tensors that are not part of the graph. */
  constructor(table: TensorTable, readElsewhere: readonly string[]) {
    this.#table = table;
    this.#used = new Set(readElsewhere);
  }

  /** Names omit the suffix ".weight". */
  has(name: string): boolean {
    return this.#table.tensors.has(`${name}.weight`);
  }

  /** A norm's weight, which must have one of `shapes`, and its bias if `canHaveBias` and the file has one. */
  norm(name: string, canHaveBias: boolean, ...shapes: readonly (readonly number[])[]): Norm {
    const fitting = shapes.find((shape) => this.#fits(`${name}.weight`, shape)) ?? (shapes[0] as readonly number[]);
    return { weight: this.#floats(`${name}.weight`, fitting), bias: canHaveBias ? this.#bias(name, fitting) : null };
  }

  /** `biasOf`: the name under which its bias is stored. */
  matrix(name: string, rows: number, columns: number, biasOf = name): Matrix {
    const tensor = this.#values(name, [columns, rows]);
    return { name: tensor.name, tensor, firstRow: 0, rows, columns, bias: this.#bias(biasOf, [rows]) };
  }

  /**
   * Matrices stored one after the other in one tensor. If the tensor has no common bias, each may have its own under
   * the names `biasesOf`.
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

  /** The first row of a tensor with any number of rows, or null if the file has no such tensor. */
  firstRow(name: string, columns: number): Matrix | null {
    const rows = this.#table.tensors.get(`${name}.weight`)?.shape[1] ?? 1;
    return this.has(name) ? (this.fused(name, [1, rows - 1], columns)[0] ?? null) : null;
  }

  /** The matrices of a tensor [count][rows][columns]. A bias is not taken: it is left over, and therefore rejected. */
  stack(name: string, count: number, rows: number, columns: number): MatrixStack {
    const alone = name.replace("_exps", ".0");
    if (this.has(alone)) {
      const problem = `has a tensor for each expert ("${alone}.weight"), as files of 2023 had`;
      throw this.#invalid(`${problem}; no engine reads such any more: fetch a newer file of the model`);
    }
    const tensor = this.#values(name, [columns, rows, count]);
    return { name: tensor.name, tensor, firstRow: 0, rows, columns, bias: null, count };
  }

  /** Marks a matrix and its bias as used though this graph does not need them. */
  leaveOut(name: string): void {
    for (const part of ["weight", "bias"]) this.#used.add(`${name}.${part}`);
  }

  checkAllUsed(): void {
    for (const name of this.#table.tensors.keys()) {
      if (this.#used.has(name)) continue;
      throw new ServerError(
        "unsupported",
        `the model has a tensor "${name}" that the wasm engine does not use, so its answers would be wrong; ` +
          "use --engine llama for this model",
        { param: "engine" },
      );
    }
  }

  #bias(name: string, shape: readonly number[]): TensorInfo | null {
    return this.#table.tensors.has(`${name}.bias`) ? this.#floats(`${name}.bias`, shape) : null;
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
        "use --engine llama for this model",
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

  /** Trailing dimensions of 1 are ignored. */
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
      `tensor "${tensor.name}" is ${name}; the wasm engine takes ${expected} there: use --engine llama for this model`,
      { param: "engine" },
    );
  }
}

function namesOf(types: ReadonlySet<number>): string {
  const names = [...types].map((type) => tensorTypes.get(type)?.name ?? `type ${type}`);
  return `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}
