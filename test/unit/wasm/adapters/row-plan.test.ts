import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Batch } from "../../../../engines/batch.ts";
import { RowPlan } from "../../../../engines/wasm/mixture/row-plan.ts";

type Row = readonly [slot: number, from: number, to: number, logitsCount?: number];

/**
 * Returns the plan of a step: the slots in the order of computation, the slots that use adapter weights kept in an earlier step, and
 * the slots that keep their adapter weights in this step.
 */
function planned(plan: RowPlan, rows: readonly Row[]) {
  const batch = new Batch(8, 512);
  const tokens = new Int32Array(256);
  for (const [slot, from, to, logitsCount = 1] of rows) batch.addRow(slot, tokens, from, to, logitsCount, 0);
  plan.begin(batch);
  const inOrder = [...plan.rows.subarray(0, rows.length)];
  const slotsOf = (chosen: readonly number[]) => chosen.map((row) => rows[row]![0]);
  return {
    order: slotsOf(inOrder),
    kept: slotsOf(inOrder.filter((row) => plan.hasKept(row))),
    keeps: slotsOf(inOrder.filter((row) => plan.keeps(row))),
  };
}

describe("the plan of a step's rows", () => {
  it("keeps their order if no weights are kept", () => {
    const plan = new RowPlan(8, null);
    planned(plan, [[5, 0, 9]]);
    const decode: Row = [5, 9, 10];
    assert.deepEqual(planned(plan, [decode, [2, 0, 4]]), { order: [5, 2], kept: [], keeps: [] });
  });

  it("keeps the weights of the prompt's last token if keptAfter is 0", () => {
    const plan = new RowPlan(8, 0);
    assert.deepEqual(planned(plan, [[1, 0, 9, 0]]).keeps, []);
    // The last chunk of a prompt may be a single token.
    assert.deepEqual(planned(plan, [[1, 9, 10]]), { order: [1], kept: [], keeps: [1] });
    assert.deepEqual(planned(plan, [[1, 10, 11]]), { order: [1], kept: [1], keeps: [] });
  });

  it("counts only tokens fed one by one after the prompt", () => {
    const plan = new RowPlan(8, 2);
    const steps: Row[] = [
      [0, 0, 1],
      [0, 1, 2],
      // This row requests the logits of all four prompt tokens.
      [0, 2, 6, 4],
      [0, 6, 7],
      [0, 7, 8],
      [0, 8, 9],
      [0, 9, 11],
    ];
    const seen = steps.map((row) => planned(plan, [row]));
    const keeps = seen.map(({ keeps: slots }) => slots.length);
    const kept = seen.map(({ kept: slots }) => slots.length);
    assert.deepEqual(keeps, [0, 0, 0, 0, 1, 0, 0]);
    assert.deepEqual(kept, [0, 0, 0, 0, 0, 1, 1]);
  });

  it("keeps the weights of the prompt's last token if all its logits are requested", () => {
    const plan = new RowPlan(8, 0);
    assert.deepEqual(planned(plan, [[1, 0, 9, 9]]).keeps, [1]);
    assert.deepEqual(planned(plan, [[1, 9, 14, 5]]), { order: [1], kept: [], keeps: [1] });
    assert.deepEqual(planned(plan, [[1, 14, 15]]), { order: [1], kept: [1], keeps: [] });
  });

  it("puts rows with kept weights last, and starts again with a slot's next sequence", () => {
    const plan = new RowPlan(8, 1);
    planned(plan, [
      [3, 0, 5],
      [0, 0, 5],
      [6, 0, 5, 0],
    ]);
    assert.deepEqual(
      planned(plan, [
        [3, 5, 6],
        [0, 5, 6],
        [6, 5, 8],
      ]).keeps,
      [3, 0],
    );
    const next: Row[] = [
      [3, 6, 7],
      [0, 0, 4],
      [6, 8, 9],
      [1, 0, 3],
    ];
    assert.deepEqual(planned(plan, next), { order: [0, 6, 1, 3], kept: [3], keeps: [6] });
  });
});
