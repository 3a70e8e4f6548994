// Input collector: sums the squares of each column over the input rows of every matrix in the layers, for an importance matrix. Only the
// leader collects, because it has the whole input of every product. The output matrix is left out, as in llama-imatrix.
import type { Calibration, InputSums } from "../../engine.ts";
import type { DividedGraph, DividedStep, Share } from "../plan/partition-plan.ts";

/** Sums for one product: a group of matrices that are multiplied by the same input. */
interface Product {
  /** Names of the matrices' tensors. */
  readonly tensors: ReadonlySet<string>;
  readonly columns: number;
  /**
   * Sums of squares: `columns` numbers for each matrix of a stack (one matrix per expert). They are doubles, because sums over days of
   * traffic lose precision in floats. `rows` has the number of summed input rows for each matrix of the stack.
   */
  readonly squares: Float64Array;
  readonly rows: Float64Array;
}

/** Members of ThreadProducts that the collector uses. */
interface Products {
  own(shares: readonly Share[]): Share;
  collector: InputCollector | null;
}

export class InputCollector implements Calibration {
  readonly #divided: DividedGraph;
  readonly #source: Products;
  readonly #floats: Float32Array;
  /**
   * Sums of each product (a group of matrices with the same input). The key is the leader's share (its rows) of those matrices of the
   * group that are multiplied first. Null = the collector is stopped.
   */
  #products: ReadonlyMap<Share, Product> | null = null;

  /** `floats`: a view of the whole memory of the leader. */
  constructor(divided: DividedGraph, source: Products, floats: Float32Array) {
    this.#divided = divided;
    this.#source = source;
    this.#floats = floats;
  }

  get isCollecting(): boolean {
    return this.#products !== null;
  }

  start(): void {
    const products = this.#divided.layers.flat().flatMap(productsOf);
    this.#products = new Map(
      products.map(([first, ...others]) => [this.#source.own(first), productOf([first, ...others])]),
    );
    this.#source.collector = this;
  }

  stop(): void {
    this.#products = null;
    this.#source.collector = null;
  }

  /**
   * Adds the n input rows at address x to the sums of matrix number `index` of a stack (one matrix per expert). Called for every product
   * of a pass.
   */
  add(share: Share, x: number, n: number, index: number): void {
    const product = this.#products?.get(share);
    if (product === undefined) return;
    const { columns, squares, rows } = product;
    const floats = this.#floats;
    const first = index * columns;
    rows[index] = (rows[index] as number) + n;
    let at = x >>> 2;
    for (let row = 0; row < n; row++) {
      for (let column = 0; column < columns; column++, at++) {
        const value = floats[at] as number;
        squares[first + column] = (squares[first + column] as number) + value * value;
      }
    }
  }

  sums(): readonly InputSums[] {
    const found = new Map<string, InputSums>();
    for (const { tensors, squares, rows } of this.#products?.values() ?? []) {
      const sums = { squares: Float32Array.from(squares), rows: Float32Array.from(rows) };
      for (const name of tensors) found.set(name, { name, ...sums });
    }
    return [...found.values()];
  }
}

/**
 * Matrices with the same input. Each element lists the shares (rows) of all threads. The input is collected when the first matrix is
 * multiplied.
 */
type Together = readonly [readonly Share[], ...(readonly Share[])[]];

/** Returns the matrices of a step, grouped by their input. */
function productsOf(step: DividedStep): readonly Together[] {
  switch (step.kind) {
    case "attention":
      return [[step.input], [step.output]];
    case "feedForward":
      return [step.gate === null ? [step.up] : [step.gate, step.up], [step.down]];
    case "experts":
      return [step.gate === null ? [step.up] : [step.gate, step.up], [step.down]];
    default:
      return [];
  }
}

function productOf(shares: Together): Product {
  const matrices = shares.flat().flatMap(({ pieces }) => pieces.map(({ matrix }) => matrix));
  const columns = matrices[0]?.columns ?? 0;
  const count = matrices[0]?.count ?? 1;
  return {
    tensors: new Set(matrices.map(({ tensor }) => tensor.name)),
    columns,
    squares: new Float64Array(columns * count),
    rows: new Float64Array(count),
  };
}
