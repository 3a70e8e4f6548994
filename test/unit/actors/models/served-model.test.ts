import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { contextCut, type ServedModel } from "../../../../actors/models/served-model.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";

const { card, capacity, capabilities } = createFakeEngine();

function cut(
  configured: number | null,
  trainedContext: number,
  sequenceTokens: number,
  generates = true,
): string | null {
  const served = { spec: { maxModelLength: configured } } as ServedModel;
  const ready = { maxQueue: 8, probes: null };
  return contextCut(served, {
    ...ready,
    card: { ...card, trainedContext },
    capacity: { ...capacity, sequenceTokens },
    capabilities: { ...capabilities, generates },
  });
}

describe("the warning of a cut context", () => {
  it("names both lengths and what to do, if there is no memory for the length that is configured or trained", () => {
    assert.match(String(cut(null, 32_768, 4096)), /^the context is cut to 4096 of 32768 tokens.*raise kv_cache/);
    assert.match(String(cut(8192, 32_768, 4096)), /4096 of 8192/);
  });

  it("is not given for the full length, nor for an encoder, whose length its batch bounds", () => {
    assert.equal(cut(null, 8192, 8192), null);
    assert.equal(cut(4096, 8192, 4096), null);
    assert.equal(cut(null, 8192, 4096, false), null);
  });
});
