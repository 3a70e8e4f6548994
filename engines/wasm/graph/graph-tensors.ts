// Owns a file's tensors by name while the graph is built, and which of them it has taken: each is checked for its shape and
// type, and none may be left over, because a tensor that is silently ignored is a wrong answer. Used by graph.ts at load.
import { ServerError } from "../../../runtime/errors.ts";
import { type TensorInfo, type TensorTable, tensorTypes } from "../../files/gguf/tensors.ts";

/** Rows of a matrix: all of a tensor, or some that follow each other in it. */
export interface Matrix {
  /** Of its own: the tensor's where it is all of that. */
  readonly name: string;
  readonly tensor: TensorInfo;
  /** In the tensor, whose rows follow each other whatever its further dimensions. */
  readonly firstRow: number;
  readonly rows: number;
  readonly columns: number;
  /** Added to what the rows make of an input; of these rows alone, or of all that the tensor has. Null = none. */
  readonly bias: TensorInfo | null;
  /** So many like this one lie behind one another in the tensor; without it there is one. */
  readonly count?: number;
}

/** The experts of a layer. As one, because a model may have ten thousand: rows and all else are of the first. */
export type MatrixStack = Required<Matrix>;

export interface Norm {
  readonly weight: TensorInfo;
  /** Null = none. */
  readonly bias: TensorInfo | null;
}

/** GGUF types of matrices the kernels multiply with. */
export const matrixTypes: ReadonlySet<number> = new Set([0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 30, 39]);
const f32 = 0;
/** Kernels work on 32 columns at a time. Of types whose blocks are longer a file has whole blocks only. */
const columnGrain = 32;

/** File bytes of a row of a tensor. */
export function rowBytes({ shape, bytes }: TensorInfo): number {
  return bytes / shape.slice(1).reduce((rows, length) => rows * length, 1);
}

export class GraphTensors {
  readonly #table: TensorTable;
  readonly #used: Set<string>;

  /** `readElsewhere` are tensors that are no part of the graph. */
  constructor(table: TensorTable, readElsewhere: readonly string[]) {
    this.#table = table;
    this.#used = new Set(readElsewhere);
  }

  /** Names are without the ".weight" behind them. */
  has(name: string): boolean {
    return this.#table.tensors.has(`${name}.weight`);
  }

  /** The weight, of one of the shapes, and the bias where `canHaveBias` and the file has one. */
  norm(name: string, canHaveBias: boolean, ...shapes: readonly (readonly number[])[]): Norm {
    const fitting = shapes.find((shape) => this.#fits(`${name}.weight`, shape)) ?? (shapes[0] as readonly number[]);
    return { weight: this.#floats(`${name}.weight`, fitting), bias: canHaveBias ? this.#bias(name, fitting) : null };
  }

  /** `biasOf` is the name that its bias goes by. */
  matrix(name: string, rows: number, columns: number, biasOf = name): Matrix {
    const tensor = this.#values(name, [columns, rows]);
    return { name: tensor.name, tensor, firstRow: 0, rows, columns, bias: this.#bias(biasOf, [rows]) };
  }

  /** Matrices that lie behind one another in one tensor. Without a bias of all they may have one each, by these names. */
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

  /** The first row of a tensor of any number of rows, or null where the file has none. */
  firstRow(name: string, columns: number): Matrix | null {
    const rows = this.#table.tensors.get(`${name}.weight`)?.shape[1] ?? 1;
    return this.has(name) ? (this.fused(name, [1, rows - 1], columns)[0] ?? null) : null;
  }

  /** The matrices of a tensor [count][rows][columns]. A bias is none of theirs: it is left over, and so refused. */
  stack(name: string, count: number, rows: number, columns: number): MatrixStack {
    const alone = name.replace("_exps", ".0");
    if (this.has(alone)) {
      const problem = `has a tensor for each expert ("${alone}.weight"), as files of 2023 had`;
      throw this.#invalid(`${problem}; no engine reads such any more: fetch a newer file of the model`);
    }
    const tensor = this.#values(name, [columns, rows, count]);
    return { name: tensor.name, tensor, firstRow: 0, rows, columns, bias: null, count };
  }

  /** Leaves a matrix, with its bias, to nobody: there is a use for it, and not in this model. */
  leaveOut(name: string): void {
    for (const part of ["weight", "bias"]) this.#used.add(`${name}.${part}`);
  }

  checkAllUsed(): void {
    for (const name of this.#table.tensors.keys()) {
      if (this.#used.has(name)) continue;
      throw new ServerError(
        "unsupported",
        `the model has a tensor "${name}" that the wasm engine has no use for, so its answers would be wrong; ` +
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
      throw this.#invalid(`has "${name}" as ${tensor.shape.join(" x ")}, where ${shape.join(" x ")} belongs`);
    }
    this.#used.add(name);
    return tensor;
  }

  /** Lengths of 1 at the end of a shape say nothing. */
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
