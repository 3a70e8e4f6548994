// Adapter rig: a step loop over the fake engine, and the tokens that it must generate.
import assert from "node:assert/strict";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import { Speculation } from "../../../../engines/decoding/speculation/speculation.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { createFakeEngine, type FakeEngineOptions, fakeNextToken } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { Frames } from "../generation/rig.ts";

export const vocabSize = 64;

export function createLoop(
  options: { engine?: FakeEngineOptions; prefixCacheEntries?: number; drafts?: boolean } = {},
) {
  const { prefixCacheEntries = 0, drafts = false } = options;
  const engine = createFakeEngine({ vocabSize, adaptersPerStep: 1, ...options.engine });
  const speculation = { promptLookup: true, maxDraftTokens: 4, mtpTokens: null, mtpSampling: "auto" } as const;
  const loop = new StepLoop(engine, {
    limits: { ...generousLimits, prefixCacheEntries },
    frameIntervalMs: 0,
    createSpeculation: (cost) =>
      drafts
        ? Speculation.create({ model: engine, draft: null, options: { ...speculation, draftModel: null }, cost })
        : null,
  });
  const { adapters } = engine;
  assert.ok(adapters !== null);
  const load = (id: number) => loop.adapters.load({ id, generation: `generation ${id}`, path: `${id}.gguf` });
  return { engine, loop, load, host: adapters, frames: new Frames() };
}

/** Returns the tokens that a prompt must generate when it runs without other sequences. */
export function expected(prompt: Int32Array, count: number, adapter: number): number[] {
  const tokens = [...prompt];
  while (tokens.length < prompt.length + count) tokens.push(fakeNextToken(tokens, vocabSize, adapter));
  return tokens.slice(prompt.length);
}

export const tokensOf = (frames: Frames, id: number) =>
  frames.rows.filter((row) => row.id === id).map(({ token }) => token);

export const gone = (error: unknown) =>
  error instanceof ServerError && error.code === "model_failed" && error.retryable;

/** Observes whether a promise has settled. */
export function watch(promise: Promise<unknown>) {
  const seen = { settled: false };
  promise.then(
    () => {
      seen.settled = true;
    },
    () => {},
  );
  return seen;
}
