// Value check: reads all rows of tensors and reports which tensors have values that are not finite.
import type { RowSource } from "../../files/checkpoint/row-source.ts";
import { createRowReader } from "./rows.ts";

/** Maximum number of values read at once, unless one row has more. */
const chunkValues = 2 ** 20;

interface NamedRows {
  readonly name: string;
  readonly rows: RowSource;
}

/**
 * Yields the name of each tensor with its first value that is not finite, or null if all are finite. `files`: paths, to which the rows
 * refer by index. Throws `model_file_invalid` if a file cannot be read.
 */
export function* checkValues(
  files: readonly string[],
  tensors: readonly NamedRows[],
): Generator<[string, number | null]> {
  const reader = createRowReader(files);
  let values = new Float32Array(0);
  try {
    for (const { name, rows } of tensors) {
      const most = Math.max(1, Math.floor(chunkValues / rows.columns));
      let wrong: number | null = null;
      for (let first = 0; first < rows.rows && wrong === null; first += most) {
        const count = Math.min(most, rows.rows - first) * rows.columns;
        if (values.length < count) values = new Float32Array(count);
        const read = values.subarray(0, count);
        reader.read(rows, first, count / rows.columns, read);
        wrong = read.find((value) => !Number.isFinite(value)) ?? null;
      }
      yield [name, wrong];
    }
  } finally {
    reader.close();
  }
}
