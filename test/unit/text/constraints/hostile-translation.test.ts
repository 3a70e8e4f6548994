// Hostile grammars: each is translated or rejected with a specific error, within limits of CPU time and heap.
// HOSTILE_GRAMMARS=2000 sets the number of random grammars.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, describe, it } from "node:test";
import { Worker } from "node:worker_threads";
import { hostileGrammars } from "../../../fixtures/hostile/named-grammars.ts";
import { type HostileGrammar, hostileGrammar } from "../../../fixtures/hostile/random-grammars.ts";
import type { Outcome } from "../../../fixtures/hostile/translation-worker.ts";
import { seeded } from "../../../fixtures/schemas/random-text.ts";

const randomCount = Number(process.env.HOSTILE_GRAMMARS ?? 150);
const heapMb = 200;
/** Maximum CPU time in ms. In an earlier version, most of the named grammars took seconds or minutes. */
const mostMs = 2000;
const usualMs = 250;
/** Fraction of the random grammars that must take less than `usualMs`. On the slowest CPU tested, 145 of 150 grammars took less. */
const usualShare = 0.95;

describe("a hostile grammar", () => {
  let worker: Worker;

  before(async () => {
    const url = new URL("../../../fixtures/hostile/translation-worker.js", import.meta.url);
    worker = new Worker(url, { resourceLimits: { maxOldGenerationSizeMb: heapMb } });
    // Warms up the code before its time is measured.
    for (let seed = 1; seed <= 20; seed++) await outcomeOf(hostileGrammar(seeded(100_000 + seed)));
  });
  after(() => worker.terminate());

  async function outcomeOf(grammar: HostileGrammar): Promise<Outcome> {
    worker.postMessage(grammar);
    const [outcome] = (await once(worker, "message")) as [Outcome];
    return outcome;
  }

  async function assertBounded(what: string, grammar: HostileGrammar): Promise<number> {
    const outcome = await outcomeOf(grammar).catch((error: Error) => assert.fail(`${what}: ${error.message}`));
    const { code, failure, cpuMs } = outcome;
    assert.equal(failure, null, what);
    assert.ok(code === null || code === "invalid_value" || code === "unsupported", `${what}: ${code}`);
    assert.ok(cpuMs < mostMs, `${what} took ${Math.round(cpuMs)} ms`);
    return cpuMs;
  }

  for (const [name, grammar] of Object.entries(hostileGrammars)) {
    it(`is translated or refused in time: ${name}`, async () => void (await assertBounded(name, grammar)));
  }

  it("is translated or refused in time if it is random", { timeout: 1000 * randomCount }, async () => {
    const times: number[] = [];
    for (let seed = 1; seed <= randomCount; seed++) {
      times.push(await assertBounded(`the grammar of seed ${seed}`, hostileGrammar(seeded(seed))));
    }
    const usual = times.filter((ms) => ms < usualMs).length;
    assert.ok(usual >= usualShare * randomCount, `${usual} of ${randomCount} took less than ${usualMs} ms`);
  });
});
