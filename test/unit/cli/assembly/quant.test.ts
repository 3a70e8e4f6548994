// Setting `quant`: the quantization level that `auto` chooses, and the memory on which the choice depends.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { levelToCreate, weightRoom } from "../../../../cli/assembly/quantization/quant.ts";

const gib = 2 ** 30;
const bf16 = 30;
const q8 = 8;

/** Returns the level chosen for a model of 7 billion weights, and the log message. */
async function taken(totalBytes: number, sourceType = bf16): Promise<[level: string | null, log: string]> {
  const bits: Record<string, number> = { Q8_0: 8.5, Q6_K: 6.6, Q5_K: 5.5, Q4_K: 4.5, Q3_K: 3.4, Q2_K: 2.6 };
  let log = "";
  const level = await levelToCreate(
    "auto",
    sourceType,
    async ({ name }) => (7e9 * (bits[name] ?? 32)) / 8,
    (message) => {
      log = message;
    },
    weightRoom(totalBytes),
  );
  return [level?.name ?? null, log];
}

describe("quant = auto", () => {
  it("chooses the best level for the machine's memory minus a reserve, whatever is free, and says why", async () => {
    const levels = await Promise.all([64, 12, 9, 8, 2].map((total) => taken(total * gib)));
    assert.deepEqual(
      levels.map(([level]) => level),
      ["Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q2_K"],
    );
    assert.equal(
      levels[1]?.[1],
      "quant auto takes Q6_K (5.4 GiB), the best level that fits 6.6 GiB, 60 % of 12.0 GiB of memory less a reserve of 1.0 GiB",
    );
    assert.match(
      levels[4]?.[1] ?? "",
      /the smallest level, though it does not fit 0\.9 GiB, .* less a reserve of 0\.5 GiB$/,
    );
  });

  it("leaves quantized weights unchanged", async () => {
    assert.deepEqual(await taken(8 * gib, q8), [null, ""]);
  });

  it("always assumes the same amount of memory", () => {
    assert.deepEqual(weightRoom(), weightRoom());
  });
});
