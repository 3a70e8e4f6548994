import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { jobDefaults, rowHasToken, rowInts, type TokenFrame } from "../../../../actors/messages.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import type { LoadedModel } from "../../../../engines/engine.ts";
import { greedySampling } from "../../../../engines/generation.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";

/** Returns the fake engine with one fault: in slot 0, all logits are NaN from the third token on. */
function brokenInSlot0(): LoadedModel {
  const engine = createFakeEngine();
  return {
    ...engine,
    step: (batch) => {
      const output = engine.step(batch);
      const row = batch.slot.subarray(0, batch.rowCount).indexOf(0);
      const at = output.logitsRow[row] ?? -1;
      if (at >= 0 && batch.position[row]! > 4) output.logits.fill(Number.NaN, at * 64, (at + 1) * 64);
      return output;
    },
  };
}

describe("a sequence whose logits leave nothing to choose", () => {
  it("fails alone, and the other sequences finish", () => {
    const loop = new StepLoop(brokenInSlot0(), { limits: generousLimits, frameIntervalMs: 0 });
    const failed: TokenFrame["failed"][number][] = [];
    const tokens = new Map<number, number>();
    const consumer = {
      send: (frame: TokenFrame) => {
        failed.push(...frame.failed);
        for (let at = 0; at < frame.rows.length; at += rowInts) {
          if (frame.rows[at + 2]! & rowHasToken) {
            tokens.set(frame.rows[at]!, (tokens.get(frame.rows[at]!) ?? 0) + 1);
          }
        }
      },
    };
    const job = {
      client: "client",
      maxNewTokens: 10,
      ignoreEos: true,
      adapter: 0,
      sampling: greedySampling,
      choice: 0,
      breakers: new Int32Array(0),
      ...jobDefaults,
    };
    const prompt = Int32Array.of(1, 2, 3, 4);
    loop.submit(consumer, [
      { ...job, id: 1, prompt },
      { ...job, id: 2, prompt },
    ]);
    while (loop.step());
    assert.deepEqual(
      failed.map(({ id, error }) => [id, error.code]),
      [[1, "model_failed"]],
    );
    assert.equal(tokens.get(2), 10);
    assert.ok((tokens.get(1) ?? 0) < 10);
  });
});
