// Row reader: each kind of source is compared with values computed by hand, read whole and in parts.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import {
  given,
  joined,
  negatedExp,
  picked,
  reshaped,
  scaled,
  shifted,
  sliced,
  swapped,
  swappedColumns,
  transposed,
  zeros,
} from "../../../engines/files/checkpoint/row-changes.ts";
import type { RowSource, StoredRows } from "../../../engines/files/checkpoint/row-source.ts";
import { copyable } from "../../../engines/quantization/rows/copyable.ts";
import { createMxfp4Reader } from "../../../engines/quantization/rows/packed-mxfp4.ts";
import { createRowReader } from "../../../engines/quantization/rows/rows.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-rows-"));
after(() => rmSync(folder, { recursive: true }));

let written = 0;

/** Writes bytes to a file, after three bytes of another tensor. */
function store(type: StoredRows["type"], rows: number, columns: number, data: ArrayBufferView): Stored {
  const path = join(folder, String(written++));
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  writeFileSync(path, Buffer.concat([Buffer.alloc(3), bytes]));
  return { path, source: { kind: "stored", file: 0, offset: 3, type, rows, columns } };
}

interface Stored {
  readonly path: string;
  readonly source: StoredRows;
}

/** Stores the values 0, 1, 2 and so on. */
function counting(rows: number, columns: number): Stored {
  return store(
    "F32",
    rows,
    columns,
    Float32Array.from({ length: rows * columns }, (_, i) => i),
  );
}

/** Reads all rows at once, then one by one, then three at a time. Asserts that the results are equal. */
function readAll(path: string, source: RowSource): number[][] {
  const reader = createRowReader([path]);
  const { rows, columns } = source;
  const read = (step: number) => {
    const all = new Float32Array(rows * columns);
    for (let row = 0; row < rows; row += step) {
      const count = Math.min(step, rows - row);
      reader.read(source, row, count, all.subarray(row * columns, (row + count) * columns));
    }
    return all;
  };
  const whole = read(rows);
  assert.deepEqual(read(1), whole, "one by one");
  assert.deepEqual(read(3), whole, "in threes");
  reader.close();
  return Array.from({ length: rows }, (_, row) => [...whole.subarray(row * columns, (row + 1) * columns)]);
}

/** Returns a matrix whose values are a function of row and column. */
function matrix(rows: number, columns: number, value: (row: number, column: number) => number): number[][] {
  return Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => value(row, column)));
}

describe("the row reader", () => {
  it("decodes every stored type", () => {
    const half = Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x7bff);
    const expected: [StoredRows["type"], ArrayBufferView, number[]][] = [
      ["F64", Float64Array.of(1.5, -2), [1.5, -2]],
      ["F32", Float32Array.of(1.5, -2), [1.5, -2]],
      ["F16", half, [1, -2, 2 ** -24, 65504]],
      ["BF16", Uint16Array.of(0x3f80, 0xc000), [1, -2]],
      ["F8_E4M3", Uint8Array.of(0x38, 0xb8, 0x01, 0x7e, 0x00), [1, -1, 2 ** -9, 448, 0]],
      ["F8_E5M2", Uint8Array.of(0x3c, 0xbc, 0x01, 0x7b), [1, -1, 2 ** -16, 57344]],
      ["I8", Int8Array.of(-128, 127), [-128, 127]],
      ["U8", Uint8Array.of(0, 255), [0, 255]],
      ["I16", Int16Array.of(-300, 300), [-300, 300]],
      ["U16", Uint16Array.of(0, 65535), [0, 65535]],
      ["I32", Int32Array.of(-70000, 70000), [-70000, 70000]],
      ["U32", Uint32Array.of(0, 2 ** 31), [0, 2 ** 31]],
      ["I64", BigInt64Array.of(-5n, 5n), [-5, 5]],
      ["U64", BigUint64Array.of(0n, 5n), [0, 5]],
      ["BOOL", Uint8Array.of(0, 1), [0, 1]],
    ];
    for (const [type, data, values] of expected) {
      const { path, source } = store(type, 1, values.length, data);
      assert.deepEqual(readAll(path, source), [values], type);
    }
  });

  it("joins, slices and picks rows", () => {
    const { path, source } = counting(8, 2);
    const row = (from: number) => [2 * from, 2 * from + 1];
    assert.deepEqual(readAll(path, joined([sliced(source, 6, 2), sliced(source, 0, 2)])), [6, 7, 0, 1].map(row));
    assert.deepEqual(readAll(path, picked(source, { period: 4, first: 1, count: 2 })), [1, 2, 5, 6].map(row));
    assert.deepEqual(readAll(path, picked(source, { period: 4, first: 1, count: 2, step: 2 })), [1, 3, 5, 7].map(row));
  });

  it("puts the rows of heads in llama.cpp's order", () => {
    const { path, source } = counting(16, 3);
    // Two heads of 8 rows each. In each head, rows of the first and second half alternate.
    const order = [0, 4, 1, 5, 2, 6, 3, 7].flatMap((row) => [row]);
    const expected = [...order, ...order.map((row) => row + 8)];
    const rows = readAll(path, swapped(source, { x: 2, y: 4 }));
    assert.deepEqual(
      rows,
      expected.map((row) => [3 * row, 3 * row + 1, 3 * row + 2]),
    );
  });

  it("interleaves the rows of groups of heads", () => {
    const { path, source } = counting(12, 1);
    // Two groups of three heads with two rows each.
    const rows = readAll(path, swapped(source, { x: 2, y: 3, inner: 2 })).flat();
    assert.deepEqual(rows, [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
    const columns = readAll(path, swappedColumns(reshaped(source, 12), { x: 2, y: 3, inner: 2 }));
    assert.deepEqual(columns, [rows]);
  });

  it("transposes stacked matrices, stored or computed", () => {
    const { path, source } = counting(6, 4);
    const expected = matrix(8, 3, (row, column) => Math.floor(row / 4) * 12 + column * 4 + (row % 4));
    assert.deepEqual(readAll(path, transposed(source, 3)), expected);
    const plusOne = expected.map((row) => row.map((value) => value + 1));
    assert.deepEqual(readAll(path, transposed(shifted(source, 1), 3)), plusOne);
  });

  it("changes values, and returns computed values that are in no file", () => {
    const { path, source } = counting(2, 2);
    const exponent = (value: number) => Math.fround(-Math.exp(value));
    assert.deepEqual(readAll(path, shifted(source, 1)), [
      [1, 2],
      [3, 4],
    ]);
    assert.deepEqual(readAll(path, scaled(source, -2)), [
      [-0, -2],
      [-4, -6],
    ]);
    assert.deepEqual(readAll(path, negatedExp(source)), [[0, 1].map(exponent), [2, 3].map(exponent)]);
    assert.deepEqual(readAll(path, joined([given([7, 8]), zeros(2, 2)])), [
      [7, 8],
      [0, 0],
      [0, 0],
    ]);
  });

  it("reads rows that are longer than its buffers", () => {
    const columns = 2 ** 20 + 7;
    const { path, source } = counting(3, columns);
    const reader = createRowReader([path]);
    const out = new Float32Array(columns);
    reader.read(source, 2, 1, out);
    assert.equal(out[columns - 1], 3 * columns - 1);
    reader.read(swapped(source, { x: 1, y: 3 }), 1, 1, out);
    assert.equal(out[0], columns);
    reader.close();
  });

  it("names the file that became shorter", () => {
    const { path, source } = counting(2, 2);
    const reader = createRowReader([path]);
    const more = { ...source, rows: 3 };
    assert.throws(() => reader.read(more, 0, 3, new Float32Array(6)), {
      code: "model_file_invalid",
      message: new RegExp(path),
    });
    reader.close();
  });
});

describe("quantised rows", () => {
  it("scale FP8 by tensors, rows and blocks of stacked matrices", () => {
    const { path, source } = store(
      "I8",
      6,
      4,
      Int8Array.from({ length: 24 }, (_, i) => i),
    );
    const scales = given([1, 10, 100, 1000]);
    const rows = readAll(path, {
      kind: "blockScaled",
      source,
      scales: reshapedGiven(scales, 2),
      ...{ blockRows: 2, blockColumns: 2, matrixRows: 3, rows: 6, columns: 4 },
    });
    // Each block covers 2 x 2 values. A matrix of 3 rows thus has two rows of blocks, and two matrices have four.
    const expected = matrix(6, 4, (row, column) => {
      const block = (Math.floor(row / 3) * 2 + Math.floor((row % 3) / 2)) * 2 + Math.floor(column / 2);
      return (4 * row + column) * [1, 10, 100, 1000, 1, 10, 100, 1000][block]!;
    });
    assert.deepEqual(rows, expected);
  });

  it("unpack GPTQ, with groups in another order", () => {
    // 8 rows (output features) and 16 columns. A 32-bit word holds 8 columns of a row, and the file contains two rows of 8 words.
    const stored = matrix(8, 16, (row, column) => (row * 5 + column * 3) % 16);
    const words = Uint32Array.from({ length: 16 }, (_, i) => {
      const [wordRow, row] = [Math.floor(i / 8), i % 8];
      return Array.from({ length: 8 }, (_, k) => stored[row]![wordRow * 8 + k]! * 2 ** (4 * k)).reduce((a, b) => a + b);
    });
    const zeros = Uint32Array.of(0x76543210, 0x12345678);
    const order = Int32Array.from({ length: 16 }, (_, column) => column % 2);
    const scales = Float32Array.from({ length: 16 }, (_, i) => i + 1);
    const path = join(folder, String(written++));
    writeFileSync(path, Buffer.concat([words, zeros, order, scales].map((one) => Buffer.from(one.buffer))));
    const at = (type: StoredRows["type"], offset: number, rows: number, columns: number): StoredRows => ({
      ...{ kind: "stored", file: 0, offset, type, rows, columns },
    });
    const rows = readAll(path, {
      kind: "packedInts",
      layout: "gptq",
      ...{ bits: 4, zero: 1, groupSize: 8, rows: 8, columns: 16 },
      words: at("I32", 0, 2, 8),
      zeros: at("I32", 64, 2, 1),
      groups: at("I32", 72, 1, 16),
      scales: at("F32", 136, 2, 8),
    });
    const points = [
      [0, 1, 2, 3, 4, 5, 6, 7],
      [8, 7, 6, 5, 4, 3, 2, 1],
    ];
    const expected = matrix(8, 16, (row, column) => {
      const group = column % 2;
      return (stored[row]![column]! - points[group]![row]! - 1) * scales[group * 8 + row]! + 0;
    });
    assert.deepEqual(
      rows.map((row) => row.map((value) => value + 0)),
      expected,
    );
  });

  it("unpack AWQ, whose words have the rows in another order", () => {
    const place = [0, 2, 4, 6, 1, 3, 5, 7];
    const stored = matrix(8, 4, (row, column) => (row * 3 + column * 7) % 16);
    // The 4-bit number i of a word belongs to row place[i].
    const words = Uint32Array.from({ length: 4 }, (_, column) =>
      place.reduce((word, row, i) => word + stored[row]![column]! * 2 ** (4 * i), 0),
    );
    const point = Uint32Array.of(place.reduce((word, row, i) => word + row * 2 ** (4 * i), 0));
    const { path, source } = store("I32", 4, 1, Uint32Array.of(...words, ...point));
    const rows = readAll(path, {
      kind: "packedInts",
      layout: "awq",
      ...{ bits: 4, zero: 0, groupSize: 4, groups: null, rows: 8, columns: 4 },
      words: source,
      zeros: { ...source, offset: 3 + 16, rows: 1 },
      scales: given([1, 2, 3, 4, 5, 6, 7, 8]),
    });
    assert.deepEqual(
      rows,
      matrix(8, 4, (row, column) => (stored[row]![column]! - row) * (row + 1)),
    );
  });

  it("decode MXFP4, and pack the same values for GGUF", () => {
    const codes = Uint8Array.from({ length: 64 }, (_, i) => (i * 37) % 256);
    const path = join(folder, String(written++));
    writeFileSync(path, Buffer.concat([codes, Buffer.from([127, 128, 126, 120])]));
    const table = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];
    const source: RowSource = {
      kind: "mxfp4",
      codes: { kind: "stored", file: 0, offset: 0, type: "U8", rows: 2, columns: 32 },
      scales: { kind: "stored", file: 0, offset: 64, type: "U8", rows: 2, columns: 2 },
      ...{ rows: 2, columns: 64 },
    };
    const code = (row: number, column: number) => (codes[row * 32 + (column >> 1)]! >> (4 * (column % 2))) & 15;
    const scale = (row: number, column: number) => [0, 1, -1, -7][2 * row + Math.floor(column / 32)]!;
    assert.deepEqual(
      readAll(path, source),
      matrix(2, 64, (r, c) => table[code(r, c)]! * 2 ** scale(r, c)),
    );
    const packed = new Uint8Array(34);
    const reader = createMxfp4Reader([path]);
    reader.read(source, 1, 1, packed);
    reader.close();
    assert.deepEqual([packed[0], packed[17]], [126, 120]);
    for (let i = 0; i < 16; i++) assert.equal(packed[18 + i], code(1, 32 + i) | (code(1, 48 + i) << 4), `byte ${i}`);
  });

  it("look up NF4, with nested scales", () => {
    const { path, source } = store(
      "U8",
      1,
      16,
      Uint8Array.from({ length: 16 }, (_, i) => i * 17),
    );
    const table = given(Array.from({ length: 16 }, (_, i) => i - 8));
    const scales: RowSource = {
      kind: "lookedUp",
      codes: { ...source, columns: 8 },
      table: given(Array.from({ length: 256 }, (_, i) => i)),
      scales: given([2, 3]),
      ...{ blockLength: 4, offset: 5, rows: 1, columns: 8 },
    };
    const rows = readAll(path, { kind: "codebook", codes: source, table, scales, blockLength: 4, rows: 4, columns: 8 });
    const expected = matrix(4, 8, (row, column) => {
      const index = row * 8 + column;
      const block = Math.floor(index / 4);
      return ((index >> 1) - 8) * (block * 17 * (block < 4 ? 2 : 3) + 5);
    });
    assert.deepEqual(rows, expected);
  });
});

function reshapedGiven(source: RowSource, columns: number): RowSource {
  return { ...source, columns, rows: (source.columns / columns) * 2 };
}

describe("copyable rows", () => {
  const source: StoredRows = { kind: "stored", file: 2, offset: 100, type: "F16", rows: 4, columns: 8 };

  it("are one range if they are adjacent", () => {
    assert.deepEqual(copyable(source, 1), [{ file: 2, offset: 100, bytes: 64 }]);
    assert.deepEqual(copyable(joined([sliced(source, 0, 2), sliced(source, 2, 2)]), 1), [
      { file: 2, offset: 100, bytes: 64 },
    ]);
  });

  it("are several ranges in the order of the rows otherwise", () => {
    const ranges = copyable(swapped(source, { x: 2, y: 2 }), 1);
    assert.deepEqual(
      ranges?.map(({ offset }) => offset),
      [100, 132, 116, 148],
    );
  });

  it("do not exist if the type differs or values change", () => {
    assert.equal(copyable(source, 0), null);
    assert.equal(copyable(source, 30), null);
    assert.equal(copyable(shifted(source, 1), 1), null);
    assert.equal(copyable(joined([source, { ...source, type: "BF16" }]), 1), null);
  });
});
