import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createRig, randomFloats, variants } from "./kernel-fixtures.ts";

const floatBytes = 4;
const rows = 3;
const gap = 3;
const columnCounts = [1, 2, 3, 4, 5, 8, 11, 64];

for (const variant of variants) {
  const rig = await createRig(variant);

  describe(`the ${variant} arithmetic on rows`, () => {
    /** Runs `act` on rows with gaps between them. Compares each float with the result of `right`; the gaps must stay unchanged. */
    const check = (
      columns: number,
      act: (x: number, stride: number) => void,
      right: (x: number, row: number, column: number) => number,
    ) => {
      const stride = columns + gap;
      const x = randomFloats(rows * stride, columns);
      const at = rig.place(x);
      act(at, stride);
      for (const [i, value] of rig.floats(at, x.length).entries()) {
        const [row, column] = [Math.floor(i / stride), i % stride];
        const expected = column < columns ? right(x[i]!, row, column) : x[i]!;
        assert.ok(Math.abs(value - expected) <= 2e-7, `row ${row} of ${columns}, ${column}: ${value}, not ${expected}`);
      }
      rig.assertUntouched(at + x.byteLength, floatBytes);
    };

    for (const columns of columnCounts) {
      it(`takes rows of ${columns} floats`, () => {
        rig.reset();
        const [vector, other] = [randomFloats(columns, 7), randomFloats(rows * columns, 8)];
        const [vectorAt, otherAt] = [rig.place(vector), rig.place(other)];
        const { addVector, scaleRows, addScaledRow, addRows, copyRows, clampRows } = rig.kernels;
        check(
          columns,
          (x, stride) => addVector(x, stride, rows, vectorAt, columns),
          (x, _, c) => x + vector[c]!,
        );
        check(
          columns,
          (x, stride) => scaleRows(x, stride, rows, columns, -0.3),
          (x) => x * -0.3,
        );
        check(
          columns,
          (x) => addScaledRow(vectorAt, x, columns, 0.7),
          (x, r, c) => (r === 0 ? x + 0.7 * vector[c]! : x),
        );
        check(
          columns,
          (x, stride) => addRows(otherAt, columns, x, stride, rows, columns),
          (x, r, c) => x + other[r * columns + c]!,
        );
        check(
          columns,
          (x, stride) => copyRows(otherAt, columns, x, stride, rows, columns),
          (_, r, c) => other[r * columns + c]!,
        );
        const range = rig.place(Float32Array.of(-0.25, 0.5));
        check(
          columns,
          (x, stride) => clampRows(x, stride, x, stride, rows, columns, range, range + floatBytes),
          (x) => Math.min(Math.max(x, -0.25), 0.5),
        );
        check(
          columns,
          (x, stride) => clampRows(otherAt, columns, x, stride, rows, columns, range, range + floatBytes),
          (_, r, c) => Math.min(Math.max(other[r * columns + c]!, -0.25), 0.5),
        );
      });
    }
  });
}
