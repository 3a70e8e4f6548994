import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { frontOptions } from "../../../../cli/assembly/service-options.ts";
import type { Flags } from "../../../../cli/config/given.ts";
import type { Progress } from "../../../../cli/progress.ts";
import { createLogger } from "../../../../runtime/log/log.ts";
import { tinyModel } from "../../../fixtures/models/models.ts";
import { assertRefused, resolve } from "../config/resolve.ts";

const progress: Progress = { update: () => {}, stop: () => {} };

async function optionsOf(flags: Flags) {
  const config = resolve({ flags: { "--model-id": [await tinyModel()], "--engine": "llama", ...flags } });
  return frontOptions(config, createLogger({ level: "silent", format: "json" }), progress);
}

describe("multi-token prediction", () => {
  it("is not requested from an engine if nothing is set", async () => {
    const { models, speculation } = await optionsOf({ "--mtp-draft-sampling": "greedy" });
    assert.equal(models[0]?.spec.mtp, undefined);
    assert.equal(speculation.mtpTokens, null);
  });

  it("uses the model's own heads, or an assistant, and reserves room for all drafts", async () => {
    const own = await optionsOf({ "--mtp-n-predict": "3", "--mtp-draft-sampling": "greedy", "--max-seqs": "8" });
    assert.deepEqual(own.models[0]?.spec.mtp, { path: null });
    assert.equal(own.models[0]?.spec.extraLogitsRows, 24);
    assert.deepEqual([own.speculation.mtpTokens, own.speculation.mtpSampling], [3, "greedy"]);
    const path = await tinyModel();
    const assisted = await optionsOf({ "--mtp-model": path });
    assert.deepEqual(assisted.models[0]?.spec.mtp, { path });
    assert.deepEqual([assisted.speculation.mtpTokens, assisted.speculation.mtpSampling], [null, "auto"]);
  });

  it("is rejected on the wasm engine, which auto does not choose then", async () => {
    await assert.rejects(
      optionsOf({ "--engine": "wasm", "--mtp-n-predict": "2" }),
      /engine expects one that can run .* got wasm, which cannot: it has no multi-token prediction/,
    );
    const { models } = await optionsOf({ "--engine": "auto", "--cpu": true, "--mtp-n-predict": "2" });
    assert.equal(models[0]?.engine, "llama");
  });

  it("drafts no more than the maximum, and is rejected with settings that exclude it", async () => {
    await assert.rejects(
      optionsOf({ "--mtp-n-predict": "9", "--max-draft-tokens": "8" }),
      /mtp_n_predict expects at most max_draft_tokens \(8\); got 9/,
    );
    for (const mtp of [{ "--mtp-n-predict": "2" }, { "--mtp-model": "m" }]) {
      assertRefused({ flags: { ...mtp, "--draft-model": "d" } }, /"--draft-model" conflicts with "--mtp-/);
      assertRefused({ flags: { ...mtp, "--speculation": "off" } }, /"--speculation" = "off" conflicts with "--mtp-/);
    }
  });
});
