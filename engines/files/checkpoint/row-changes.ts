// Row changes: functions that derive a row source (a description of a tensor's rows) from another one. They throw RangeError if the rows do
// not fit the change; callers add the tensor's name to the error.
import type { ColumnRuns, RowSource } from "./row-source.ts";

export function joined(parts: readonly RowSource[]): RowSource {
  const [first] = parts;
  if (first === undefined) throw new RangeError("nothing to join");
  if (parts.length === 1) return first;
  must(parts.every(({ columns }) => columns === first.columns));
  return { kind: "joined", parts, rows: parts.reduce((sum, { rows }) => sum + rows, 0), columns: first.columns };
}

/** Returns `count` rows of the source, from row `first` on. */
export function sliced(source: RowSource, first: number, count: number): RowSource {
  if (first === 0 && count === source.rows) return source;
  if (first === 0 && source.kind === "blocks") return { ...source, rows: count };
  return picked(source, { period: source.rows, first, count });
}

/** Returns `count` of each `period` rows of the source: `first`, `first + step` and so on. */
export function picked(
  source: RowSource,
  { period, first, count, step = 1 }: { period: number; first: number; count: number; step?: number },
): RowSource {
  must([period, first, count, step].every(Number.isInteger) && source.rows % period === 0);
  must(first >= 0 && count > 0 && first + (count - 1) * step < period);
  const rows = (source.rows / period) * count;
  return { kind: "picked", source, period, first, step, count, rows, columns: source.columns };
}

/** Returns the rows in the order [y][x][inner]; the source has them in the order [x][y][inner], in each x * y * inner rows. */
export function swapped(source: RowSource, { x, y, inner = 1 }: { x: number; y: number; inner?: number }): RowSource {
  must([x, y, inner].every((count) => Number.isInteger(count) && count > 0) && source.rows % (x * y * inner) === 0);
  return { kind: "swapped", source, x, y, inner, rows: source.rows, columns: source.columns };
}

export function swappedColumns(source: RowSource, { x, y, inner }: { x: number; y: number; inner: number }): RowSource {
  must([x, y, inner].every(Number.isInteger) && source.columns === x * y * inner);
  return { kind: "swappedColumns", source, x, y, inner, rows: source.rows, columns: source.columns };
}

/** Returns the given runs (consecutive columns) of each row, one after another. A run whose `first` is null consists of zeros. */
export function columnRuns(source: RowSource, runs: ColumnRuns["runs"]): RowSource {
  const columns = runs.reduce((sum, { count }) => sum + count, 0);
  must(
    runs.every(({ first, count }) => count >= 0 && (first === null || (first >= 0 && first + count <= source.columns))),
  );
  must(Number.isInteger(columns) && columns > 0);
  return { kind: "columnRuns", source, runs, rows: source.rows, columns };
}

/** Transposes the matrices of `matrixRows` rows that the source has one after another. */
export function transposed(source: RowSource, matrixRows: number): RowSource {
  must(Number.isInteger(matrixRows) && matrixRows > 0 && source.rows % matrixRows === 0);
  const rows = (source.rows / matrixRows) * source.columns;
  return { kind: "transposed", source, matrixRows, rows, columns: matrixRows };
}

/** Returns the same values in rows of `columns` values. */
export function reshaped(source: RowSource, columns: number): RowSource {
  if (columns === source.columns) return source;
  const rows = (source.rows * source.columns) / columns;
  must(Number.isInteger(columns) && Number.isInteger(rows) && rows > 0);
  if (source.kind === "stored") return { ...source, rows, columns };
  must(columns % source.columns === 0);
  return { kind: "reshaped", source, rows, columns };
}

export function shifted(source: RowSource, by: number): RowSource {
  return { kind: "shifted", source, by, rows: source.rows, columns: source.columns };
}

export function scaled(source: RowSource, by: number): RowSource {
  return by === 1 ? source : { kind: "scaled", source, by, rows: source.rows, columns: source.columns };
}

export function negatedExp(source: RowSource): RowSource {
  return { kind: "negatedExp", source, by: 0, rows: source.rows, columns: source.columns };
}

export function softplus(source: RowSource): RowSource {
  return { kind: "softplus", source, by: 0, rows: source.rows, columns: source.columns };
}

export function finite(source: RowSource): RowSource {
  return { kind: "finite", source, by: 0, rows: source.rows, columns: source.columns };
}

export function given(values: readonly number[]): RowSource {
  return { kind: "given", values, rows: 1, columns: values.length };
}

export function zeros(rows: number, columns: number): RowSource {
  return { kind: "given", values: [0], rows, columns };
}

function must(holds: boolean): void {
  if (!holds) throw new RangeError("the rows of a tensor do not fit the change that its architecture makes to them");
}
