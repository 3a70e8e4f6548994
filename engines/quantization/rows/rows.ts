// Row reader: reads the rows of a source (engines/files/checkpoint/row-source.ts) as F32. Synchronous, for worker threads. The size of
// buffers is limited, however large a tensor is.
import type {
  ChangedRows,
  ColumnRuns,
  JoinedRows,
  PackedIntRows,
  PickedRows,
  ReshapedRows,
  RowSource,
  SwappedColumns,
  SwappedRows,
  TransposedRows,
} from "../../files/checkpoint/row-source.ts";
import { pickedRun, swappedRun } from "./copyable.ts";
import { GroupedRows } from "./grouped-rows.ts";
import { QuantisedRows } from "./quantised-rows.ts";
import { StoredFiles } from "./stored-files.ts";
import { type ReadRows, Tables } from "./tables.ts";

/** Maximum number of floats in a scratch buffer. */
const maxScratch = 2 ** 20;
/** Maximum number of floats in a group of rows, which is read and kept as a whole because its rows are reordered. */
const maxGroup = 4 * maxScratch;
/** Maximum number of groups kept. Sources that reorder rows may be nested, and each of them needs one group. */
const maxKept = 2;

const largestF32 = (2 - 2 ** -23) * 2 ** 127;

export interface RowReader {
  /** Reads `count` rows into the start of `out`. Throws `model_file_invalid` if a file cannot be read. */
  read(source: RowSource, firstRow: number, count: number, out: Float32Array): void;
  /** Closes the files. */
  close(): void;
}

/** Creates a row reader. `files`: paths, to which the sources refer by index. */
export function createRowReader(files: readonly string[]): RowReader {
  return new Reader(files);
}

/** Cached group of rows. When one row of a group is needed, the whole group is read and kept. */
interface KeptGroup {
  readonly source: RowSource;
  readonly group: number;
  readonly values: Float32Array;
}

class Reader implements RowReader {
  readonly #files: StoredFiles;
  readonly #quantised: QuantisedRows;
  readonly #grouped: GroupedRows;
  /** The most recently read groups, the newest first. */
  #kept: readonly KeptGroup[] = [];

  constructor(files: readonly string[]) {
    this.#files = new StoredFiles(files);
    const readRows: ReadRows = (source, first, count, out, at) => this.#read(source, first, count, out, at);
    const tables = new Tables(readRows);
    this.#quantised = new QuantisedRows(this.#files, readRows, tables);
    this.#grouped = new GroupedRows(this.#files, readRows, tables);
  }

  read(source: RowSource, firstRow: number, count: number, out: Float32Array): void {
    const isInside = firstRow >= 0 && firstRow + count <= source.rows && count * source.columns <= out.length;
    if (!isInside) throw new RangeError(`rows ${firstRow} to ${firstRow + count} of ${source.rows} into ${out.length}`);
    this.#read(source, firstRow, count, out, 0);
  }

  close(): void {
    this.#files.close();
    this.#kept = [];
  }

  #read(source: RowSource, first: number, count: number, out: Float32Array, at: number): void {
    switch (source.kind) {
      case "stored":
        this.#files.read(source, first, count, out, at);
        break;
      case "joined":
        this.#joined(source, first, count, out, at);
        break;
      case "picked":
        this.#picked(source, first, count, out, at);
        break;
      case "swapped":
        this.#swapped(source, first, count, out, at);
        break;
      case "swappedColumns":
        this.#swappedColumns(source, first, count, out, at);
        break;
      case "columnRuns":
        this.#columnRuns(source, first, count, out, at);
        break;
      case "transposed":
        this.#transposed(source, first, count, out, at);
        break;
      case "reshaped":
        this.#reshaped(source, first, count, out, at);
        break;
      case "shifted":
      case "scaled":
      case "negatedExp":
      case "softplus":
      case "finite":
        this.#changed(source, first, count, out, at);
        break;
      case "given": {
        const { values, columns } = source;
        for (let i = 0; i < count * columns; i++) out[at + i] = values[(first * columns + i) % values.length] as number;
        break;
      }
      case "packedInts":
        if (source.layout === "rows") this.#quantised.read(source, first, count, out, at);
        else this.#inGroups(source, first, count, out, at);
        break;
      case "blocks":
      case "affine":
      case "interleaved":
      case "scaledBytes":
        this.#grouped.read(source, first, count, out, at);
        break;
      default:
        this.#quantised.read(source, first, count, out, at);
        break;
    }
  }

  /** Reads packed rows in groups of many rows, because the columns of a row are far apart in the file. */
  #inGroups(source: PackedIntRows, first: number, count: number, out: Float32Array, at: number): void {
    const { rows, columns } = source;
    const wordRows = 32 / source.bits;
    const size = Math.max(wordRows, Math.floor(maxGroup / columns / wordRows) * wordRows);
    for (let done = 0; done < count; ) {
      const row = first + done;
      const group = Math.floor(row / size);
      const start = group * size;
      const held = Math.min(size, rows - start);
      const values = this.#group(source, group, held * columns, (into) =>
        this.#quantised.read(source, start, held, into, 0),
      );
      const run = Math.min(start + held - row, count - done);
      out.set(values.subarray((row - start) * columns, (row - start + run) * columns), at + done * columns);
      done += run;
    }
  }

  #joined({ parts, columns }: JoinedRows, first: number, count: number, out: Float32Array, at: number): void {
    let start = 0;
    for (const part of parts) {
      const from = Math.max(first, start);
      const to = Math.min(first + count, start + part.rows);
      if (from < to) this.#read(part, from - start, to - from, out, at + (from - first) * columns);
      start += part.rows;
    }
  }

  #picked(source: PickedRows, first: number, count: number, out: Float32Array, at: number): void {
    for (let done = 0; done < count; ) {
      const { from, run } = pickedRun(source, first + done);
      const rows = Math.min(run, count - done);
      this.#read(source.source, from, rows, out, at + done * source.columns);
      done += rows;
    }
  }

  #swapped(source: SwappedRows, first: number, count: number, out: Float32Array, at: number): void {
    const { x, y, inner, columns } = source;
    const size = x * y * inner;
    const isGrouped = size * columns <= maxGroup;
    for (let done = 0; done < count; ) {
      const { from, run } = swappedRun(source, first + done);
      const rows = Math.min(run, count - done);
      if (isGrouped) {
        const group = Math.floor(from / size);
        const values = this.#group(source, group, size * columns, (into) =>
          this.#read(source.source, group * size, size, into, 0),
        );
        const start = (from % size) * columns;
        out.set(values.subarray(start, start + rows * columns), at + done * columns);
      } else this.#read(source.source, from, rows, out, at + done * columns);
      done += rows;
    }
  }

  #group(source: RowSource, group: number, length: number, fill: (values: Float32Array) => void): Float32Array {
    const known = this.#kept.find((one) => one.source === source && one.group === group);
    if (known) return known.values;
    const values = new Float32Array(length);
    fill(values);
    this.#kept = [{ source, group, values }, ...this.#kept].slice(0, maxKept);
    return values;
  }

  #swappedColumns(source: SwappedColumns, first: number, count: number, out: Float32Array, at: number): void {
    const { x, y, inner, columns } = source;
    this.#inChunks(source.source, first, count, (values, done, rows) => {
      for (let row = 0; row < rows; row++) {
        const target = at + (done + row) * columns;
        for (let block = 0; block < x * y; block++) {
          const from = row * columns + ((block % x) * y + Math.floor(block / x)) * inner;
          out.set(values.subarray(from, from + inner), target + block * inner);
        }
      }
    });
  }

  #columnRuns(
    { source, runs, columns }: ColumnRuns,
    first: number,
    count: number,
    out: Float32Array,
    at: number,
  ): void {
    this.#inChunks(source, first, count, (values, done, rows) => {
      for (let row = 0; row < rows; row++) {
        const from = row * source.columns;
        let target = at + (done + row) * columns;
        for (const { first: start, count: length } of runs) {
          if (start === null) out.fill(0, target, target + length);
          else out.set(values.subarray(from + start, from + start + length), target);
          target += length;
        }
      }
    });
  }

  #transposed(source: TransposedRows, first: number, count: number, out: Float32Array, at: number): void {
    const { matrixRows } = source;
    const width = source.source.columns;
    for (let done = 0; done < count; ) {
      const row = first + done;
      const column = row % width;
      const run = Math.min(width - column, count - done);
      this.#columns(source, Math.floor(row / width) * matrixRows, column, run, out, at + done * matrixRows);
      done += run;
    }
  }

  /** Transposes `count` columns of one matrix, from `column` on, into rows of `out`. The matrix begins at row `start` of the source. */
  #columns(
    { source, matrixRows }: TransposedRows,
    start: number,
    column: number,
    count: number,
    out: Float32Array,
    at: number,
  ): void {
    const scatter = (values: Float32Array, from: number, row: number) => {
      for (let i = 0; i < count; i++) out[at + i * matrixRows + row] = values[from + i] as number;
    };
    if (source.kind === "stored" && count < source.columns) {
      const values = new Float32Array(count);
      for (let row = 0; row < matrixRows; row++) {
        this.#files.readSpan(source, (start + row) * source.columns + column, count, values, 0);
        scatter(values, 0, row);
      }
      return;
    }
    this.#inChunks(source, start, matrixRows, (values, done, rows) => {
      for (let row = 0; row < rows; row++) scatter(values, row * source.columns + column, done + row);
    });
  }

  #reshaped({ source, columns }: ReshapedRows, first: number, count: number, out: Float32Array, at: number): void {
    const share = columns / source.columns;
    this.#read(source, first * share, count * share, out, at);
  }

  #changed(
    { kind, source, by, columns }: ChangedRows,
    first: number,
    count: number,
    out: Float32Array,
    at: number,
  ): void {
    this.#read(source, first, count, out, at);
    const end = at + count * columns;
    if (kind === "shifted") for (let i = at; i < end; i++) out[i] = (out[i] as number) + by;
    else if (kind === "scaled") for (let i = at; i < end; i++) out[i] = (out[i] as number) * by;
    else if (kind === "negatedExp") for (let i = at; i < end; i++) out[i] = -Math.exp(out[i] as number);
    else if (kind === "softplus") for (let i = at; i < end; i++) out[i] = Math.log1p(Math.exp(out[i] as number));
    else for (let i = at; i < end; i++) out[i] = Math.max(-largestF32, Math.min(largestF32, out[i] as number));
  }

  /** Reads `count` rows in chunks that fit in a scratch buffer, and calls `use` for each chunk. `done`: number of rows before the chunk. */
  #inChunks(
    source: RowSource,
    first: number,
    count: number,
    use: (values: Float32Array, done: number, rows: number) => void,
  ): void {
    const most = Math.max(1, Math.min(count, Math.floor(maxScratch / source.columns)));
    const values = new Float32Array(most * source.columns);
    for (let done = 0; done < count; done += most) {
      const rows = Math.min(most, count - done);
      this.#read(source, first + done, rows, values, 0);
      use(values, done, rows);
    }
  }
}
