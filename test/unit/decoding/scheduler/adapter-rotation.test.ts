import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createScheduler, createSequence, seededRandom } from "../../../fixtures/scheduling.ts";
import { createTurns } from "./rotation-rig.ts";

const none = (count: number) => Array.from({ length: count }, () => 0);

describe("adapters that take turns", () => {
  it("generate, as 16 with 2 sequences each, at least a fifth of the tokens of one with 32, and none waits more than about a second", () => {
    const one = createTurns({ sequences: [0, 32] });
    const many = createTurns({ sequences: [0, ...none(16).map(() => 2)] });
    for (const rig of [one, many]) rig.runFor(20_000);
    assert.equal(one.switches(), 0);
    const share = many.made() / one.made();
    assert.ok(share >= 0.2, `16 adapters make ${share} of what one makes`);
    const longest = Math.max(...many.longestWait.values());
    assert.ok(longest <= 1200, `a sequence waited ${longest} ms`);
    const counts = [...many.tokens.values()];
    assert.ok(Math.min(...counts) >= 0.9 * Math.max(...counts), counts.join(" "));
  });

  for (const switchMs of [0.5, 3, 8, 40]) {
    it(`spend about a ninth of the time on switches of ${switchMs} ms, and at most every other step`, () => {
      const rig = createTurns({ sequences: [1, 2, 3], switchMs });
      rig.runFor(5000);
      const [before, from, steps] = [rig.switches(), rig.now(), rig.steps.length];
      rig.runFor(10_000);
      const switched = rig.switches() - before;
      const share = (switched * switchMs) / (rig.now() - from);
      assert.ok(share <= 0.13, `${share} of the time`);
      assert.ok(share >= Math.min(0.08, switchMs / (switchMs + 2 * 12)), `${share} of the time`);
      assert.ok(
        switched <= (rig.steps.length - steps) / 2,
        `${switched} switches in ${rig.steps.length - steps} steps`,
      );
    });
  }

  it("give every sequence the same pace, whether many share its adapter or none", () => {
    const rig = createTurns({ sequences: [20, 1, 4] });
    rig.runFor(20_000);
    const counts = [...rig.tokens.values()];
    assert.ok(Math.min(...counts) >= 0.8 * Math.max(...counts), counts.join(" "));
  });

  it("switch at once when no sequence of an adapter can run, and do not switch while there is only one", () => {
    const rig = createTurns({ sequences: [1, 1] });
    rig.runFor(500);
    const [, adapted] = rig.all;
    rig.scheduler.setPaused(adapted!, true);
    const from = rig.steps.length;
    rig.runFor(500);
    assert.ok(rig.steps.slice(from).every(({ adapter }) => adapter === 0));
    rig.scheduler.setPaused(adapted!, false);
    rig.scheduler.cancel(rig.all[0]!);
    const alone = rig.steps.length;
    rig.runFor(100);
    assert.ok(rig.steps.slice(alone).every(({ adapter }) => adapter === 1));
    assert.equal(rig.scheduler.statistics.adapterSwitches, rig.switches());
  });

  it("switch at once to a new adapter while another has had the engine to itself", () => {
    const rig = createTurns({ sequences: [2, 0] });
    rig.runFor(1000);
    const sequence = rig.add(1);
    rig.step(() => 10);
    assert.equal(sequence.computed, 4);
  });

  it("reach a new adapter within a round of the others", () => {
    const rig = createTurns({ sequences: [0, ...none(12).map(() => 2), 0] });
    rig.runFor(3000);
    const sequence = rig.add(13);
    const came = rig.now();
    while (sequence.computed === 0) rig.runFor(1);
    assert.ok(rig.now() - came <= 1000, `it waited ${rig.now() - came} ms`);
  });

  it("do not starve an adapter for others whose sequences arrive one after another", () => {
    const rig = createTurns({ sequences: [0, 1, 0, 0, 0] });
    const [steady] = rig.all;
    const blinking = [2, 3, 4].map((adapter) => rig.add(adapter, { maxNewTokens: 2 }));
    for (let i = 0; i < 400; i++) {
      rig.runFor(1);
      blinking.forEach((one, at) => {
        const isOver = one.state === "finished" && rig.steps.at(-1)!.adapter !== one.adapter;
        if (isOver) blinking[at] = rig.add(one.adapter, { maxNewTokens: 2 });
      });
    }
    assert.ok(rig.tokens.get(steady!)! > 100, `${rig.tokens.get(steady!)} tokens`);
    assert.ok(rig.longestWait.get(steady!)! < 200, `${rig.longestWait.get(steady!)} ms`);
  });

  it("keep a round at about a second with long prompts of all adapters, and let the prompts take most of the time", () => {
    const limits = { maxBatchTokens: 2048, maxPrefillChunkTokens: 1024 };
    const rig = createTurns({ sequences: none(10).map(() => 1), limits });
    rig.runFor(1000);
    const decoding = [...rig.all];
    rig.longestWait.clear();
    const prompts = decoding.map(({ adapter }) => rig.add(adapter, { prompt: 2000, maxNewTokens: 1, seed: 20 }));
    const from = rig.now();
    while (prompts.some(({ state }) => state !== "finished")) rig.runFor(1);
    for (const one of decoding) assert.ok(rig.longestWait.get(one)! < 1250, `${rig.longestWait.get(one)} ms`);
    // Computing the prompts takes 10 seconds in total.
    assert.ok(rig.now() - from < 14_000, `${rig.now() - from} ms for the prompts`);
  });

  it("hold decodes back for no more than one step of prompts, because they have waited for the other adapters", () => {
    const rig = createTurns({ sequences: [2, 2, 2], limits: { maxPrefillChunkTokens: 256 } });
    rig.runFor(1000);
    const [decoding] = rig.all.filter(({ adapter }) => adapter === 2);
    const prompts = Array.from({ length: 4 }, (_, i) => rig.add(2, { prompt: 300, maxNewTokens: 1, seed: 20 + i }));
    let without = 0;
    while (prompts.some(({ state }) => state !== "finished")) {
      const made = rig.tokens.get(decoding!)!;
      rig.runFor(1);
      if (rig.steps.at(-1)!.adapter !== 2) continue;
      without = rig.tokens.get(decoding!)! > made ? 0 : without + 1;
      assert.ok(without <= 1, `${without} steps of its adapter in a row without its token`);
    }
  });

  it("feed a prompt in each quantum of its adapter, though its least chunk takes longer than one", () => {
    const limits = { maxDecodeStepsBeforePrefill: 100, maxStepMs: 1, decodeSlowdown: 1 };
    const rig = createTurns({ sequences: [2, 2], promptTokenMs: 8, limits });
    rig.runFor(1000);
    const prompt = rig.add(1, { prompt: 300, maxNewTokens: 1, seed: 30 });
    const from = rig.now();
    while (prompt.state !== "finished" && rig.now() - from < 20_000) rig.runFor(1);
    assert.ok(rig.now() - from < 6000, `it took ${rig.now() - from} ms`);
  });

  it("exclude the time of switches from the estimates of steps", () => {
    const rig = createTurns({ sequences: [2, 2] });
    rig.runFor(500);
    for (let i = 0; i < 300; i++) {
      rig.runFor(1);
      const decodeMs = rig.scheduler.cost.decodeMs(2);
      assert.ok(Math.abs(decodeMs - 8) < 0.5, `${decodeMs} ms for a step of 8`);
    }
  });

  it("pass the engine to the adapter that holds the KV memory when the current one has no room to run", () => {
    for (let kvBlocks = 40; kvBlocks < 60; kvBlocks++) {
      const engine = { maxSequences: 2, sequenceTokens: 400, blockTokens: 8, kvBlocks, adaptersPerStep: 1 };
      const rig = createScheduler({ engine: { ...engine, loadedAdapters: [1] }, limits: { swapBytes: 0 } });
      const lengths = { maxNewTokens: 250, ignoreEos: true };
      const sequences = [0, 1].map((adapter) => createSequence({ ...lengths, prompt: 20 + 40 * adapter, adapter }));
      for (const sequence of sequences) rig.scheduler.add(sequence);
      for (let i = 0; sequences.some(({ state }) => state !== "finished"); i++) {
        assert.ok(rig.step() !== null && i < 5000, "nothing runs any more");
      }
    }
  });

  it("are mixed in one step by engines that can", () => {
    const rig = createTurns({ sequences: [1, 1, 1], adaptersPerStep: 3 });
    rig.runFor(200);
    assert.ok(rig.steps.every(({ rows }) => rows === 3));
    assert.equal(rig.scheduler.statistics.adapterSwitches, 0);
  });

  it("wait for the next mask of a grammar for only a few polls", () => {
    const rig = createTurns({ sequences: [1, 1], switchMs: 20 });
    rig.runFor(1000);
    const current = rig.all.find(({ adapter }) => adapter === rig.steps.at(-1)!.adapter)!;
    // Runs until the scheduler switches to the other adapter.
    const other = rig.all.find((one) => one !== current)!;
    while (rig.steps.at(-1)!.adapter === current.adapter) rig.runFor(1);
    rig.scheduler.setAwaitsGrammar(other, true);
    let looks = 0;
    while (looks < 20 && rig.step(() => 1) === null) looks++;
    assert.ok(looks > 0 && looks < 10, `${looks} looks`);
    assert.equal(rig.batch.adapter[0], current.adapter);
    rig.scheduler.setAwaitsGrammar(other, false);
  });

  it("draft only for sequences of the current adapter", () => {
    const rig = createTurns({ sequences: [2, 2] });
    const seeded = seededRandom(5);
    for (let i = 0; i < 100; i++) {
      const drafted = [...rig.scheduler.nextDecodes()];
      const ran = rig.step(() => 5 + 10 * seeded());
      assert.deepEqual(new Set(drafted.map(({ adapter }) => adapter)).size, drafted.length > 0 ? 1 : 0);
      const fed = new Set(ran!.fed.map(({ sequence }) => sequence));
      if (drafted.length > 0) assert.deepEqual(new Set(drafted), fed);
    }
    assert.ok(rig.scheduler.statistics.adapterSwitches > 5);
  });
});
